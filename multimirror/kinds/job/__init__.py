"""batch/v1 Job: its copy, its mirrored status, its fence, and the endings that no worker tells."""

from multimirror.kinds.job.kind import JOB

__all__ = ["JOB"]

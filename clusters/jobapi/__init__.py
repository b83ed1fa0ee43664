"""The rules by which an API server takes Jobs and CronJobs (batch/v1, Kubernetes v1.36): pure functions on plain dicts.

A write goes the server's way: `prepare_job_*` fills in and cuts off, the matching `validate_job_*` lists every violated
rule, and `stored_job` is what is read back. What controllers need as well is in `multimirror.batch`.
"""

from clusters.jobapi.cronjobs import default_cronjob, validate_cronjob_create, validate_cronjob_update
from clusters.jobapi.defaults import default_job, prepare_job_create, prepare_job_status_update, prepare_job_update
from clusters.jobapi.job_rules import validate_job_create, validate_job_status_update, validate_job_update
from clusters.jobapi.metadata import validate_metadata, validate_metadata_update
from clusters.jobapi.pod_defaults import default_pod, default_pod_spec
from clusters.jobapi.pod_rules import validate_pod_spec
from clusters.jobapi.storage import stored_job

__all__ = [
    "default_cronjob",
    "default_job",
    "default_pod",
    "default_pod_spec",
    "prepare_job_create",
    "prepare_job_status_update",
    "prepare_job_update",
    "stored_job",
    "validate_cronjob_create",
    "validate_cronjob_update",
    "validate_job_create",
    "validate_job_status_update",
    "validate_job_update",
    "validate_metadata",
    "validate_metadata_update",
    "validate_pod_spec",
]

"""The words of the Job API that this controller reads and writes: keys, reasons, messages."""

from typing import Final

CONTROLLER_NAME: Final = "kubernetes.io/job-controller"
"""What `spec.managedBy` says when it means Kubernetes' own controller."""

TRACKING_FINALIZER: Final = "batch.kubernetes.io/job-tracking"
INDEX_KEY: Final = "batch.kubernetes.io/job-completion-index"
"""Annotation and label. The controller reads the annotation only; the label feeds the environment variable."""
FAILURE_COUNT_KEY: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURE_COUNT_KEY: Final = "batch.kubernetes.io/job-index-ignored-failure-count"
INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

# Why a Job ends, and the words that go with it.
POD_FAILURE_POLICY: Final = "PodFailurePolicy"
BACKOFF_LIMIT_EXCEEDED: Final = "BackoffLimitExceeded"
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
MAX_FAILED_INDEXES_EXCEEDED: Final = "MaxFailedIndexesExceeded"
FAILED_INDEXES: Final = "FailedIndexes"
SUCCESS_POLICY: Final = "SuccessPolicy"
COMPLETIONS_REACHED: Final = "CompletionsReached"

MESSAGES: Final = {
    BACKOFF_LIMIT_EXCEEDED: "Job has reached the specified backoff limit",
    DEADLINE_EXCEEDED: "Job was active longer than specified deadline",
    MAX_FAILED_INDEXES_EXCEEDED: "Job has exceeded the specified maximal number of failed indexes",
    FAILED_INDEXES: "Job has failed indexes",
    COMPLETIONS_REACHED: "Reached expected number of succeeded pods",
}

# What a sync did, as the metrics name it.
RECONCILING: Final = "reconciling"
TRACKING: Final = "tracking"
PODS_CREATED: Final = "pods_created"
PODS_DELETED: Final = "pods_deleted"

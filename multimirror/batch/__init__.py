"""The rules of the Job API (batch/v1, Kubernetes v1.36) as pure functions on plain JSON-shaped dicts.

A write goes the server's way: `prepare_job_*` fills in and cuts off, the matching `validate_job_*` lists every violated
rule, `stored_job` is what is read back, and `invalid_status` the answer to a client whose write was refused.
"""

from multimirror.batch.conditions import (
    Phase,
    find_condition,
    is_complete,
    is_failed,
    is_finished,
    is_suspended,
    may_become,
    phase,
    with_condition,
)
from multimirror.batch.cronjobs import default_cronjob, validate_cronjob_create, validate_cronjob_update
from multimirror.batch.defaults import default_job, prepare_job_create, prepare_job_status_update, prepare_job_update
from multimirror.batch.errors import FieldError, invalid_status
from multimirror.batch.indexes import IndexFormatError, IndexSet
from multimirror.batch.job_rules import validate_job_create, validate_job_status_update, validate_job_update
from multimirror.batch.labels import selector_matches, validate_label_selector
from multimirror.batch.metadata import validate_metadata, validate_metadata_update
from multimirror.batch.pod_defaults import default_pod, default_pod_spec
from multimirror.batch.pod_rules import validate_pod_spec
from multimirror.batch.status_rules import validate_job_status
from multimirror.batch.storage import stored_job, stored_status
from multimirror.batch.types import Json

__all__ = [
    "FieldError",
    "IndexFormatError",
    "IndexSet",
    "Json",
    "Phase",
    "default_cronjob",
    "default_job",
    "default_pod",
    "default_pod_spec",
    "find_condition",
    "invalid_status",
    "is_complete",
    "is_failed",
    "is_finished",
    "is_suspended",
    "may_become",
    "phase",
    "prepare_job_create",
    "prepare_job_status_update",
    "prepare_job_update",
    "selector_matches",
    "stored_job",
    "stored_status",
    "validate_cronjob_create",
    "validate_cronjob_update",
    "validate_job_create",
    "validate_job_status",
    "validate_job_status_update",
    "validate_job_update",
    "validate_label_selector",
    "validate_metadata",
    "validate_metadata_update",
    "validate_pod_spec",
    "with_condition",
]

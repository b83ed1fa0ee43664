"""What the controllers know of the Job API (batch/v1, Kubernetes v1.36): pure functions on plain JSON-shaped dicts.

Conditions and phases, sets of completion indexes, the rules for a status, label selectors, names, quantities and times.
What only an API server needs, defaults and the validation of specs, is in `clusters.jobapi`.
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
from multimirror.batch.errors import FieldError
from multimirror.batch.indexes import IndexFormatError, IndexSet
from multimirror.batch.labels import selector_matches, validate_label_selector
from multimirror.batch.status_rules import stored_status, validate_job_status
from multimirror.batch.types import Json

__all__ = [
    "FieldError",
    "IndexFormatError",
    "IndexSet",
    "Json",
    "Phase",
    "find_condition",
    "is_complete",
    "is_failed",
    "is_finished",
    "is_suspended",
    "may_become",
    "phase",
    "selector_matches",
    "stored_status",
    "validate_job_status",
    "validate_label_selector",
    "with_condition",
]

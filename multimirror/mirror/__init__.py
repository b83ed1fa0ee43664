"""The way back: what is to be done about one Job that has, had, or is to have a copy on a worker. Pure: `decide`."""

from multimirror.mirror.actions import (
    Action,
    CreateCopy,
    DeleteCopy,
    LookAgain,
    PatchStatus,
    Place,
    Refuse,
    SyncCopy,
    Unassign,
    Warn,
    WorkerAction,
)
from multimirror.mirror.deciding import Policy, Reach, Situation, decide
from multimirror.mirror.marks import (
    Copy,
    attempt_of,
    cluster_of,
    is_held,
    lease_of,
    origin_uid,
    queue_of,
    stock_writers,
)

__all__ = [
    "Action",
    "Copy",
    "CreateCopy",
    "DeleteCopy",
    "LookAgain",
    "PatchStatus",
    "Place",
    "Policy",
    "Reach",
    "Refuse",
    "Situation",
    "SyncCopy",
    "Unassign",
    "Warn",
    "WorkerAction",
    "attempt_of",
    "cluster_of",
    "decide",
    "is_held",
    "lease_of",
    "origin_uid",
    "queue_of",
    "stock_writers",
]

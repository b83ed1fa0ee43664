"""Worker clusters: one live connection to each, what it holds of ours, how it is, and how much it has to give."""

from multimirror.workers.cluster import Worker, WorkerHandlers
from multimirror.workers.copy_key import CopyKeyError, copy_key, find_copy_key
from multimirror.workers.followed import Followed, copies_of, trim_namespace
from multimirror.workers.kubeconfigs import trim_secret
from multimirror.workers.manager import Workers
from multimirror.workers.options import Heartbeat, WorkerOptions
from multimirror.workers.probe import identity_of
from multimirror.workers.renewal import TokenRenewal
from multimirror.workers.session import NotFollowed, Session
from multimirror.workers.state import Contact, TokenState, WorkerState, conditions, merged_conditions, out_of_reach

__all__ = [
    "Contact",
    "CopyKeyError",
    "Followed",
    "Heartbeat",
    "NotFollowed",
    "Session",
    "TokenRenewal",
    "TokenState",
    "Worker",
    "WorkerHandlers",
    "WorkerOptions",
    "WorkerState",
    "Workers",
    "conditions",
    "copies_of",
    "copy_key",
    "find_copy_key",
    "identity_of",
    "merged_conditions",
    "out_of_reach",
    "trim_namespace",
    "trim_secret",
]

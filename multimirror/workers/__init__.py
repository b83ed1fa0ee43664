"""Worker clusters: one live connection to each, what it holds of ours, how it is, and how much room it has."""

from multimirror.workers.checking import JOBS, NAMESPACES, identity_of, trim_namespace
from multimirror.workers.following import Access, Workers, disconnected_at
from multimirror.workers.session import Session
from multimirror.workers.state import WorkerState, conditions, merged_conditions
from multimirror.workers.worker import Listener, Pulse, Worker

__all__ = [
    "JOBS",
    "NAMESPACES",
    "Access",
    "Listener",
    "Pulse",
    "Session",
    "Worker",
    "WorkerState",
    "Workers",
    "conditions",
    "disconnected_at",
    "identity_of",
    "merged_conditions",
    "trim_namespace",
]

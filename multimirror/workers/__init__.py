"""Worker clusters: one live connection to each, what it holds of ours, how it is, and how much room it has."""

from multimirror.workers.cluster import Listener, Pulse, Worker
from multimirror.workers.manager import Access, Workers, disconnected_at
from multimirror.workers.probe import identity_of, trim_namespace
from multimirror.workers.session import Session
from multimirror.workers.state import WorkerState, conditions, merged_conditions

__all__ = [
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

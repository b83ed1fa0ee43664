"""The controller runtime: everything between a reconcile function and an API server. It knows no Job.

What nearly every user needs is here; the rest is in the modules: `errors`, `events`, `health`, `own_writes`, `queue`,
`resources`, `serving`, `watch` and so on.
"""

from .client import Client
from .connection import Connection
from .controller import Controller, RequeueAfter
from .errors import ApiError, KubeError
from .events import EventRecorder
from .informer import Change, Informer
from .leader import LeaderElector
from .process import run
from .queue import WorkQueue
from .resource import Object, Resource, key_of

__all__ = [
    "ApiError",
    "Change",
    "Client",
    "Connection",
    "Controller",
    "EventRecorder",
    "Informer",
    "KubeError",
    "LeaderElector",
    "Object",
    "RequeueAfter",
    "Resource",
    "WorkQueue",
    "key_of",
    "run",
]

"""The controller runtime: everything between a reconcile function and an API server. It knows no Job."""

from .client import Client, ObjectList
from .connection import Connection
from .controller import Controller, Reconcile, RequeueAfter, TerminalError
from .errors import (
    AlreadyExists,
    ApiError,
    BadAnswer,
    BadRequest,
    Cause,
    ConfigError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    LeadershipLost,
    NotFound,
    ServerError,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from .informer import Change, Informer, drop_managed_fields
from .informers import Informers
from .queue import BULK, LIVE, QueueClosed, WorkQueue
from .resource import Object, Resource, key_of, split_key
from .transport import Response
from .watch import WatchEvent

__all__ = [
    "BULK",
    "LIVE",
    "AlreadyExists",
    "ApiError",
    "BadAnswer",
    "BadRequest",
    "Cause",
    "Change",
    "Client",
    "ConfigError",
    "Conflict",
    "Connection",
    "Controller",
    "Forbidden",
    "Gone",
    "Informer",
    "Informers",
    "Invalid",
    "KubeError",
    "LeadershipLost",
    "NotFound",
    "Object",
    "ObjectList",
    "QueueClosed",
    "Reconcile",
    "RequeueAfter",
    "Resource",
    "Response",
    "ServerError",
    "TerminalError",
    "TimedOut",
    "TooManyRequests",
    "Unauthorized",
    "Unreachable",
    "WatchEvent",
    "WorkQueue",
    "drop_managed_fields",
    "key_of",
    "split_key",
]

"""The controller runtime: everything between a reconcile function and an API server. It knows no Job."""

from .client import Client, ObjectList
from .connection import Connection
from .controller import Controller, NotYet, Reconcile, RequeueAfter, TerminalError
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
from .events import EVENTS, EventRecorder
from .health import HealthServer
from .informer import Change, Informer
from .informers import Informers
from .leader import LeaderElector
from .logs import configure_logging
from .own_writes import OwnWrites
from .process import run
from .queue import BULK, LIVE, QueueClosed, WorkQueue
from .resource import Object, Resource, key_of, split_key
from .serving import Service, serve
from .transport import Response
from .trimming import compact, drop_managed_fields
from .watch import WatchEvent

__all__ = [
    "BULK",
    "EVENTS",
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
    "EventRecorder",
    "Forbidden",
    "Gone",
    "HealthServer",
    "Informer",
    "Informers",
    "Invalid",
    "KubeError",
    "LeaderElector",
    "LeadershipLost",
    "NotFound",
    "NotYet",
    "Object",
    "ObjectList",
    "OwnWrites",
    "QueueClosed",
    "Reconcile",
    "RequeueAfter",
    "Resource",
    "Response",
    "ServerError",
    "Service",
    "TerminalError",
    "TimedOut",
    "TooManyRequests",
    "Unauthorized",
    "Unreachable",
    "WatchEvent",
    "WorkQueue",
    "compact",
    "configure_logging",
    "drop_managed_fields",
    "key_of",
    "run",
    "serve",
    "split_key",
]

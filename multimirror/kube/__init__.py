"""The controller runtime: everything between a reconcile function and an API server. It knows no Job."""

from .client import Client, ObjectList
from .connection import Connection
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
from .resource import Object, Resource, key_of, split_key
from .transport import Response
from .watch import WatchEvent

__all__ = [
    "AlreadyExists",
    "ApiError",
    "BadAnswer",
    "BadRequest",
    "Cause",
    "Client",
    "ConfigError",
    "Conflict",
    "Connection",
    "Forbidden",
    "Gone",
    "Invalid",
    "KubeError",
    "LeadershipLost",
    "NotFound",
    "Object",
    "ObjectList",
    "Resource",
    "Response",
    "ServerError",
    "TimedOut",
    "TooManyRequests",
    "Unauthorized",
    "Unreachable",
    "WatchEvent",
    "key_of",
    "split_key",
]

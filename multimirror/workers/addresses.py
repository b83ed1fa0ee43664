"""Why the dispatcher cannot use a worker, and by which address it was tried, in the words of a condition. Pure.

It may be another one than that by which people do: `join` records theirs, so that a condition can say which of the two
fails, and what to do about it.
"""

from collections.abc import Mapping
from typing import Any, Final

from multimirror.kube import ApiError
from multimirror.kube.errors import TimedOut, Unreachable
from multimirror.workers.state import ANSWERED
from multimirror.workers.tokens import JOINED_BY_ANNOTATION

_LONGEST: Final = 512


def joined_by(secret: Mapping[str, Any] | None) -> str:
    """What join has written beside a worker's kubeconfig; empty: nothing."""
    annotations = ((secret or {}).get("metadata") or {}).get("annotations") or {}
    value = annotations.get(JOINED_BY_ANNOTATION)
    return value if isinstance(value, str) and len(value) <= _LONGEST and value.isprintable() else ""


def why_not_connected(error: ApiError | TimeoutError) -> tuple[str, str]:
    """Reason and message. A server that answers is there, and says itself what is wrong: it may just be starting."""
    if not isinstance(error, ApiError):
        return "TimedOut", "no answer in time"
    reason = type(error).__name__
    if reason not in ANSWERED or not error.status:
        return reason, str(error)
    how = "is not ready yet" if error.status >= 500 or error.status == 429 else "refuses"
    said = " ".join(part for part in (str(error.status), error.reason) if part)
    return reason, f"it answers, and {how} ({said}: {error.message})"


def failure_in_words(worker: str, server: str, joined_by: str, error: ApiError | TimeoutError) -> str:
    """Why a worker is not connected; where it cannot be reached, by which address, and whose that is."""
    _, message = why_not_connected(error)
    if not isinstance(error, (Unreachable, TimedOut, TimeoutError)):
        return message
    if server not in message:
        message += f" at {server}"
    if not joined_by:
        return message
    if joined_by != server:
        return f"{message}; that address was given with `join --server`, the worker was joined by {joined_by}"
    remedy = f"`multimirror join {worker} --kubeconfig ... --server URL` names another one for the dispatcher"
    return f"{message}; that address is the one by which the worker was joined: {remedy}"

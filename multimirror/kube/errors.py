"""Everything that can go wrong between us and an API server, as one tree.

    KubeError
    ├── ConfigError             a kubeconfig that cannot or must not be used; names the field
    ├── LeadershipLost          a write was stopped because leadership cannot be proved any more
    └── ApiError                a request did not give what was asked for; names the cluster
        ├── BadRequest          400
        ├── Unauthorized        401
        ├── Forbidden           403
        ├── NotFound            404
        ├── Conflict            409, somebody else wrote first
        ├── AlreadyExists       409 on create
        ├── Gone                410, the resourceVersion or continue token is too old
        ├── Invalid             422, with `causes`, field by field
        ├── TooManyRequests     429, with `retry_after`
        ├── ServerError         5xx
        ├── BadAnswer           not the API: HTML, a redirect, broken JSON
        ├── OverBudget          more, or larger, than such an answer can honestly be
        ├── Unreachable         no connection, or it broke
        └── TimedOut            the deadline passed

`outcome_unknown` is the question to ask after a failed write: true means that the write may have taken effect (the
request was on its way when things went wrong, or the server failed while working on it), so the caller has to look
before it repeats it. It is always false for reads and whenever the server certainly refused.
"""

import http
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import orjson

_LONGEST_MESSAGE: Final = 1000  # a server's message is shown to people; a page of HTML is not
_LONGEST_RETRY_AFTER: Final = 300.0  # whoever asks for more patience is asked again all the same
_MOST_CAUSES: Final = 100


class KubeError(Exception):
    """The root of everything that this package raises on purpose."""


class ConfigError(KubeError):
    """A kubeconfig that cannot or must not be used. `field` says where, the text says what to do about it."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class LeadershipLost(KubeError):  # noqa: N818 - reads better where it is caught
    """A write was stopped: this process is not, or can no longer prove to be, the leader."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why an object was refused."""

    reason: str
    field: str
    message: str


class ApiError(KubeError):
    """A request that did not give what was asked for."""

    code: ClassVar[int] = 0

    def __init__(
        self,
        message: str,
        *,
        cluster: str = "",
        status: int = 0,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        outcome_unknown: bool = False,
        retry_after: float | None = None,
    ) -> None:
        message = printable(message)
        super().__init__(f"cluster {cluster}: {message}" if cluster else message)
        self.message = message
        self.cluster = cluster
        self.status = status or self.code
        self.reason = reason
        self.details: Mapping[str, Any] = details or {}
        self.outcome_unknown = outcome_unknown
        self.retry_after = retry_after

    @property
    def causes(self) -> list[Cause]:
        """Field by field, what the server objected to."""
        found = self.details.get("causes")
        return [
            Cause(_text(cause.get("reason")), _text(cause.get("field")), _text(cause.get("message")))
            for cause in (found[:_MOST_CAUSES] if isinstance(found, list) else ())
            if isinstance(cause, dict)
        ]


class BadRequest(ApiError):  # noqa: N818 - the names are the API's own
    """The server could not make sense of the request."""

    code = 400


class Unauthorized(ApiError):  # noqa: N818
    """The credential is missing, wrong or expired."""

    code = 401


class Forbidden(ApiError):  # noqa: N818
    """Known, but not allowed; also a quota or an admission policy that said no."""

    code = 403


class NotFound(ApiError):  # noqa: N818
    """There is no such object, or no such kind."""

    code = 404


class Conflict(ApiError):  # noqa: N818
    """Somebody else wrote first, or a precondition does not hold."""

    code = 409


class AlreadyExists(ApiError):  # noqa: N818
    """An object of that name is there already."""

    code = 409


class Gone(ApiError):  # noqa: N818
    """The resourceVersion (or continue token) is too old: start again from a list."""

    code = 410


class Invalid(ApiError):  # noqa: N818
    """The object breaks the rules of its kind; see `causes`."""

    code = 422


class TooManyRequests(ApiError):  # noqa: N818
    """The server wants us to wait (`retry_after` seconds), or an eviction is not possible now."""

    code = 429


class ServerError(ApiError):
    """The server failed. After a write: unknown whether it took effect."""

    code = 500


class BadAnswer(ApiError):  # noqa: N818
    """Something answered that does not speak the Kubernetes API."""


class OverBudget(ApiError):  # noqa: N818
    """It sent more than what was asked for can honestly be (see budget.py)."""


class Unreachable(ApiError):  # noqa: N818
    """No connection could be made, or it broke."""


class TimedOut(ApiError):  # noqa: N818
    """The deadline passed before the answer came."""


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    kind.code: kind
    for kind in (BadRequest, Unauthorized, Forbidden, NotFound, Conflict, Gone, Invalid, TooManyRequests)
}
_BY_REASON: Final[dict[str, type[ApiError]]] = {"AlreadyExists": AlreadyExists, "Expired": Gone, "Gone": Gone}


def error_from_status(status: Mapping[str, Any], *, cluster: str, write: bool = False) -> ApiError:
    """The typed error for a `Status` object, from an answer's body or from an ERROR event of a watch.

    Whoever sent it may have put anything into it.
    """
    given = status.get("code")
    code = given if isinstance(given, int) and 100 <= given < 1000 else 500
    reason = _text(status.get("reason"))
    found = status.get("details")
    details = found if isinstance(found, dict) else {}
    kind = _BY_REASON.get(reason) or _BY_STATUS.get(code) or (ServerError if code >= 500 else ApiError)
    after = details.get("retryAfterSeconds")
    return kind(
        _text(status.get("message")) or reason or _phrase(code),
        cluster=cluster,
        status=code,
        reason=reason,
        details=details,
        outcome_unknown=write and code >= 500,
        retry_after=_patience(after) if isinstance(after, int | float) and after else None,
    )


def error_from_answer(
    code: int, body: bytes, *, cluster: str, url: str, write: bool, retry_after: str | None = None
) -> ApiError:
    """The typed error for an HTTP answer that is not a success."""
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        status = None
    after = _seconds(retry_after)
    if isinstance(status, dict) and status.get("kind") == "Status":
        error = error_from_status({"code": code} | status, cluster=cluster, write=write)
        error.retry_after = after if after is not None else error.retry_after
        return error
    # Load balancers and proxies answer for the server in their own words.
    text = " ".join(body[:200].decode("utf-8", "replace").split())
    kind = _BY_STATUS.get(code) or (ServerError if code >= 500 else BadAnswer)
    message = f"{url} answered {code} {_phrase(code)}" + (f": {text}" if text else "")
    return kind(message, cluster=cluster, status=code, outcome_unknown=write and code >= 500, retry_after=after)


def printable(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """What a server said, fit for logs, statuses and terminals: nothing in it moves a cursor or breaks a line."""
    if len(text) > longest:
        text = text[:longest] + "..."
    return text if text.isprintable() else "".join([each if each.isprintable() else " " for each in text])


def _text(value: object) -> str:
    return printable(value) if isinstance(value, str) else ""


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds; the form with a date is not used by API servers and is ignored."""
    if retry_after is None or len(retry_after) > 20 or not (retry_after.isascii() and retry_after.isdigit()):
        return None
    return _patience(int(retry_after))


def _patience(seconds: float) -> float:
    return min(max(0.0, float(seconds)), _LONGEST_RETRY_AFTER)


def _phrase(code: int) -> str:
    try:
        return http.HTTPStatus(code).phrase
    except ValueError:
        return "unknown status"

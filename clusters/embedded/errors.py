"""Failures as API clients see them: one exception that carries a Status body, and a maker for each reason.

The texts are the ones that kubectl and client libraries print or match on, so they follow Kubernetes word for word.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from multimirror.batch import FieldError
from multimirror.batch.errors import quote


class StatusError(Exception):
    """A request that failed; `status` is the body to answer with."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details, self.headers = code, reason, message, details, headers
        self.metadata = metadata or {}

    @property
    def status(self) -> dict[str, Any]:
        """The Status object."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": self.metadata, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def _about(group: str, plural: str, name: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": plural}
    return {key: value for key, value in details.items() if value}


def qualified(group: str, plural: str) -> str:
    """`jobs.batch`, or `pods`."""
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> StatusError:
    """No object of that name."""
    message = f'{qualified(group, plural)} "{name}" not found'
    return StatusError(404, "NotFound", message, _about(group, plural, name))


def no_such_path() -> StatusError:
    """Nothing is served at that address."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str) -> StatusError:
    """The name is taken."""
    message = f'{qualified(group, plural)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _about(group, plural, name))


def being_deleted(group: str, plural: str, name: str) -> StatusError:
    """The name is taken by an object that is on its way out."""
    message = f'object is being deleted: {qualified(group, plural)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _about(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    """The object is not what the client thinks it is."""
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _about(group, plural, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def apply_conflict(message: str, causes: list[dict[str, Any]]) -> StatusError:
    """Another manager owns what the apply changes."""
    return StatusError(409, "Conflict", message, {"causes": causes})


def bad_request(message: str) -> StatusError:
    """The request itself makes no sense."""
    return StatusError(400, "BadRequest", message)


def invalid(group: str, kind: str, name: str, problems: Sequence[FieldError]) -> StatusError:
    """The object breaks rules."""
    texts = list(dict.fromkeys(str(problem) for problem in problems))
    why = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _about(group, kind, name)
    if problems:
        details["causes"] = [{"reason": each.reason, "message": each.message, "field": each.field} for each in problems]
    return StatusError(422, "Invalid", f"{qualified(group, kind)} {quote(name)} is invalid: {why}", details)


def forbidden(group: str, plural: str, name: str, why: str, causes: list[dict[str, Any]] | None = None) -> StatusError:
    """Understood, and refused."""
    details = _about(group, plural, name)
    if causes:
        details["causes"] = causes
    return StatusError(403, "Forbidden", f'{qualified(group, plural)} "{name}" is forbidden: {why}', details)


def method_not_allowed() -> StatusError:
    """The resource has no such verb."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    """A body in a language that this server does not read."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", message)


def not_acceptable() -> StatusError:
    """An answer in a language that this server does not speak."""
    message = "406: Not Acceptable\n\nAvailable representations: application/json"
    return StatusError(406, "NotAcceptable", message)


def gone(message: str, token: str = "") -> StatusError:
    """The history that was asked for is no more; `token` continues a list from now."""
    return StatusError(410, "Expired", message, metadata={"continue": token} if token else None)


def unauthorized() -> StatusError:
    """No token, or a wrong one."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def internal(message: str) -> StatusError:
    """Not the client's fault."""
    causes = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", causes)


def future_version(asked: int, current: int) -> StatusError:
    """A resourceVersion that this server has not reached."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Too large resource version: {asked}, current: {current}"
    details = {"causes": [cause], "retryAfterSeconds": 1}
    return StatusError(504, "Timeout", message, details, headers=(("Retry-After", "1"),))

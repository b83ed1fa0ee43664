"""One request on one resource, as the verbs see it."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import orjson

from clusters.embedded import errors
from clusters.embedded.http import Request, Response
from clusters.embedded.kinds import Kind
from clusters.embedded.schemas import Shape
from clusters.embedded.store import Item
from multimirror.batch.errors import not_supported


@dataclass(slots=True)
class Context:
    """What was asked of which resource, and what the client shall be warned of."""

    request: Request
    kind: Kind
    namespace: str | None = None
    name: str | None = None
    subresource: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def dry_run(self) -> bool:
        """Whether nothing shall be kept."""
        value = self.request.query.get("dryRun")
        if value is None or value == "":
            return False
        if value != "All":
            problem = not_supported("dryRun", [value], ("All",))
            raise errors.invalid("meta.k8s.io", "CreateOptions", "", [problem])
        return True

    @property
    def body_shape(self) -> Shape | None:
        """What a body in protocol buffers is read by; custom resources have none."""
        return None if self.kind.custom else self.kind.shape

    @property
    def key(self) -> str:
        """The key of the object that the address names."""
        assert self.name is not None
        return self.kind.key(self.namespace, self.name)

    def item(self) -> Item:
        """The stored object that the address names."""
        item = self.kind.table.get(self.key)
        if item is None:
            raise errors.not_found(self.kind.group, self.kind.plural, self.name or "")
        return item

    def respond(self, status: int, data: bytes) -> Response:
        """An object's bytes as the answer, with the warnings."""
        return Response(status, data, headers=warning_headers(self.warnings))


def warning_headers(warnings: list[str]) -> tuple[tuple[str, str], ...]:
    """Warnings as headers that kubectl prints."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in dict.fromkeys(warnings))
    return tuple(("Warning", f'299 - "{text}"') for text in quoted)


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and identity, replaceable in tests."""

    time: Callable[[], float] = time.time
    uid: Callable[[], str] = lambda: str(uuid.uuid4())

    def now(self, offset: float = 0) -> str:
        """The time in whole seconds, as Kubernetes writes it."""
        return datetime.fromtimestamp(self.time() + offset, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_served(kind: Kind, item: Item) -> bytes:
    """An item's bytes in the version that was asked for."""
    if item.data.startswith(kind.prefix):
        return item.data
    if kind.from_stored:
        return orjson.dumps(kind.from_stored(item.decode()))
    _, _, rest = item.data.partition(b'"metadata"')
    return kind.prefix + b'"metadata"' + rest

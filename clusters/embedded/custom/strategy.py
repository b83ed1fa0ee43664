"""Custom resources: what the server does to an object whose kind a CRD defines."""

from collections.abc import Mapping
from typing import Any

from clusters.embedded.custom.jsonpath import find
from clusters.embedded.custom.structural import Schema, apply_defaults, prune, validate
from clusters.embedded.kinds import Strategy
from clusters.embedded.schemas import Findings, Struct, builtin, clean
from clusters.embedded.store import Object
from multimirror.batch import FieldError

_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class CustomResources(Strategy):
    """One version of a custom kind."""

    counts_generation = True
    unconditional_update = False

    def __init__(self, schema: Schema, *, status: bool, selectable: tuple[str, ...] = ()) -> None:
        self._schema = schema
        self.has_status = status  # type: ignore[misc]  # a CRD decides it for its kind, so it is the instance's
        self.selectable = frozenset(path.removeprefix(".") for path in selectable)  # type: ignore[misc]  # the same
        self._metadata: Struct = builtin().struct(_METADATA)

    def pruned(self, obj: Object, unknown: list[str]) -> Object:
        """The object as the schema has it. Raises MismatchError for metadata of a wrong shape."""
        kept: Object = prune(obj, self._schema, unknown, root=True)
        findings = Findings()
        kept["metadata"] = clean(obj.get("metadata") or {}, self._metadata, findings, (None, "metadata"))
        unknown += findings.unknown
        return kept

    def fields(self, obj: Object) -> Mapping[str, str]:
        """By the fields that the CRD makes selectable."""
        return {path: _text(next(iter(find(obj, f".{path}")), "")) for path in self.selectable}

    def default(self, obj: Object) -> Object:
        """The schema's defaults."""
        apply_defaults(obj, self._schema)
        return obj

    def spec_changed(self, new: Object, old: Object) -> bool:
        """Everything but metadata, and status where it has an endpoint of its own, is the spec."""
        ignored = {"metadata", "apiVersion", "kind", *(("status",) if self.has_status else ())}
        return _without(new, ignored) != _without(old, ignored)

    def prepare_status(self, new: Object, old: Object) -> Object:
        """The status endpoint changes the status alone."""
        kept = super().prepare_status(new, old)
        return {**kept, "metadata": dict(old["metadata"])}

    def reset_fields(self, subresource: str) -> tuple[tuple[str, ...], ...]:
        """The status endpoint owns the status alone."""
        if subresource == "status":
            return (("f:metadata",), ("f:spec",))
        return super().reset_fields(subresource)

    def validate_create(self, obj: Object) -> list[FieldError]:
        """By the schema."""
        return validate(obj, self._schema, root=True)

    def status_problems(self, new: Object, old: Object) -> list[FieldError]:
        """A status is held to the schema too."""
        return super().status_problems(new, old) + self.validate_create(new)


def _without(obj: Object, ignored: set[str]) -> Object:
    return {key: value for key, value in obj.items() if key not in ignored}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)

"""managedFields: who set which field last, kept with every write.

A write by create, update or patch takes the fields that it adds or changes away from everybody else, and gives up those
that it removes. Apply has its own rules (applying.py) and uses the entries kept here. Fields that the server itself
decides are nobody's.
"""

from collections.abc import Iterable
from typing import Any, Final

from clusters.embedded.context import Clock, Context
from clusters.embedded.fields.comparing import changed, removed
from clusters.embedded.fields.sets import FieldSet, difference, union, without_subtree
from clusters.embedded.store import Object

Entry = dict[str, Any]

_SERVERS: Final = tuple(
    ("f:metadata", f"f:{name}")
    for name in (
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    )
)
_TYPE: Final = (("f:apiVersion",), ("f:kind",))
_MOST_UPDATERS: Final = 10


def manager_of(ctx: Context) -> str:
    """Whom a request's changes belong to: `fieldManager`, or the client's program."""
    named = ctx.request.query.get("fieldManager")
    if named:
        return named
    agent = ctx.request.headers.get("user-agent", "")
    return agent.partition("/")[0][:128] or "unknown"


def identity(entry: Entry) -> tuple[str, str, str, str]:
    """What makes an entry the same one."""
    return (
        entry.get("manager", ""),
        entry.get("operation", ""),
        entry.get("apiVersion", ""),
        entry.get("subresource", ""),
    )


def stripped(fields: FieldSet, reset: Iterable[tuple[str, ...]] = ()) -> FieldSet:
    """Without what nobody owns, and without what this endpoint does not change."""
    for path in (*_TYPE, *_SERVERS, *reset):
        if path[0] in fields:
            fields = without_subtree(fields, path)
    return fields


class Ownership:
    """Keeps the entries up to date."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def record(self, ctx: Context, new: Object, old: Object | None, sent: list[Entry] | None = None) -> None:
        """Write down a create, update or patch; `sent` is the record as the client sent it."""
        metadata = new["metadata"]
        entries: list[Entry] = (old or {}).get("metadata", {}).get("managedFields") or []
        if sent in ([{}], []):
            entries = []  # a client may wipe the record on purpose
        if old is not None and _same_but_entries(new, old):
            keep_entries(metadata, entries)
            return
        shape = ctx.kind.shape
        before = old if old is not None else {}
        reset = ctx.kind.strategy.reset_fields(ctx.subresource)
        taken = stripped(changed(_plain(new), _plain(before), shape), reset)
        given = stripped(removed(_plain(new), _plain(before), shape)) if old is not None else {}
        mine = {
            "manager": manager_of(ctx),
            "operation": "Update",
            "apiVersion": ctx.kind.api_version,
            "subresource": ctx.subresource,
        }
        keep_entries(metadata, self.after_write(entries, mine, taken, given))

    def after_write(self, entries: list[Entry], mine: Entry, taken: FieldSet, given: FieldSet) -> list[Entry]:
        """The entries when `mine` took some fields and some are gone."""
        kept: list[Entry] = []
        found = False
        for entry in entries:
            fields = entry.get("fieldsV1") or {}
            if identity(entry) == identity(mine):
                found = True
                after = union(difference(fields, given), taken)
            else:
                after = difference(difference(fields, given), taken)
            if after == fields:
                kept.append(entry)
            elif after:
                kept.append(self.entry(mine if identity(entry) == identity(mine) else entry, after))
        if not found and taken:
            kept.append(self.entry(mine, taken))
        return capped(kept)

    def entry(self, like: Entry, fields: FieldSet) -> Entry:
        """An entry with other fields, as of now."""
        made = {"manager": like["manager"], "operation": like["operation"], "apiVersion": like["apiVersion"]}
        made |= {"time": self._clock.now(), "fieldsType": "FieldsV1", "fieldsV1": fields}
        if like.get("subresource"):
            made["subresource"] = like["subresource"]
        return made


def capped(entries: list[Entry]) -> list[Entry]:
    """At most ten updaters: the oldest become one."""
    updaters = [entry for entry in entries if entry.get("operation") == "Update"]
    if len(updaters) <= _MOST_UPDATERS:
        return entries
    updaters.sort(key=lambda entry: entry.get("time", ""))
    oldest = updaters[: len(updaters) - _MOST_UPDATERS + 1]
    merged: FieldSet = {}
    for entry in oldest:
        merged = union(merged, entry.get("fieldsV1") or {})
    ancient = {**oldest[-1], "manager": "ancient-changes", "fieldsV1": merged}
    ancient.pop("subresource", None)
    return [ancient, *(entry for entry in entries if entry not in oldest)]


def keep_entries(metadata: dict[str, Any], entries: list[Entry]) -> None:
    """Put the entries into an object."""
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


def _plain(obj: Object) -> Object:
    """The object without its record and its type."""
    plain = {key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}}
    if "metadata" in plain:
        plain["metadata"] = {key: value for key, value in plain["metadata"].items() if key not in _NOT_COMPARED}
    return plain


_NOT_COMPARED: Final = frozenset({"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"})


def _same_but_entries(new: Object, old: Object) -> bool:
    return _plain(new) == _plain(old)

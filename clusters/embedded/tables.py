"""Objects as tables, which is how `kubectl get` asks for them, and as metadata alone.

Which columns a kind has, and what is in them, is in printers.py; a custom resource's come from its CRD.
"""

import re
from typing import Any, Final

import orjson

from clusters.embedded.context import Clock, Context
from clusters.embedded.http import Request, Response
from clusters.embedded.kinds import Kind
from clusters.embedded.printers import Column, Printer, printer_for
from clusters.embedded.store import Item
from clusters.embedded.watching import Encoding

_TABLE: Final = re.compile(r"as=Table(;|,|$)")
_METADATA: Final = re.compile(r"as=PartialObjectMetadata(List)?(;|,|$)")


def wants_table(request: Request) -> bool:
    """Whether the client's first wish is a table."""
    return bool(_TABLE.search(request.headers.get("accept", "").partition(",")[0]))


def wants_metadata_only(request: Request) -> bool:
    """Whether the client's first wish is metadata only."""
    return bool(_METADATA.search(request.headers.get("accept", "").partition(",")[0]))


class Tables:
    """Makes them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def answer(self, ctx: Context, items: list[Item], version: int, more: dict[str, Any]) -> Response:
        """A table of items."""
        return Response(200, self._table(ctx, items, {"resourceVersion": str(version), **more}))

    def _table(self, ctx: Context, items: list[Item], metadata: dict[str, Any], *, columns: bool = True) -> bytes:
        printer = printer_for(ctx.kind)
        include = ctx.request.query.get("includeObject", "Metadata")
        now = self._clock.time()
        table: dict[str, Any] = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        table["columnDefinitions"] = [_definition(column) for column in printer.columns] if columns else None
        table["rows"] = [self._row(ctx.kind, printer, item, include, now) for item in items]
        return orjson.dumps(table)

    def _row(self, kind: Kind, printer: Printer, item: Item, include: str, now: float) -> dict[str, Any]:
        obj = item.decode()
        row: dict[str, Any] = {"cells": printer.cells(obj, now)}
        if include == "Metadata":
            row["object"] = metadata_of(obj)
        else:
            row["object"] = obj if include == "Object" else None
        return row

    def metadata_list(self, ctx: Context, items: list[Item], version: int, more: dict[str, Any]) -> Response:
        """A PartialObjectMetadataList."""
        body: dict[str, Any] = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        body["metadata"] = {"resourceVersion": str(version), **more}
        body["items"] = [metadata_of(item.decode()) for item in items]
        return Response.json(200, body)

    def watch_encoding(self, ctx: Context) -> tuple[str, Encoding] | None:
        """How a watch's events are written, if not as plain objects."""
        if wants_metadata_only(ctx.request):
            return f"metadata {ctx.kind.api_version}", _encode_metadata
        if not wants_table(ctx.request):
            return None
        first = True

        def encode(kind: str, item: Item) -> bytes:
            nonlocal first
            if kind == "BOOKMARK":
                table = self._table(ctx, [], orjson.loads(item.data)["metadata"], columns=False)
            else:
                table = self._table(ctx, [item], {"resourceVersion": str(item.version)}, columns=first)
                first = False
            return b'{"type":"%b","object":%b}\n' % (kind.encode(), table)

        return f"table {id(encode)}", encode


def metadata_of(obj: dict[str, Any]) -> dict[str, Any]:
    """The object's metadata as an object of its own."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _encode_metadata(kind: str, item: Item) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), orjson.dumps(metadata_of(item.decode())))


def _definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }

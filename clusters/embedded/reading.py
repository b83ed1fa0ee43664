"""Reading: one object, lists in pages, and the beginning of a watch.

A list in pages is one list: every page shows the version of the first, which the continue token carries. When history
no longer reaches back so far, the token has expired and the client is told how to go on.
"""

import base64
import binascii
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from clusters.embedded import errors
from clusters.embedded.context import Context, as_served
from clusters.embedded.http import Answer, Response
from clusters.embedded.kinds import Kind
from clusters.embedded.selecting import Selection
from clusters.embedded.store import Item
from clusters.embedded.tables import Tables, metadata_of, wants_metadata_only, wants_table
from clusters.embedded.watching import Watch, Watches, WatchOptions
from multimirror.batch.errors import forbidden, invalid, not_supported


class Reader:
    """GET."""

    def __init__(self, watches: Watches, tables: Tables) -> None:
        self._watches, self._tables = watches, tables

    def get(self, ctx: Context) -> Answer:
        """One object."""
        item = ctx.item()
        version = _version(ctx)
        if version > ctx.kind.table.version:
            raise errors.future_version(version, ctx.kind.table.version)
        if wants_metadata_only(ctx.request):
            return Response.json(200, metadata_of(item.decode()))
        if wants_table(ctx.request):
            return self._tables.answer(ctx, [item], ctx.kind.table.version, {})
        return Response(200, as_served(ctx.kind, item))

    def list(self, ctx: Context) -> Answer:
        """Many objects."""
        kind, query = ctx.kind, ctx.request.query
        if "sendInitialEvents" in query:
            problem = forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
            raise errors.invalid("meta.k8s.io", "ListOptions", "", [problem])
        selection = Selection.parse(ctx)
        limit = _number(query.get("limit"))
        version, after = self._position(ctx)
        if not after and not limit and not version:
            items: Iterable[Item] = kind.table.scan(selection.prefix)
        else:
            items = self._scan_at(ctx, selection.prefix, version, after)
        if selection.test is not None:
            items = filter(selection.test, items)
        page = list(itertools.islice(items, limit or None))
        shown = version or kind.table.version
        more = _more(page, items, limit, shown, selection)
        if wants_table(ctx.request):
            return self._tables.answer(ctx, page, shown, more)
        if wants_metadata_only(ctx.request):
            return self._tables.metadata_list(ctx, page, shown, more)
        return Response(200, encode_list(kind, page, shown, more))

    def _position(self, ctx: Context) -> tuple[int, str]:
        """The version to list at (0: now) and the key behind which to go on."""
        query, current = ctx.request.query, ctx.kind.table.version
        match, token = query.get("resourceVersionMatch", ""), query.get("continue")
        version = _version(ctx)
        if match:
            _check_match(match, query.get("resourceVersion", ""), token)
        if token:
            if query.get("resourceVersion", "") not in {"", "0"}:
                raise errors.bad_request("specifying resource version is not allowed when using continue")
            return _decode_token(token, current)
        if version > current:
            raise errors.future_version(version, current)
        if match == "Exact" or (version and not match and query.get("limit") and version != current):
            return version, ""
        return 0, ""

    def _scan_at(self, ctx: Context, prefix: str, version: int, after: str) -> Iterator[Item]:
        table = ctx.kind.table
        if not version:
            return table.scan(prefix, after)
        try:
            return table.scan_at(version, prefix, after)
        except errors.StatusError:
            if not after:
                raise
            raise errors.gone(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter, or use the continue token in this response to retrieve the "
                "remainder of the results. Continuing with the provided token results in an inconsistent list - "
                "objects that were created, modified, or deleted between the time the first chunk was returned and "
                "now may show up in the list.",
                _encode_token(-1, after),
            ) from None

    def watch(self, ctx: Context) -> Answer:
        """What changes from now on, or from a version on."""
        query = ctx.request.query
        match, initial = query.get("resourceVersionMatch", ""), query.get("sendInitialEvents")
        problems = []
        if initial is None and match:
            text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            problems.append(forbidden("resourceVersionMatch", text))
        elif initial is not None and match != "NotOlderThan":
            text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            problems.append(forbidden("resourceVersionMatch", text))
        if problems:
            raise errors.invalid("meta.k8s.io", "ListOptions", "", problems)
        options = WatchOptions(
            version=_version(ctx, watch=True),
            bookmarks=ctx.request.flag("allowWatchBookmarks"),
            initial=ctx.request.flag("sendInitialEvents") if initial is not None else None,
            timeout=_number(query.get("timeoutSeconds")),
            encoding=self._tables.watch_encoding(ctx),
        )
        return Watch(self._watches, ctx.kind, Selection.parse(ctx), options)


def encode_list(kind: Kind, items: list[Item], version: int, more: dict[str, Any]) -> bytes:
    """A list's bytes, out of its items' bytes."""
    metadata = orjson.dumps({"resourceVersion": str(version), **more})
    head = b'{"kind":"%b","apiVersion":"%b","metadata":%b,"items":[' % (
        f"{kind.kind}List".encode(),
        kind.api_version.encode(),
        metadata,
    )
    if kind.custom or not kind.storage:  # converted, or by custom to be shown with its type
        body = b",".join([as_served(kind, item) for item in items])
    elif items:
        # The items of a built-in list do not repeat their type.
        skip = len(kind.prefix)
        body = b"{" + b",{".join([item.data[skip:] for item in items])
    else:
        body = b""
    return b"".join((head, body, b"]}"))


def _more(page: list[Item], rest: Iterable[Item], limit: int, version: int, selection: Selection) -> dict[str, Any]:
    if not limit or len(page) < limit:
        return {}
    remaining = sum(1 for _ in rest)
    if not remaining:
        return {}
    more: dict[str, Any] = {"continue": _encode_token(version, page[-1].key)}
    if selection.test is None:
        more["remainingItemCount"] = remaining
    return more


def _encode_token(version: int, after: str) -> str:
    text = orjson.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": after})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _decode_token(token: str, current: int) -> tuple[int, str]:
    try:
        decoded = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, after = int(decoded["rv"]), str(decoded["start"])
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise errors.bad_request("continue key is not valid: illegal base64 data") from None
    return (version if version > 0 else current), after


def _version(ctx: Context, *, watch: bool = False) -> int:
    text = ctx.request.query.get("resourceVersion", "")
    if not text:
        return 0
    if not text.isdigit():
        problem = invalid("resourceVersion", text, f'strconv.ParseUint: parsing "{text}": invalid syntax')
        if watch:
            raise errors.StatusError(500, "", str(problem))
        raise errors.bad_request(str(problem))
    return int(text)


def _number(text: str | None) -> int:
    if not text:
        return 0
    try:
        return max(0, int(text))
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _check_match(match: str, version: str, token: str | None) -> None:
    problems = []
    if match not in {"Exact", "NotOlderThan"}:
        problems.append(not_supported("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
    elif token:
        problems.append(
            forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
        )
    elif not version:
        text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        problems.append(forbidden("resourceVersionMatch", text))
    elif match == "Exact" and version == "0":
        text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        problems.append(forbidden("resourceVersionMatch", text))
    if problems:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", problems)

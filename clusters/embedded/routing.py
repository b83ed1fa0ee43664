"""From an address to a verb on a resource."""

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Final

from clusters.embedded import errors
from clusters.embedded.context import Context
from clusters.embedded.deleting import Deleter
from clusters.embedded.http import Answer, Request
from clusters.embedded.kinds import Kinds
from clusters.embedded.reading import Reader
from clusters.embedded.writing import Writer

Result = Answer | Awaitable[Answer]
Subresource = Callable[[Context], Result]
"""What serves a subresource with a life of its own, such as a pod's log."""

_STATUS_METHODS: Final = frozenset({"GET", "PUT", "PATCH"})


@lru_cache(maxsize=1024)
def accepts_json(accept: str) -> bool:
    """Whether a client takes JSON (or a log's plain text) for an answer."""
    if not accept:
        return True
    kinds = [each.partition(";")[0].strip() for each in accept.split(",")]
    return any(each in {"application/json", "*/*", "application/*", "text/plain", "text/*"} for each in kinds)


class Router:
    """Sends a request on a resource to its verb."""

    def __init__(self, kinds: Kinds, reader: Reader, writer: Writer, deleter: Deleter) -> None:
        self._kinds, self._reader, self._writer, self._deleter = kinds, reader, writer, deleter
        self.subresources: dict[tuple[str, str, str], Subresource] = {}
        """(method, resource, subresource) to what serves it."""

    def locate(self, request: Request) -> Context:
        """The resource that an address names. Raises NotFound."""
        parts = request.path.split("/")  # "", "api", "v1", ... or "", "apis", group, version, ...
        if parts[-1] == "":
            parts.pop()
        if len(parts) > 3 and parts[1] == "api":
            group, version, rest = "", parts[2], parts[3:]
        elif len(parts) > 4 and parts[1] == "apis":
            group, version, rest = parts[2], parts[3], parts[4:]
        else:
            raise errors.no_such_path()
        if rest[0] == "watch" and len(rest) > 1:
            rest = rest[1:]
            request.query["watch"] = "true"
        namespace: str | None = None
        if (
            rest[0] == "namespaces"
            and len(rest) > 2
            and not (group == "" and len(rest) == 3 and rest[2] in {"status", "finalize"})
        ):
            namespace, rest = rest[1], rest[2:]
        kind = self._kinds.find(group, version, rest[0])
        if kind is None or len(rest) > 3 or (namespace is not None and not kind.namespaced):
            raise errors.no_such_path()
        name = rest[1] if len(rest) > 1 else None
        if kind.namespaced and namespace is None and name is not None:
            raise errors.no_such_path()
        subresource = rest[2] if len(rest) > 2 else ""
        if subresource and subresource not in kind.subresources:
            raise errors.no_such_path()
        return Context(request, kind, namespace, name, subresource)

    def route(self, request: Request) -> Result:
        """Serve a request on a resource."""
        if not accepts_json(request.headers.get("accept", "")):
            raise errors.not_acceptable()
        ctx = self.locate(request)
        if ctx.subresource:
            return self._subresource(ctx)
        return self._collection(ctx) if ctx.name is None else self._object(ctx)

    def _collection(self, ctx: Context) -> Result:
        request, verbs = ctx.request, ctx.kind.verbs
        match request.method:
            case "GET" if request.flag("watch") and "watch" in verbs:
                return self._reader.watch(ctx)
            case "GET" if "list" in verbs:
                return self._reader.list(ctx)
            case "POST" if "create" in verbs and not (ctx.kind.namespaced and ctx.namespace is None):
                return self._create(ctx)
            case "DELETE" if "deletecollection" in verbs and not (ctx.kind.namespaced and ctx.namespace is None):
                return self._deleter.delete_collection(ctx)
        raise errors.method_not_allowed()

    def _object(self, ctx: Context) -> Result:
        request, verbs = ctx.request, ctx.kind.verbs
        match request.method:
            case "GET" if request.flag("watch") and "watch" in verbs:
                return self._reader.watch(ctx)
            case "GET" if "get" in verbs:
                return self._reader.get(ctx)
            case "PUT" if "update" in verbs:
                return self._writer.update(ctx)
            case "PATCH" if "patch" in verbs:
                return self._writer.patch(ctx)
            case "DELETE" if "delete" in verbs:
                return self._deleter.delete(ctx)
        raise errors.method_not_allowed()

    def _create(self, ctx: Context) -> Result:
        special = self.subresources.get(("POST", ctx.kind.resource, ""))
        return special(ctx) if special else self._writer.create(ctx)

    def _subresource(self, ctx: Context) -> Result:
        method = ctx.request.method
        special = self.subresources.get((method, ctx.kind.resource, ctx.subresource))
        if special:
            return special(ctx)
        if ctx.subresource == "status" and method in _STATUS_METHODS:
            verbs: Mapping[str, Subresource] = {
                "GET": self._reader.get,
                "PUT": self._writer.update,
                "PATCH": self._writer.patch,
            }
            return verbs[method](ctx)
        raise errors.method_not_allowed()

"""The documents: `/openapi/v3` with one document for each group and version, and `/openapi/v2` with all in one.

They are made when first asked for, and again after the served kinds have changed.
"""

import hashlib
from typing import Any, Final

import orjson

from clusters.embedded import errors
from clusters.embedded.http import Request, Response
from clusters.embedded.kinds import Kind, Kinds
from clusters.embedded.openapi.definitions import Definitions

_INFO: Final = {"title": "Kubernetes", "version": "v1.36.4+embedded"}
_METHODS: Final = {
    "create": ("post", "post"),
    "get": ("get", "get"),
    "list": ("get", "list"),
    "update": ("put", "put"),
    "patch": ("patch", "patch"),
    "delete": ("delete", "delete"),
    "deletecollection": ("delete", "deletecollection"),
}
_ON_COLLECTION: Final = ("list", "create", "deletecollection")
_ON_OBJECT: Final = ("get", "update", "patch", "delete")
_WRITES: Final = frozenset({"create", "update", "patch"})
_PATCH_TYPES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


class OpenApi:
    """Answers with documents."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._made: dict[str, bytes] = {}
        kinds.on_change.append(self._made.clear)

    def answer(self, request: Request) -> Response | None:
        """The document at a path; None if it is no such path."""
        path = request.path.rstrip("/")
        if not path.startswith("/openapi/"):
            return None
        if (
            path == "/openapi/v2"
            and "json" not in request.headers.get("accept", "json")
            and ("*/*" not in request.headers["accept"])
        ):
            raise errors.StatusError(
                406, "NotAcceptable", "only the following media types are accepted: application/json"
            )
        body = self._made.get(path)
        if body is None:
            body = self._made[path] = orjson.dumps(self._make(path))
        return Response(200, body)

    def _make(self, path: str) -> Any:
        if path == "/openapi/v2":
            return self._document(2, [kind for kind in self._kinds if kind.served])
        if path == "/openapi/v3":
            return {"paths": {each: {"serverRelativeURL": self._address(each)} for each in self._roots()}}
        root = path.removeprefix("/openapi/v3/")
        if root not in self._roots():
            raise errors.no_such_path()
        kinds = [kind for kind in self._kinds if kind.served and _root(kind) == root]
        return self._document(3, kinds)

    def _roots(self) -> list[str]:
        return list(dict.fromkeys(_root(kind) for kind in self._kinds if kind.served))

    def _address(self, root: str) -> str:
        mark = hashlib.sha256(f"{root} {self._kinds.revision}".encode()).hexdigest().upper()
        return f"/openapi/v3/{root}?hash={mark}"

    def _document(self, version: int, kinds: list[Kind]) -> dict[str, Any]:
        definitions = Definitions(version)
        paths: dict[str, Any] = {}
        for kind in kinds:
            reference = definitions.reference(definitions.add_kind(kind))
            paths |= _paths(kind, reference, version)
        if version == 2:
            return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions.schemas}
        components = {"schemas": definitions.schemas}
        return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": components}


def _root(kind: Kind) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _paths(kind: Kind, reference: dict[str, Any], version: int) -> dict[str, Any]:
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = f"/{_root(kind)}{scope}/{kind.plural}"
    paths: dict[str, Any] = {}
    for path, verbs in ((collection, _ON_COLLECTION), (collection + "/{name}", _ON_OBJECT)):
        served = {_METHODS[verb][0]: _operation(kind, verb, reference, version) for verb in verbs if verb in kind.verbs}
        if served:
            paths[path] = served
    if "status" in kind.subresources:
        paths[collection + "/{name}/status"] = {
            _METHODS[verb][0]: _operation(kind, verb, reference, version) for verb in ("get", "update", "patch")
        }
    return paths


def _operation(kind: Kind, verb: str, reference: dict[str, Any], version: int) -> dict[str, Any]:
    names = ["dryRun", "fieldManager", "fieldValidation"] if verb in _WRITES else []
    if verb == "patch":
        names.append("force")
    text: dict[str, Any] = {"type": "string"}
    parameters = [{"name": name, "in": "query", **(text if version == 2 else {"schema": text})} for name in names]
    schema = {"schema": reference}
    content = schema if version == 2 else {"content": {"application/json": schema}}
    operation: dict[str, Any] = {
        "x-kubernetes-action": _METHODS[verb][1],
        "x-kubernetes-group-version-kind": {"group": kind.group, "kind": kind.kind, "version": kind.version},
        "parameters": parameters,
        "responses": {"200": {"description": "OK", **content}},
    }
    if verb in _WRITES:
        types = _PATCH_TYPES if verb == "patch" else ("application/json", "application/yaml")
        if version == 2:
            operation["consumes"] = list(types)
            operation["parameters"] = [{"name": "body", "in": "body", "required": True, **schema}, *parameters]
        else:
            operation["requestBody"] = {"content": dict.fromkeys(types, schema)}
    return operation

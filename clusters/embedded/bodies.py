"""Bodies of requests: JSON or YAML into objects, checked against the address that they were sent to and the kind's
shape.
"""

import contextlib
import json
from typing import Any, Final

import orjson
import yaml

from clusters.embedded import errors
from clusters.embedded.custom import CustomResources
from clusters.embedded.http import Request
from clusters.embedded.kinds import Kind
from clusters.embedded.schemas import Findings, MismatchError, Shape, Struct, clean, protobuf
from clusters.embedded.store import Object
from multimirror.batch.errors import invalid, not_supported, too_long

_ACCEPTED: Final = ("application/json", "application/yaml", protobuf.MEDIA_TYPE)
_MANAGER_LIMIT: Final = 128
_VALIDATIONS: Final = ("Ignore", "Strict", "Warn")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _PlainLoader(_Loader):  # type: ignore[misc]  # the base depends on how yaml was built
    """YAML as JSON: times stay strings."""


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def media_type(request: Request) -> str:
    """The body's media type, without parameters."""
    return request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()


def parse_yaml(text: bytes) -> Any:
    """One YAML document."""
    try:
        return yaml.load(text, Loader=_PlainLoader)  # noqa: S506 # _PlainLoader is a safe loader
    except yaml.YAMLError as error:
        raise errors.bad_request(f"error converting YAML to JSON: {error}") from error


def parse_json(text: bytes) -> Any:
    """One JSON document."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def parse_body(request: Request, shape: Shape | None = None) -> Object:
    """The object in a body; protocol buffers can be read where the shape is known."""
    match media_type(request):
        case "application/json" | "":
            body = parse_json(request.body)
        case "application/yaml":
            body = parse_yaml(request.body)
        case protobuf.MEDIA_TYPE if isinstance(shape, Struct):
            try:
                body = protobuf.decode(request.body, shape)
            except (protobuf.WireError, UnicodeDecodeError) as error:
                raise errors.bad_request(f"the body cannot be read: {error}") from error
        case _:
            raise errors.unsupported_media_type(_ACCEPTED)
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise errors.bad_request("the body must be one object")
    return body


def parse_shaped(request: Request, shape: Struct) -> Object:
    """A body that is no stored object, such as options or a review, held to its shape."""
    name = shape.name.rpartition(".")[2]
    body = parse_body(request, shape)
    try:
        kept: Object = clean(body, shape, Findings(fill=False))
    except MismatchError as error:
        raise errors.bad_request(f"the body cannot be handled as a {name}: {error}") from error
    return kept


def check_duplicates(request: Request, obj: Object, kind: Kind, warnings: list[str]) -> None:
    """Fields that a JSON body has twice; the last one counts, and the client is told as it asks to be.

    A body with as many keys as what was read from it has no duplicates: counting colons tells that in no time.
    """
    if media_type(request) != "application/json" or request.body.count(b'":') == orjson.dumps(obj).count(b'":'):
        return
    twice: list[str] = []
    _find_duplicates(json.loads(request.body, object_pairs_hook=_Pairs), "", twice)
    if twice:
        report_unknown([f'duplicate field "{path}"' for path in twice], kind, request, warnings)


class _Pairs(list[tuple[str, Any]]):
    """An object's members in order, duplicates and all."""


def _find_duplicates(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, each in value:
            where = f"{path}.{key}" if path else key
            if key in seen:
                found.append(where)
            seen.add(key)
            _find_duplicates(each, where, found)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            _find_duplicates(each, f"{path}[{index}]", found)


def check_type(obj: Object, kind: Kind) -> None:
    """The object must be of the kind that is served at this address; a built-in one need not say so."""
    if kind.custom:
        for key in ("Kind", "apiVersion"):
            if not obj.get(key[0].lower() + key[1:]):
                raise errors.bad_request(f"Object '{key}' is missing in the request body")
    found_version = obj.setdefault("apiVersion", kind.api_version) or kind.api_version
    found_kind = obj.setdefault("kind", kind.kind) or kind.kind
    if found_version != kind.api_version:
        raise errors.bad_request(
            f"the API version in the data ({found_version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    if found_kind != kind.kind and kind.custom:
        metadata = obj.get("metadata")
        name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
        raise errors.invalid(kind.group, str(found_kind), name, [invalid("kind", found_kind, f"must be {kind.kind}")])
    if found_kind != kind.kind:
        raise errors.bad_request(
            f'{found_kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"converting ({found_kind}) to ({kind.kind}): unknown conversion"
        )
    obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind


def check_address(obj: Object, kind: Kind, namespace: str | None, name: str | None) -> None:
    """Name and namespace must agree with the address; a missing namespace is taken from it."""
    metadata = obj["metadata"]
    if kind.namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
    else:
        metadata.pop("namespace", None)
    if name is not None and metadata.setdefault("name", name) != name:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
        )


def check_named(obj: Object, name: str | None) -> None:
    """A changed object must say which one it is."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        why = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        raise errors.bad_request(why)


def shaped_patch(obj: Object, kind: Kind, request: Request, warnings: list[str]) -> Object:
    """What a patch made of an object, which must still be of its kind and shape."""
    try:
        if (obj.get("kind"), obj.get("apiVersion")) != (kind.kind, kind.api_version):
            raise errors.bad_request(f"the object is no longer a {kind.kind} in version {kind.api_version}")
        return shaped(obj, kind, request, warnings)
    except errors.StatusError as error:
        if error.code != 400:
            raise
        raise errors.invalid("", "", "", [invalid("patch", orjson.dumps(obj).decode(), error.message)]) from error


def undeclared_fields(obj: Object, kind: Kind) -> list[str]:
    """The fields of an object that its kind does not have."""
    findings = Findings(fill=False)
    with contextlib.suppress(MismatchError):  # values of wrong types are told of elsewhere
        if isinstance(kind.strategy, CustomResources):
            kind.strategy.pruned(obj, findings.unknown)
        else:
            clean(obj, kind.shape, findings)
    return findings.unknown


def shaped(obj: Object, kind: Kind, request: Request, warnings: list[str], *, fill: bool = True) -> Object:
    """The object as the kind's shape has it; what is unknown becomes a warning or an error, as the request asks."""
    check_validation(request)
    if obj.get("metadata", {}) is None:
        obj = {key: value for key, value in obj.items() if key != "metadata"}
    if not isinstance(obj.get("metadata", {}), dict):
        raise errors.bad_request(_cannot(kind, "metadata must be an object"))
    findings = Findings(fill=fill)
    try:
        if isinstance(kind.strategy, CustomResources):
            kept = kind.strategy.pruned(obj, findings.unknown)
        else:
            kept = clean(obj, kind.shape, findings)
    except MismatchError as error:
        raise errors.bad_request(_cannot(kind, str(error))) from error
    if kind.to_stored:
        kept = kind.to_stored(kept)
    if findings.unknown:
        report_unknown([f'unknown field "{field}"' for field in findings.unknown], kind, request, warnings)
    kept.setdefault("metadata", {})
    return kept


def report_unknown(texts: list[str], kind: Kind, request: Request, warnings: list[str]) -> None:
    """Unknown fields: an error, warnings or silence."""
    asked = request.query.get("fieldValidation") or "Warn"
    if asked == "Strict" and request.method == "PATCH":
        problem = invalid("patch", request.body.decode(errors="replace"), "strict decoding error: " + ", ".join(texts))
        raise errors.invalid(kind.group, kind.kind, request.path.rpartition("/")[2], [problem])
    if asked == "Strict":
        raise errors.bad_request(_cannot(kind, "strict decoding error: " + ", ".join(texts)))
    if asked == "Warn":
        warnings += texts


def check_validation(request: Request) -> None:
    """`fieldValidation` must be one of three, and the name of a manager short and printable."""
    problems = []
    asked, manager = request.query.get("fieldValidation"), request.query.get("fieldManager", "")
    if len(manager.encode()) > _MANAGER_LIMIT:
        problems.append(too_long("fieldManager", _MANAGER_LIMIT))
    if not manager.isprintable():
        problems.append(invalid("fieldManager", manager, "should only contain printable characters"))
    if asked and asked not in _VALIDATIONS:
        problems.append(not_supported("fieldValidation", asked, _VALIDATIONS))
    if problems:
        options = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(request.method, "PatchOptions")
        raise errors.invalid("meta.k8s.io", options, "", problems)


def _cannot(kind: Kind, why: str) -> str:
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'

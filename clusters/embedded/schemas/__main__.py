"""Writes types.json and protobuf.json: the shape of the built-in kinds, read off a Kubernetes release.

    python -m clusters.embedded.schemas SWAGGER_JSON V3_DIRECTORY GO_SOURCE...

The OpenAPI documents tell names, types, list keys and patch strategies; the Go types tell what OpenAPI does not: which
fields vanish when they are zero (`z`) and which are there even when empty (`e`); the protocol buffers' definitions tell
the numbers of the fields on the wire. Only facts are taken, no texts.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

ROOTS: Final = (
    "core.v1: Namespace Pod Node Event Secret ConfigMap ServiceAccount Service Binding",
    "batch.v1: Job CronJob",
    "coordination.v1: Lease",
    "events.v1: Event",
    "policy.v1: Eviction",
    "scheduling.v1alpha2: Workload PodGroup",
    "rbac.v1: Role RoleBinding ClusterRole ClusterRoleBinding",
    "admissionregistration.v1: MutatingWebhookConfiguration ValidatingWebhookConfiguration ValidatingAdmissionPolicy "
    "ValidatingAdmissionPolicyBinding",
    "authentication.v1: TokenRequest TokenReview SelfSubjectReview",
    "authorization.v1: SubjectAccessReview SelfSubjectAccessReview LocalSubjectAccessReview SelfSubjectRulesReview",
)
EXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
SCALARS: Final = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    f"{META}.Time": "time",
    f"{META}.MicroTime": "microtime",
    f"{META}.FieldsV1": "any",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intstr",
    f"{EXTENSIONS}.JSON": "any",
    f"{EXTENSIONS}.JSONSchemaProps": "any",
    f"{EXTENSIONS}.JSONSchemaPropsOrArray": "any",
    f"{EXTENSIONS}.JSONSchemaPropsOrBool": "any",
    f"{EXTENSIONS}.JSONSchemaPropsOrStringArray": "any",
}
_STRUCT_SCALARS: Final = frozenset({"quantity", "time", "microtime", "intstr", "any"})
_STRUCT: Final = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD: Final = re.compile(r'^\t(\w+)\s+(\S+)\s+`[^`]*json:"([^"]*)"', re.MULTILINE)
_EMBEDDED_META: Final = re.compile(r"^\t(metav1\.)?ObjectMeta\s", re.MULTILINE)
_MESSAGE: Final = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_PROTO_FIELD: Final = re.compile(r"^  (?:optional |repeated )?([\w.<>, ]+?) (\w+) = (\d+)", re.MULTILINE)
_VALUE: Final = re.compile(r"^type (\w+) (\S+)$", re.MULTILINE)


def roots() -> list[str]:
    """The definitions to start from."""
    found = [f"{META}.{name}" for name in ("DeleteOptions", "Status")]
    found.append(f"{EXTENSIONS}.CustomResourceDefinition")
    for line in ROOTS:
        package, _, names = line.partition(": ")
        found += [f"io.k8s.api.{package}.{name}" for name in names.split()]
    return found


def go_flags(sources: list[Path]) -> dict[str, dict[str, str]]:
    """For each OpenAPI type name, the fields that are no pointers: `z` if they vanish when empty, else `e`."""
    flags: dict[str, dict[str, str]] = {}
    for source in sources:
        for file in source.rglob("types*.go"):
            package = _package(source, file.parent)
            for name, body in _STRUCT.findall(file.read_text()):
                flags[f"{package}.{name}"] = _struct_flags(body)
    return flags


def _struct_flags(body: str) -> dict[str, str]:
    found = {"metadata": "e"} if _EMBEDDED_META.search(body) else {}
    for _, kind, tag in _FIELD.findall(body):
        name, *options = tag.split(",")
        if name and name != "-" and not kind.startswith("*") and "omitzero" not in options:
            found[name] = "z" if "omitempty" in options else "e"
    return found


def _package(source: Path, folder: Path) -> str:
    module = source.name.split("@")[0]
    path = ".".join(folder.relative_to(source).parts)
    return f"io.k8s.{module}.{path}"


class Reader:
    """Walks the definitions from the roots."""

    def __init__(self, definitions: dict[str, Any], v3: dict[str, Any], flags: dict[str, dict[str, str]]) -> None:
        self.definitions, self.v3, self.flags = definitions, v3, flags
        self.types: dict[str, Any] = {}

    def visit(self, name: str) -> None:
        """Write down a type and all that it uses."""
        if name in self.types or name in SCALARS:
            return
        definition = self.definitions[name]
        entry: dict[str, Any] = {}
        self.types[name] = entry
        if definition.get("x-kubernetes-map-type") == "atomic":
            entry["atomic"] = True
        entry["fields"] = {
            field: self.field(name, field, schema, field in definition.get("required", ()))
            for field, schema in sorted(definition.get("properties", {}).items())
        }

    def field(self, owner: str, name: str, schema: dict[str, Any], required: bool) -> Any:
        """One field: its type alone, or an object when there is more to say."""
        described: dict[str, Any] = {"t": self.expression(schema)}
        kind = schema.get("x-kubernetes-list-type")
        if kind in {"set", "map"}:
            described["l"] = kind
        if "x-kubernetes-list-map-keys" in schema:
            described["k"] = schema["x-kubernetes-list-map-keys"]
        if schema.get("x-kubernetes-map-type") == "atomic":
            described["a"] = True
        strategy = schema.get("x-kubernetes-patch-strategy", "")
        if "merge" in strategy.split(","):
            described["m"] = schema.get("x-kubernetes-patch-merge-key", "")
        if "retainKeys" in strategy.split(","):
            described["r"] = True
        default = self.v3.get(owner, {}).get("properties", {}).get(name, {}).get("default")
        if default not in (None, {}, "", 0, False, []):
            described["d"] = default
        flag = self.flags.get(owner, {}).get(name)
        if flag and described["t"].startswith("#"):
            described["e"] = True  # an empty struct does not vanish
        elif flag == "z" and described["t"] not in _STRUCT_SCALARS:
            described["z"] = True
        if required:
            described["q"] = True
        return described if len(described) > 1 else described["t"]

    def expression(self, schema: dict[str, Any]) -> str:
        """A type as one word: `int32`, `#Reference`, `[]item`, `{}value`."""
        reference = schema.get("$ref") or (schema.get("allOf") or [{}])[0].get("$ref")
        if reference:
            name = reference.rsplit("/", 1)[-1]
            if name in SCALARS:
                return SCALARS[name]
            self.visit(name)
            return f"#{name}"
        match schema.get("type"):
            case "array":
                return "[]" + self.expression(schema["items"])
            case "object":
                values = schema.get("additionalProperties")
                return "{}" + self.expression(values) if values else "any"
            case "string":
                return "bytes" if schema.get("format") == "byte" else "string"
            case "integer":
                return str(schema.get("format", "int64"))
            case "boolean":
                return "bool"
            case "number":
                return "number"
        return "any"


def proto_messages(sources: list[Path]) -> dict[str, dict[str, tuple[int, str]]]:
    """For each type, its fields' numbers and types on the wire."""
    messages: dict[str, dict[str, tuple[int, str]]] = {}
    for source in sources:
        for file in source.rglob("generated.proto"):
            package = _package(source, file.parent)
            for name, body in _MESSAGE.findall(file.read_text()):
                fields = {field: (int(number), kind) for kind, field, number in _PROTO_FIELD.findall(body)}
                messages[f"{package}.{name}"] = fields
    return messages


def wire_tables(types: dict[str, Any], messages: dict[str, dict[str, tuple[int, str]]]) -> dict[str, Any]:
    """For each type, what a number on the wire means: a field, or `#Message` whose fields are the type's own."""
    tables: dict[str, Any] = {}
    pending = list(types)
    inlined: dict[str, set[str]] = {name: set(entry["fields"]) for name, entry in types.items()}
    while pending:
        name = pending.pop()
        if name in tables or name not in messages:
            continue
        table: dict[str, str] = {}
        tables[name] = table
        for field, (number, kind) in messages[name].items():
            if field in inlined[name]:
                table[str(number)] = field
                continue
            holder = next((each for each in (kind, f"{name.rsplit('.', 1)[0]}.{kind}") if each in messages), None)
            if holder is not None and not kind.startswith("."):
                table[str(number)] = f"#{holder}"
                inlined.setdefault(holder, inlined[name])
                inlined[holder] |= inlined[name] if holder not in types else set()
                pending.append(holder)
    return tables


def main(swagger: str, v3_directory: str, *sources: str) -> None:
    """Read the release, write the file."""
    definitions = json.loads(Path(swagger).read_text())["definitions"]
    v3: dict[str, Any] = {}
    for file in Path(v3_directory).glob("*.json"):
        v3 |= json.loads(file.read_text()).get("components", {}).get("schemas", {})
    reader = Reader(definitions, v3, go_flags([Path(source) for source in sources]))
    for root in roots():
        reader.visit(root)
    _write("types.json", reader.types)
    _write("protobuf.json", wire_tables(reader.types, proto_messages([Path(source) for source in sources])))


def _write(name: str, entries: dict[str, Any]) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(entries[key])}" for key in sorted(entries)]
    Path(__file__).with_name(name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

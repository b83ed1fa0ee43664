"""The fields of our own kinds, from their definitions."""

from collections.abc import Iterator
from typing import Any, Final

from docs.generator.markdown import code, table
from multimirror.api import crds

_OPENING: Final = """# WorkerCluster, MirrorQueue and Cohort

For whoever writes these objects. All are cluster-scoped, and exist on the management cluster only.
`kubectl explain workercluster.spec` says the same; so do `mirrorqueue.spec` and `mqc.spec`. Examples:
[queues and placement](../concepts/queues-and-placement.md), [add a worker](../how-to/add-a-worker.md).
"""


def page() -> str:
    """All kinds, field by field."""
    parts = [_OPENING]
    for crd in crds():
        names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        parts.append(f"## {names['kind']}\n")
        parts.append(
            f"`{crd['spec']['group']}/{version['name']}`, short name `{names['shortNames'][0]}`. "
            f"{schema['description']}\n"
        )
        for part in ("spec", "status"):
            parts.append(f"### {names['kind']} {part}\n")
            parts.append(table(["field", "type", "default", ""], list(_rows(schema["properties"][part], ""))))
            rules = [rule["message"] for rule in schema["properties"][part].get("x-kubernetes-validations", ())]
            if rules:
                parts.append("Rules:\n\n" + "".join(f"- {each}\n" for each in rules))
        columns = [
            [c["name"], "`-o wide`" if c.get("priority") else "", c.get("description", "")]
            for c in version["additionalPrinterColumns"]
        ]
        parts.append(f"### Columns of `kubectl get {names['plural']}`\n")
        parts.append(table(["column", "shown with", ""], columns))
    return "\n".join(parts)


def _rows(schema: dict[str, Any], path: str) -> Iterator[list[str]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        where = f"{path}.{name}".lstrip(".")
        default = code(_plain(field["default"])) if "default" in field else "**required**" if name in required else ""
        rules = [rule["message"] for rule in field.get("x-kubernetes-validations", ())]
        yield [
            code(where),
            _type(field),
            default,
            " ".join([field.get("description", ""), *(f"Rule: {r}." for r in rules)]),
        ]
        if "matchLabels" in field.get("properties", {}):
            continue  # a label selector, as everywhere in Kubernetes
        yield from _rows(field, where)
        if isinstance(field.get("items"), dict) and where != "conditions":
            yield from _rows(field["items"], f"{where}[]")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(each)}" for key, each in value.items()) or "{}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(code(str(value)) for value in field["enum"])
    if "matchLabels" in field.get("properties", {}):
        return "label selector"
    if field.get("x-kubernetes-int-or-string"):
        word = field["pattern"].strip("^$")
        return f"integer or {code(word)}" if word.isalpha() else "quantity"
    kind = str(field.get("type", "object"))
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object" and "additionalProperties" in field:
        return f"map to {_type(field['additionalProperties'])}"
    limits = [f"{word} {field[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in field]
    return " ".join([kind, *limits]) if kind == "integer" else kind

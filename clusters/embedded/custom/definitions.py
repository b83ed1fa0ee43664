"""CustomResourceDefinitions: their rules, and serving what they define.

A definition is served in the same moment in which it is stored: its conditions say so in the answer to its creation. A
definition that is deleted first deletes all its objects; it goes, and its endpoints with it, when the last of them has
gone.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final

from clusters.embedded.custom.shapes import shape_of_kind
from clusters.embedded.custom.strategy import CustomResources
from clusters.embedded.custom.wellformed import schema_problems
from clusters.embedded.kinds import Kind, Kinds, Strategy
from clusters.embedded.store import Event, Object, Table
from multimirror.batch import FieldError
from multimirror.batch.errors import invalid, not_supported, required
from multimirror.batch.names import dns_label, dns_subdomain

GROUP: Final = "apiextensions.k8s.io"
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_VERSION: Final = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STAGES: Final = {"alpha": 0, "beta": 1, None: 2}


class Definitions(Strategy):
    """What the server does to a CRD."""

    has_status = True
    counts_generation = True
    unconditional_update = False
    finalizers_on_deletion = (CLEANUP,)

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now

    def default(self, obj: Object) -> Object:
        """Names that follow from others."""
        names = obj["spec"].setdefault("names", {})
        if names.get("kind"):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")
        obj["spec"].setdefault("conversion", {"strategy": "None"})
        return obj

    def prepare_create(self, obj: Object) -> Object:
        """Accepted and established at once."""
        obj = self.default(obj)
        stored = [each.get("name", "") for each in obj["spec"].get("versions") or () if each.get("storage")]
        obj["status"] = {
            "conditions": [
                _condition("NamesAccepted", "NoConflicts", "no conflicts found", self._now()),
                _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", self._now()),
            ],
            "acceptedNames": obj["spec"]["names"],
            "storedVersions": stored,
        }
        return obj

    def prepare_update(self, new: Object, old: Object) -> Object:
        """What is stored is remembered."""
        new = super().prepare_update(new, old)
        status = dict(new.get("status") or {})
        status["acceptedNames"] = new["spec"]["names"]
        stored = list(status.get("storedVersions") or ())
        stored += [each.get("name", "") for each in new["spec"].get("versions") or () if each.get("storage")]
        status["storedVersions"] = list(dict.fromkeys(stored))
        new["status"] = status
        return new

    def mark_deleted(self, obj: Object) -> None:
        """It terminates."""
        status = dict(obj.get("status") or {})
        kept = [each for each in status.get("conditions") or () if each["type"] != "Terminating"]
        text = "CustomResource deletion is in progress"
        status["conditions"] = [*kept, _condition("Terminating", "InstanceDeletionInProgress", text, self._now())]
        obj["status"] = status

    def validate_create(self, obj: Object) -> list[FieldError]:
        """Names, versions and schemas."""
        spec = obj["spec"]
        group, names = spec.get("group", ""), spec["names"]
        problems: list[FieldError] = []
        wanted = f"{names.get('plural', '')}.{group}"
        if obj["metadata"].get("name") != wanted:
            text = 'must be spec.names.plural+"."+spec.group'
            problems.append(invalid("metadata.name", obj["metadata"].get("name", ""), text))
        if not group:
            problems.append(required("spec.group"))
        elif "." not in group:
            problems.append(invalid("spec.group", group, "should be a domain with at least one dot"))
        else:
            problems += [invalid("spec.group", group, text) for text in dns_subdomain(group)]
        if spec.get("scope") not in {"Namespaced", "Cluster"}:
            problems.append(not_supported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced")))
        problems += _name_problems(names)
        return problems + _version_problems(spec.get("versions") or [])

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        """Where and how it is served stays."""
        problems = self.validate_create(new)
        for path in (("group",), ("scope",), ("names", "plural"), ("names", "kind")):
            now, before = _at(new["spec"], path), _at(old["spec"], path)
            if now != before:
                problems.append(invalid(f"spec.{'.'.join(path)}", now, "field is immutable"))
        return problems


def _at(spec: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = spec
    for step in path:
        value = value.get(step)
    return value


def _name_problems(names: dict[str, Any]) -> list[FieldError]:
    problems: list[FieldError] = []
    for key in ("plural", "singular", "kind", "listKind"):
        value = names.get(key, "")
        if not value:
            problems.append(required(f"spec.names.{key}"))
        else:
            problems += [invalid(f"spec.names.{key}", value, text) for text in dns_label(value.lower())]
    return problems


def _version_problems(versions: list[dict[str, Any]]) -> list[FieldError]:
    field = "spec.versions"
    problems: list[FieldError] = []
    if not versions:
        problems.append(required(field, "must have at least one version"))
    if sum(bool(each.get("storage")) for each in versions) != 1:
        problems.append(
            invalid(
                field,
                [each.get("name") for each in versions],
                "must have exactly one version marked as storage version",
            )
        )
    for index, each in enumerate(versions):
        if not each.get("name"):
            problems.append(required(f"{field}[{index}].name"))
        else:
            problems += [invalid(f"{field}[{index}].name", each["name"], text) for text in dns_label(each["name"])]
        for place, column in enumerate(each.get("additionalPrinterColumns") or ()):
            where = f"{field}[{index}].additionalPrinterColumns[{place}]"
            problems += [required(f"{where}.{key}") for key in ("name", "type", "jsonPath") if not column.get(key)]
        schema = (each.get("schema") or {}).get("openAPIV3Schema")
        where = f"{field}[{index}].schema.openAPIV3Schema"
        if schema is None:
            problems.append(required(where))
        elif broken := schema_problems(schema, where):
            problems += broken
        elif not schema.get("type"):
            problems.append(required(f"{where}.type", "must not be empty at the root"))
        elif schema["type"] != "object":
            problems.append(invalid(f"{where}.type", schema["type"], "must be object at the root"))
    return problems


def _condition(name: str, reason: str, message: str, now: str) -> dict[str, str]:
    return {"type": name, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}


def version_rank(name: str) -> tuple[int, int, int, str]:
    """Sorts v1 before v1beta1 before v1alpha1, and names of another kind behind."""
    match = _VERSION.fullmatch(name)
    if not match:
        return (1, 0, 0, name)
    return (0, -_STAGES[match[2]], -int(match[1]) * 1000 - int(match[3] or 0), name)


class CustomKinds:
    """Serves what the stored definitions define."""

    def __init__(
        self,
        kinds: Kinds,
        definitions: Kind,
        delete_all: Callable[[Kind], None],
        end_watches: Callable[[Table], None],
    ) -> None:
        self._kinds, self._definitions = kinds, definitions
        self._delete_all, self._end_watches = delete_all, end_watches
        self._emptying: set[str] = set()
        for item in definitions.table.scan():
            obj = item.decode()
            self._serve(obj)
            self._check_deleted(item.key, obj)
        definitions.table.subscribers.insert(0, self._changed)

    def _changed(self, event: Event) -> None:
        obj = event.after.decode()
        spec = obj["spec"]
        if event.deleted:
            kind = self._kinds.stored(spec["group"], spec["names"]["plural"])
            self._kinds.remove(spec["group"], spec["names"]["plural"])
            if kind is not None:
                self._end_watches(kind.table)
            return
        before = event.before.decode() if event.before else {}
        if before.get("spec") != spec:
            self._serve(obj)
        self._check_deleted(event.after.key, obj)

    def _check_deleted(self, key: str, obj: Object) -> None:
        if obj["metadata"].get("deletionTimestamp") and CLEANUP in obj["metadata"].get("finalizers", ()):
            # Later: whoever hears of the deletion's mark must not hear of its end first.
            asyncio.get_running_loop().call_soon(self._empty, key, obj)

    def _serve(self, obj: Object) -> None:
        group, plural = obj["spec"]["group"], obj["spec"]["names"]["plural"]
        self._kinds.remove(group, plural)
        self._kinds.add(kinds_of(obj, self._kinds))

    def _empty(self, key: str, obj: Object) -> None:
        """Delete all objects, and then let the definition go."""
        if key in self._emptying:
            return
        kind = self._kinds.stored(obj["spec"]["group"], obj["spec"]["names"]["plural"])
        assert kind is not None

        def look(_event: Event | None = None) -> None:
            if not kind.table.items and key in self._emptying:
                self._emptying.discard(key)
                kind.table.subscribers.remove(look)
                asyncio.get_running_loop().call_soon(self._release, key)

        self._emptying.add(key)
        kind.table.subscribers.append(look)
        self._delete_all(kind)
        look()

    def _release(self, key: str) -> None:
        current = self._definitions.table.get(key)
        if current is None:
            return
        last = current.decode()
        last["metadata"]["finalizers"] = [each for each in last["metadata"]["finalizers"] if each != CLEANUP]
        if last["metadata"]["finalizers"]:
            self._definitions.table.put(key, last)
        else:
            del last["metadata"]["finalizers"]
            self._definitions.table.remove(key, last)


def kinds_of(obj: Object, kinds: Kinds) -> list[Kind]:
    """The kinds that a definition defines, one for each version that is served."""
    spec, names = obj["spec"], obj["spec"]["names"]
    versions = sorted(spec["versions"], key=lambda each: version_rank(each["name"]))
    storage = next(each["name"] for each in versions if each.get("storage"))
    made = []
    for version in versions:
        if not version.get("served") and version["name"] != storage:
            continue
        schema = version["schema"]["openAPIV3Schema"]
        status = (version.get("subresources") or {}).get("status") is not None
        selectable = tuple(each["jsonPath"] for each in version.get("selectableFields") or ())
        strategy = CustomResources(schema, status=status, selectable=selectable)
        resource = f"{names['plural']}.{spec['group']}"
        kind = Kind(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            shape=shape_of_kind(names["kind"], schema),
            table=kinds.store.table(resource, strategy.fields),
            strategy=strategy,
            namespaced=spec["scope"] == "Namespaced",
            singular=names.get("singular", ""),
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=("status",) if status else (),
            custom=True,
            columns=tuple(version.get("additionalPrinterColumns") or ()),
            storage=version["name"] == storage,
            openapi=schema,
            stored_version=f"{spec['group']}/{storage}",
            served=bool(version.get("served")),
        )
        made.append(kind)
    return made

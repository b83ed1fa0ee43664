"""Kueue's objects, read field by field.

Whatever JSON comes in, reading gives values or raises BadObject, which says where the object stands and which field is
wrong. Objects that are not Kueue's are passed over, but for PriorityClasses.

Numbers may be texts: YAML from people whom we do not know is read without numbers (multimirror.kube.yaml_text).
"""

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final, TypeVar

from multimirror.api import SpecError
from multimirror.api.reading import Fields
from multimirror.batch.names import dns_label
from multimirror.batch.quantities import QuantityError, canonical, quantity
from multimirror.cli.kueue.objects import (
    AdmissionCheck,
    Check,
    ClusterQueue,
    Cohort,
    FlavorQuota,
    KueueObjects,
    LocalQueue,
    MultiKueueConfig,
    PriorityClass,
    ResourceFlavor,
    Sourced,
)

GROUP: Final = "kueue.x-k8s.io"
SCHEDULING_GROUP: Final = "scheduling.k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")
ALPHA_TOO: Final = {"Cohort", "MultiKueueConfig", "MultiKueueCluster"}
"""They were v1alpha1 first, with the same fields."""
_WHOLE: Final = re.compile(r"-?[0-9]{1,10}", re.ASCII)
_Read = TypeVar("_Read")


class BadObject(ValueError):  # noqa: N818 - reads better where it is caught
    """An object that cannot be used. The text says where it stands, which one it is, and which field is wrong."""


class _Part(Fields):
    """Fields as Kueue writes them: an empty text is none, and numbers may be texts."""

    def word(self, key: str) -> str | None:
        value = self._value.get(key)
        return None if value is None or value == "" else self.text(key)

    def said(self, *known: str) -> tuple[str, ...]:
        """The fields other than these that say something."""
        return tuple(
            f"{self.path}.{key}"
            for key, value in self._value.items()
            if key not in known and value not in (None, {}, [])
        )

    def whole(self, key: str) -> int:
        value = self._value.get(key)
        if isinstance(value, bool) or not _WHOLE.fullmatch(str(value)) or not -(2**31) <= int(str(value)) < 2**31:
            raise self.error(key, f"must be a whole number of 32 bits, not {str(value)[:40]!r}")
        return int(str(value))

    def amount(self, key: str) -> str | None:
        """A quantity that is not negative, in its canonical form."""
        value = self._value.get(key)
        if value is None:
            return None
        try:
            text = None if isinstance(value, bool) or quantity(value) < 0 else canonical(value)
        except QuantityError:
            text = None
        if text is None:
            message = f"must be a quantity that is not negative, such as 4, 500m or 16Gi, not {str(value)[:40]!r}"
            raise self.error(key, message)
        return text

    def below(self, key: str) -> "_Part":
        value = self._value.get(key)
        return _Part({} if value is None else value, f"{self.path}.{key}")

    def each(self, key: str, read: Callable[["_Part"], _Read]) -> tuple[_Read, ...]:
        return self.items(key, lambda value, path: read(_Part(value, path)))


def read_objects(sourced: Iterable[Sourced]) -> KueueObjects:
    """What they say. Raises BadObject. Objects of others are passed over."""
    found: dict[str, dict[tuple[str, str], Any]] = {kind: {} for kind in _READERS}
    others: list[tuple[str, str]] = []
    seen: dict[tuple[str, str, str], str] = {}
    for each in sourced:
        kind, version, namespace, name = _identity(each)
        if kind not in _READERS:
            if version is not None:
                others.append((kind, name))
            continue
        key = (kind, namespace, name)
        what = f"{each.where}: {kind} {namespace + '/' if namespace else ''}{name}"
        if key in seen:
            raise BadObject(f"{what}: is there twice, first in {seen[key]}")
        seen[key] = each.where
        try:
            if kind != "PriorityClass":
                _check_version(kind, version)
            found[kind][namespace, name] = _READERS[kind](_Part(each.obj, ""), namespace, name)
        except SpecError as error:
            raise BadObject(f"{what}: {error.field.removeprefix('.')}: {error.message}") from None
    return _gathered(found, tuple(others))


def _identity(each: Sourced) -> tuple[str, str | None, str, str]:
    """Kind, version (None: not Kueue's), namespace and name."""
    try:
        obj = _Part(each.obj, "")
        api_version, kind, metadata = obj.text("apiVersion"), obj.text("kind"), obj.below("metadata")
        group, _, version = api_version.rpartition("/")
        if group != GROUP and (group, kind) != (SCHEDULING_GROUP, "PriorityClass"):
            return "", None, "", ""
        name = metadata.text("name")
        namespace = _namespace(metadata) if kind == "LocalQueue" else ""
    except SpecError as error:
        path = error.field.removeprefix(".") or "the document"
        raise BadObject(f"{each.where}: {path}: {error.message}") from None
    return kind, version if group == GROUP else None, namespace, name


def _namespace(metadata: _Part) -> str:
    """It becomes part of selectors, and of commands that people copy: no other text will do."""
    namespace = metadata.text("namespace")
    if dns_label(namespace):
        raise metadata.error("namespace", f"must be the name of a namespace, not {namespace[:40]!r}")
    return namespace


def _check_version(kind: str, version: str | None) -> None:
    if version not in VERSIONS and not (version == "v1alpha1" and kind in ALPHA_TOO):
        raise SpecError("apiVersion", f"must be {GROUP}/{' or '.join(VERSIONS)}, not {GROUP}/{version}")


def _gathered(found: dict[str, dict[tuple[str, str], Any]], others: tuple[tuple[str, str], ...]) -> KueueObjects:
    def by_name(kind: str) -> dict[str, Any]:
        return {name: obj for (_, name), obj in sorted(found[kind].items())}

    classes = {**found["WorkloadPriorityClass"], **{("", f"/{n}"): c for (_, n), c in found["PriorityClass"].items()}}
    return KueueObjects(
        cluster_queues=by_name("ClusterQueue"),
        cohorts=by_name("Cohort"),
        local_queues=tuple(queue for _, queue in sorted(found["LocalQueue"].items())),
        flavors=by_name("ResourceFlavor"),
        priority_classes=tuple(sorted(classes.values(), key=lambda each: (each.kind, each.value, each.name))),
        checks=by_name("AdmissionCheck"),
        configs=by_name("MultiKueueConfig"),
        others=others,
    )


def _cluster_queue(obj: _Part, _namespace: str, name: str) -> ClusterQueue:
    spec = obj.below("spec")
    preemption, strategy, scope = (spec.below(k) for k in ("preemption", "admissionChecksStrategy", "admissionScope"))
    borrow = preemption.below("borrowWithinCohort")
    listed = spec.items("admissionChecks", lambda value, path: Check(_name(value, path), on_flavors=False))
    known = (
        "resourceGroups", "cohort", "cohortName", "queueingStrategy", "namespaceSelector", "preemption", "stopPolicy",
        "fairSharing", "admissionChecks", "admissionChecksStrategy", "admissionScope", "flavorFungibility",
    )  # fmt: skip
    return ClusterQueue(
        name,
        cohort=spec.word("cohortName") or spec.word("cohort"),
        quotas=_quotas(spec),
        queueing_strategy=_one_of(spec, "queueingStrategy", "BestEffortFIFO", "StrictFIFO"),
        namespace_selector=spec.selector("namespaceSelector"),
        reclaim=_one_of(preemption, "reclaimWithinCohort", "Never", "LowerPriority", "Any"),
        within=_one_of(preemption, "withinClusterQueue", "Never", "LowerPriority", "LowerOrNewerEqualPriority"),
        borrow_within=_one_of(borrow, "policy", "Never", "LowerPriority"),
        fungibility=_fungibility(spec.below("flavorFungibility")),
        checks=(*listed, *strategy.each("admissionChecks", _check)),
        stop_policy=_stop_policy(spec),
        weight=_weight(spec),
        admission_mode=scope.word("admissionMode"),
        unknown=(
            *spec.said(*known),
            *preemption.said("reclaimWithinCohort", "withinClusterQueue", "borrowWithinCohort"),
        ),
    )


def _cohort(obj: _Part, _namespace: str, name: str) -> Cohort:
    spec = obj.below("spec")
    key = "parentName" if "parentName" in spec else "parent"
    if spec.word(key) == name:
        raise spec.error(key, "must not be the cohort itself: name another one, or take it out")
    return Cohort(
        name,
        parent=spec.word(key),
        quotas=_quotas(spec),
        weight=_weight(spec),
        unknown=spec.said("parent", "parentName", "resourceGroups", "fairSharing"),
    )


def _local_queue(obj: _Part, namespace: str, name: str) -> LocalQueue:
    spec = obj.below("spec")
    return LocalQueue(
        namespace,
        name,
        cluster_queue=spec.word("clusterQueue"),
        stop_policy=_stop_policy(spec),
        weight=_weight(spec),
        unknown=spec.said("clusterQueue", "stopPolicy", "fairSharing"),
    )


def _flavor(obj: _Part, _namespace: str, name: str) -> ResourceFlavor:
    spec = obj.below("spec")
    return ResourceFlavor(name, node_labels=spec.texts("nodeLabels"), others=spec.said("nodeLabels"))


def _workload_priority_class(obj: _Part, _namespace: str, name: str) -> PriorityClass:
    return PriorityClass("WorkloadPriorityClass", name, obj.whole("value"))


def _priority_class(obj: _Part, _namespace: str, name: str) -> PriorityClass:
    return PriorityClass("PriorityClass", name, obj.whole("value"), is_default=obj.flag("globalDefault"))


def _admission_check(obj: _Part, _namespace: str, name: str) -> AdmissionCheck:
    spec = obj.below("spec")
    return AdmissionCheck(name, spec.text("controllerName"), spec.below("parameters").word("name"))


def _config(obj: _Part, _namespace: str, name: str) -> MultiKueueConfig:
    return MultiKueueConfig(name, obj.below("spec").names("clusters"))


def _quotas(spec: _Part) -> tuple[FlavorQuota, ...]:
    """Of all resource groups; which group it was does not matter."""

    def resource(flavor: str, part: _Part) -> FlavorQuota:
        nominal = part.amount("nominalQuota")
        if nominal is None:
            raise part.error("nominalQuota", "is required")
        return FlavorQuota(
            flavor, part.text("name"), nominal, part.amount("borrowingLimit"), part.amount("lendingLimit")
        )

    def flavor(part: _Part) -> tuple[FlavorQuota, ...]:
        name = part.text("name")
        return part.each("resources", lambda each: resource(name, each))

    groups = spec.each("resourceGroups", lambda group: group.each("flavors", flavor))
    found = tuple(quota for group in groups for quotas in group for quota in quotas)
    pairs = {(quota.flavor, quota.resource) for quota in found}
    if len(pairs) != len(found):
        raise spec.error("resourceGroups", "must not name a resource of a flavor twice")
    return found


def _check(part: _Part) -> Check:
    return Check(part.text("name"), on_flavors="onFlavors" in part and bool(part.names("onFlavors")))


def _fungibility(part: _Part) -> tuple[str, ...]:
    defaults = {
        "whenCanBorrow": ("MayStopSearch", "Borrow"),
        "whenCanPreempt": ("TryNextFlavor",),
        "preference": ("BorrowingOverPreemption",),
    }
    words = ((key, part.word(key)) for key in defaults)
    return tuple(f"{key}: {word}" for key, word in words if word is not None and word not in defaults[key])


def _one_of(part: _Part, key: str, default: str, *others: str) -> str:
    word = part.word(key) or default
    if word not in (default, *others):
        raise part.error(key, f"must be one of {', '.join((default, *others))}, not {word[:40]!r}")
    return word


def _stop_policy(spec: _Part) -> str:
    return _one_of(spec, "stopPolicy", "None", "Hold", "HoldAndDrain")


def _weight(spec: _Part) -> Decimal | None:
    amount = spec.below("fairSharing").amount("weight")
    return None if amount is None else quantity(amount)


def _name(value: object, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise SpecError(path, f"must be a name, not {str(value)[:40]!r}")
    return value


_READERS: Final[dict[str, Callable[[_Part, str, str], Any]]] = {
    "ClusterQueue": _cluster_queue,
    "Cohort": _cohort,
    "LocalQueue": _local_queue,
    "ResourceFlavor": _flavor,
    "WorkloadPriorityClass": _workload_priority_class,
    "PriorityClass": _priority_class,
    "AdmissionCheck": _admission_check,
    "MultiKueueConfig": _config,
}

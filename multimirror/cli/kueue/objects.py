"""Kueue's objects as values: kueue.x-k8s.io v1beta1 and v1beta2, and scheduling.k8s.io PriorityClasses.

The two versions differ in three names (cohort and cohortName, parent and parentName, admissionChecks and its strategy);
here they are one. Fields that are not known are kept by name, so that nothing is lost without a word.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from multimirror.batch import Json


@dataclass(frozen=True, slots=True)
class Sourced:
    """An object, and where it stands: a file with the number of its document, or a cluster."""

    where: str
    obj: Any


@dataclass(frozen=True, slots=True)
class FlavorQuota:
    """What there is of one resource in one flavor."""

    flavor: str
    resource: str
    nominal: str
    borrowing: str | None
    lending: str | None


@dataclass(frozen=True, slots=True)
class Check:
    """An AdmissionCheck that a ClusterQueue names."""

    name: str
    on_flavors: bool


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    name: str
    cohort: str | None = None
    quotas: tuple[FlavorQuota, ...] = ()
    queueing_strategy: str = "BestEffortFIFO"
    namespace_selector: Json | None = None
    """None admits no namespace, {} every one."""
    reclaim: str = "Never"
    within: str = "Never"
    borrow_within: str = "Never"
    fungibility: tuple[str, ...] = ()
    """What it says about the choice of flavors, beyond the defaults."""
    checks: tuple[Check, ...] = ()
    stop_policy: str = "None"
    weight: Decimal | None = None
    admission_mode: str | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cohort:
    name: str
    parent: str | None = None
    quotas: tuple[FlavorQuota, ...] = ()
    weight: Decimal | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalQueue:
    namespace: str
    name: str
    cluster_queue: str | None
    stop_policy: str = "None"
    weight: Decimal | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    """Its other fields that say something."""


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Kueue's WorkloadPriorityClass, or Kubernetes' PriorityClass."""

    kind: str
    name: str
    value: int
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    name: str
    controller: str
    parameters: str | None


@dataclass(frozen=True, slots=True)
class MultiKueueConfig:
    name: str
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KueueObjects:
    """Everything that was read, by name; LocalQueues by namespace and name."""

    cluster_queues: Mapping[str, ClusterQueue] = field(default_factory=dict)
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    local_queues: tuple[LocalQueue, ...] = ()
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)
    priority_classes: tuple[PriorityClass, ...] = ()
    checks: Mapping[str, AdmissionCheck] = field(default_factory=dict)
    configs: Mapping[str, MultiKueueConfig] = field(default_factory=dict)
    others: tuple[tuple[str, str], ...] = ()
    """Kind and name of Kueue's objects that are not translated."""

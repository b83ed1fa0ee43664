"""What the controller needs to know about a Job, read once per sync."""

from dataclasses import dataclass
from typing import Any, Self

from multimirror.batch import Json, find_condition


@dataclass(frozen=True, slots=True)
class Job:
    """One version of one Job. `raw` is shared with the cache: never changed."""

    raw: Json
    namespace: str
    name: str
    uid: str
    indexed: bool
    suspended: bool
    deleting: bool
    parallelism: int
    completions: int | None
    backoff_limit: int
    backoff_limit_per_index: int | None
    max_failed_indexes: int | None
    active_deadline: float | None
    pod_failure_policy: Json | None
    success_policy: Json | None
    only_failed_replaced: bool
    """Terminating pods hold their place until they have failed: podReplacementPolicy Failed, or a failure policy."""

    @classmethod
    def of(cls, raw: Json) -> Self:
        metadata, spec = raw["metadata"], raw.get("spec") or {}
        policy = spec.get("podFailurePolicy")
        limit = spec.get("backoffLimit")
        return cls(
            raw=raw,
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            indexed=spec.get("completionMode") == "Indexed",
            suspended=bool(spec.get("suspend")),
            deleting=bool(metadata.get("deletionTimestamp")),
            parallelism=_number(spec, "parallelism", 1),
            completions=spec.get("completions"),
            backoff_limit=6 if limit is None else limit,
            backoff_limit_per_index=spec.get("backoffLimitPerIndex"),
            max_failed_indexes=spec.get("maxFailedIndexes"),
            active_deadline=spec.get("activeDeadlineSeconds"),
            pod_failure_policy=policy,
            success_policy=spec.get("successPolicy"),
            only_failed_replaced=spec.get("podReplacementPolicy") == "Failed" or policy is not None,
        )

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def spec(self) -> Json:
        spec: Json = self.raw["spec"]
        return spec

    @property
    def status(self) -> Json:
        return self.raw.get("status") or {}

    @property
    def template(self) -> Json:
        template: Json = self.spec["template"]
        return template

    @property
    def index_count(self) -> int:
        """How many indexes there are (Indexed Jobs always say)."""
        return self.completions or 0

    @property
    def per_index(self) -> bool:
        """Whether failures are counted for each index on its own."""
        return self.backoff_limit_per_index is not None

    @property
    def mode(self) -> str:
        return "Indexed" if self.indexed else "NonIndexed"

    def has_index(self, index: int) -> bool:
        """Whether a pod with this index is one of ours to count; always true where there are no indexes."""
        return not self.indexed or 0 <= index < self.index_count

    def condition(self, kind: str) -> Json | None:
        return find_condition(self.status.get("conditions") or (), kind)


def _number(spec: Json, field: str, default: int) -> int:
    value: Any = spec.get(field)
    return default if value is None else int(value)

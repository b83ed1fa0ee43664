"""A small fleet for the read model, and an API server for our own objects, both in memory.

The server keeps what it is given, as the real one does: a patch that changes nothing leaves the version as it was, and
fields of a status that it does not know are dropped. The caches show what it has when `watch` is called.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

from multimirror.api import COHORTS, MIRROR_QUEUES, WORKER_CLUSTERS, CohortSpec, MirrorQueueSpec, WorkerClusterSpec
from multimirror.batch import Json
from multimirror.kube import Client, Resource
from multimirror.kube.errors import ApiError, NotFound, Unreachable
from multimirror.observe.sharing import RecentStarts
from multimirror.observe.snapshot import DecisionView, InLine, Original, QueueHead, Usage
from multimirror.workers import TokenState, WorkerState


@dataclass
class Sum:
    jobs: int = 0
    resources: dict[str, Decimal] = field(default_factory=dict)


@dataclass
class Fleet:
    """A FleetState that is written down."""

    clusters: list[Json] = field(default_factory=list)
    queues: list[Json] = field(default_factory=list)
    cohort_objects: list[Json] = field(default_factory=list)
    states: dict[str, WorkerState] = field(default_factory=dict)
    tokens: dict[str, TokenState] = field(default_factory=dict)
    worker_specs: dict[str, WorkerClusterSpec] = field(default_factory=dict)
    queue_specs: dict[str, MirrorQueueSpec] = field(default_factory=dict)
    cohort_specs: dict[str, CohortSpec] = field(default_factory=dict)
    on_workers: dict[str, Sum] = field(default_factory=dict)
    running: dict[str, Counter[str]] = field(default_factory=dict)
    finished: dict[str, Counter[str]] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    heads: dict[str, QueueHead] = field(default_factory=dict)
    in_queues: dict[str, dict[str, Decimal]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    lines: dict[str, list[InLine]] = field(default_factory=dict)
    starts: dict[str, RecentStarts] = field(default_factory=dict)
    compared: list[str] = field(default_factory=list)
    """The Jobs of which somebody wanted to know what was against each worker."""
    copies: dict[str, list[str]] = field(default_factory=dict)
    originals: dict[str, Original] = field(default_factory=dict)
    decisions: dict[str, DecisionView] = field(default_factory=dict)
    deadlines: dict[str, float] = field(default_factory=dict)

    def worker_clusters(self) -> Iterable[Json]:
        return tuple(self.clusters)

    def mirror_queues(self) -> Iterable[Json]:
        return tuple(self.queues)

    def cohorts(self) -> Iterable[Json]:
        return tuple(self.cohort_objects)

    def worker_state(self, worker: str) -> WorkerState | None:
        return self.states.get(worker)

    def worker_token(self, worker: str) -> TokenState | None:
        return self.tokens.get(worker)

    def worker_spec(self, worker: str) -> WorkerClusterSpec | None:
        return self.worker_specs.get(worker)

    def queue_spec(self, queue: str) -> MirrorQueueSpec | None:
        return self.queue_specs.get(queue)

    def kinds(self) -> Iterable[str]:
        return ("Job.batch",)

    def worker_usage(self, worker: str) -> Usage:
        return self.on_workers.get(worker, Sum())

    def queue_usage(self, queue: str) -> Usage:
        return Sum(self.running.get(queue, Counter()).total(), self.in_queues.get(queue, {}))

    def running_by_worker(self, queue: str) -> Mapping[str, int]:
        return self.running.get(queue, {})

    def finished_by_worker(self, queue: str) -> Mapping[str, int]:
        return self.finished.get(queue, {})

    def pending(self, queue: str) -> int:
        return self.waiting[queue]

    def head(self, queue: str) -> QueueHead | None:
        return self.heads.get(queue)

    def quota_resources(self) -> Collection[str]:
        return {name for spec in self.queue_specs.values() for name in spec.quota.resources}

    def recent_starts(self, queue: str) -> RecentStarts | None:
        return self.starts.get(queue)

    def waiting_requests(self) -> Iterable[tuple[str, Mapping[str, int]]]:
        return tuple(self.requests)

    def copy_states(self, worker: str) -> Iterable[str]:
        return iter(self.copies.get(worker, ()))

    def original(self, key: str) -> Original | None:
        return self.originals.get(key)

    def line(self, queue: str) -> Iterator[InLine | None]:
        for job in self.lines.get(queue, ()):
            yield None
            yield job

    def starts_by_deadlines(self, uid: str) -> float | None:
        return self.deadlines.get(uid)

    def decision(self, uid: str, *, workers: bool = True) -> DecisionView | None:
        self.compared += [uid] if workers else []
        return self.decisions.get(uid)


@dataclass(frozen=True)
class Write:
    """A patch that arrived."""

    at: float
    resource: str
    name: str
    status: Json


class Api:
    """The management cluster, as far as our own objects go."""

    def __init__(self, fleet: Fleet, *, unknown_fields: Iterable[str] = ()) -> None:
        self.fleet = fleet
        self.unknown_fields = frozenset(unknown_fields)
        self.writes: list[Write] = []
        self.down = False
        """Nothing gets through."""
        self.answers_lost = False
        """Everything gets through, and no answer comes back."""
        self.refuse: Callable[[Json], ApiError | None] = lambda _: None
        """What is answered to a write of these fields of a status."""
        self.seconds_to_answer = 0.0
        self.watched = True
        """The caches show a change at once."""
        self._objects: dict[tuple[str, str], Json] = {}
        self._version = 0

    @property
    def client(self) -> Client:
        return cast("Client", self)

    def put(self, resource: Resource, name: str, spec: Json | None = None) -> None:
        """Create an object, or change its spec."""
        before = self._objects.get((resource.plural, name))
        metadata: Json = before["metadata"] if before is not None else {"name": name, "uid": f"uid-{self._version}"}
        obj: Json = {"metadata": {**metadata, "generation": metadata.get("generation", 0) + 1}, "spec": spec or {}}
        if before is not None and "status" in before:
            obj["status"] = before["status"]
        self._store(resource.plural, name, obj)

    def delete(self, resource: Resource, name: str) -> None:
        self._objects.pop((resource.plural, name), None)
        if self.watched:
            self.watch()

    def status(self, resource: Resource, name: str) -> Json:
        status: Json = self._objects[resource.plural, name].get("status") or {}
        return status

    def watch(self) -> None:
        """The caches catch up."""
        self.fleet.clusters = [obj for (plural, _), obj in self._objects.items() if plural == WORKER_CLUSTERS.plural]
        self.fleet.cohort_objects = [obj for (plural, _), obj in self._objects.items() if plural == COHORTS.plural]
        self.fleet.queues = [obj for (plural, _), obj in self._objects.items() if plural == MIRROR_QUEUES.plural]

    async def patch(self, resource: Resource, name: str, body: Json, *, subresource: str) -> Json:
        assert subresource == "status"
        await asyncio.sleep(self.seconds_to_answer)
        now = asyncio.get_running_loop().time()
        if self.down:
            raise Unreachable("no route to host")
        found = self._objects.get((resource.plural, name))
        if found is None or found["metadata"]["uid"] != body["metadata"]["uid"]:
            raise NotFound("not found")
        refusal = self.refuse(body["status"])
        if refusal is not None:
            raise refusal
        self.writes.append(Write(now, resource.plural, name, body["status"]))
        status = _merged(found.get("status") or {}, body["status"])
        status = {key: value for key, value in status.items() if key not in self.unknown_fields}
        if status != (found.get("status") or {}):
            self._store(resource.plural, name, {**found, "status": status})
        if self.answers_lost:
            raise Unreachable("connection reset")
        return self._objects[resource.plural, name]

    def _store(self, plural: str, name: str, obj: Json) -> None:
        """Objects are replaced and never changed: caches and answers share them."""
        self._version += 1
        self._objects[plural, name] = obj | {"metadata": obj["metadata"] | {"resourceVersion": str(self._version)}}
        if self.watched:
            self.watch()


def _merged(before: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged

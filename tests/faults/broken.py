"""The simulation with a dispatcher that is broken on purpose: `python -m tests.faults.broken NAME`.

The one place where our own code is patched: to show that the checker can fail. It is done where the dispatcher meets
the rest of the world (its client, its caches), or to pure functions by their names, so that how it is built inside
does not matter here.
"""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from faults import child  # first: it replaces the clocks

Json = dict[str, Any]


def assignment_not_stored() -> None:
    """The copy is made before the assignment is written down: a crash in between loses it."""
    from multimirror.api import CLUSTER_ANNOTATION  # noqa: PLC0415
    from multimirror.api.ownership import Signer  # noqa: PLC0415
    from multimirror.kinds import JOB, CopyOptions  # noqa: PLC0415
    from multimirror.kube import Client, Connection, Resource  # noqa: PLC0415
    from multimirror.kube.errors import AlreadyExists  # noqa: PLC0415
    from multimirror.kube.resources import JOBS  # noqa: PLC0415
    from multimirror.options import DispatcherOptions  # noqa: PLC0415
    from multimirror.workers import copy_key, identity_of  # noqa: PLC0415

    clients: dict[str, Client] = {}
    begin, patch = Client.__init__, Client.patch

    def remember(self: Client, connection: Connection, *, user_agent: str = "multimirror", **more: Any) -> None:
        begin(self, connection, user_agent=user_agent, **more)
        if user_agent == "multimirror":
            clients[connection.name] = self

    async def copy_first(
        self: Client, resource: Resource, name: str, body: Any, namespace: str | None = None, **more: Any
    ) -> Json:
        worker = ((body.get("metadata") or {}).get("annotations") or {}).get(CLUSTER_ANNOTATION)
        if resource is JOBS and worker in clients:
            job = await self.get(JOBS, name, namespace)
            signer = Signer(await copy_key(self, DispatcherOptions().namespace), await identity_of(self))
            place = {"namespace": namespace or "", "name": name}
            signature = signer.sign(
                JOBS,
                cluster=await identity_of(clients[worker]),
                uid=job["metadata"]["uid"],
                attempt="1",
                **place,
            )
            options = CopyOptions(origin=signer.origin, attempt=1, signature=signature, **place)
            copy = JOB.make_copy(job, options)
            with contextlib.suppress(AlreadyExists):
                await clients[worker].create(JOBS, copy, namespace)
        return await patch(self, resource, name, body, namespace, **more)

    Client.__init__ = remember  # type: ignore[method-assign]
    Client.patch = copy_first  # type: ignore[method-assign]


def orphans_before_sync() -> None:
    """Decisions are made before the cache of Jobs is filled: every copy looks like an orphan."""
    from multimirror.kube import Informer  # noqa: PLC0415
    from multimirror.kube.resources import JOBS  # noqa: PLC0415

    synced = Informer.synced

    async def at_once(self: Informer) -> None:
        if self.resource is not JOBS or self.client.cluster != "management":
            await synced(self)

    Informer.synced = at_once  # type: ignore[method-assign]


def status_not_validated() -> None:
    """What the worker says is written as it is."""
    from multimirror.batch import stored_status  # noqa: PLC0415
    from multimirror.kinds.job.kind import JobKind  # noqa: PLC0415

    def as_it_is(_: JobKind, original: Json, observed: object) -> Any:
        status = stored_status(observed if isinstance(observed, dict) else {})
        return status if status != stored_status(original.get("status") or {}) else None

    JobKind.mirror = as_it_is  # type: ignore[method-assign, assignment]


def fence_not_waited_for() -> None:
    """A Job with a fence moves as if it had none."""
    from multimirror.kinds.job.kind import JobKind  # noqa: PLC0415

    JobKind.safe_after = lambda *_: 0.0  # type: ignore[method-assign]


def labels_prove_it() -> None:
    """Whatever carries our labels is a copy of ours: nobody asks for its signature, or its uid."""
    from multimirror.api.ownership import Signer  # noqa: PLC0415
    from multimirror.reconcile.observer import Observer  # noqa: PLC0415

    Signer.signed = lambda *_: True  # type: ignore[method-assign]
    Observer.is_impostor = lambda *_: False  # type: ignore[method-assign]


def no_budgets() -> None:
    """A worker may send as much as it likes."""
    from multimirror.kube import budget  # noqa: PLC0415

    for name in ("small", "object", "page", "event"):
        object.__setattr__(budget.UNTRUSTED, name, 2**31)
    budget.Budget.spend = lambda *_, **__: None  # type: ignore[method-assign]
    budget.CacheBudget.check = lambda *_: None  # type: ignore[method-assign]


def growth_not_asked_for() -> None:
    """A Job that asks for more pods gets them."""
    from multimirror.reconcile import decide  # noqa: PLC0415
    from multimirror.reconcile.actions import Grow, Reserve  # noqa: PLC0415

    careful = vars(decide)["reservation"]

    def generous(*arguments: Any, **more: Any) -> Any:
        found = careful(*arguments, **more)
        return [Reserve(each.to) if isinstance(each, Grow) else each for each in found]

    vars(decide)["reservation"] = generous


def _queues_read_as(change: Callable[[str, Any], Any]) -> None:
    """The dispatcher takes queues for others than they are: `change` is given the name and the spec."""
    from multimirror.api import MirrorQueueSpec  # noqa: PLC0415

    read = MirrorQueueSpec.read

    def misread(obj: Json) -> MirrorQueueSpec:
        spec: MirrorQueueSpec = change(obj["metadata"]["name"], read(obj))
        return spec

    MirrorQueueSpec.read = misread  # type: ignore[method-assign]


def borrowing_not_limited() -> None:
    """Nobody looks at what a queue may borrow."""
    _queues_read_as(lambda _, spec: replace(spec, quota=replace(spec.quota, borrow={})))


def lending_not_limited() -> None:
    """Nobody looks at what a queue lends."""
    _queues_read_as(lambda _, spec: replace(spec, quota=replace(spec.quota, lend={})))


def own_quota_not_known() -> None:
    """What is the second queue's is taken for the first one's."""

    def moved(name: str, spec: Any) -> Any:
        own = sum(spec.quota.resources.values()) if name.endswith("-b") else Decimal(-1)
        return replace(spec, quota=replace(spec.quota, resources={"cpu": Decimal(0) if own >= 0 else Decimal(2)}))

    _queues_read_as(moved)


def run_times_not_known() -> None:
    """Nobody is given time to run."""
    _queues_read_as(lambda _, spec: replace(spec, min_runtime=0.0))


def capacity_not_known() -> None:
    """Workers are given as many Jobs as there are."""
    from multimirror.api import WorkerClusterSpec  # noqa: PLC0415

    read = WorkerClusterSpec.read
    WorkerClusterSpec.read = lambda obj: replace(read(obj), capacity=None)  # type: ignore[method-assign]


def pods_not_waited_for() -> None:
    """Who is stopped for others is taken from its worker at once."""
    from multimirror.reconcile import decide  # noqa: PLC0415

    taken_away = vars(decide)["taken_away"]
    vars(decide)["take_back"] = lambda _obj, state, copy, *_: taken_away(state.kind, copy.worker)


def stops_not_counted() -> None:
    """Nobody knows how often a Job was stopped."""
    from multimirror.kinds import preempted  # noqa: PLC0415

    vars(preempted)["_COUNTED"] = frozenset()


_MUTATIONS = (
    assignment_not_stored,
    orphans_before_sync,
    status_not_validated,
    fence_not_waited_for,
    labels_prove_it,
    no_budgets,
    growth_not_asked_for,
    borrowing_not_limited,
    lending_not_limited,
    own_quota_not_known,
    run_times_not_known,
    capacity_not_known,
    pods_not_waited_for,
    stops_not_counted,
)

if __name__ == "__main__":
    {each.__name__: each for each in _MUTATIONS}[sys.argv[1]]()
    child.main()

"""Carrying out what was decided, call by call."""

from typing import Any, cast

from multimirror.api.ownership import Signer
from multimirror.kinds import JOB, Ref
from multimirror.kube import RequeueAfter
from multimirror.kube.own_writes import OwnWrites
from multimirror.reconcile.actions import CreateCopy
from multimirror.reconcile.execute import WorkerContext, WorkerExecutor
from multimirror.reconcile.memory import Memory
from multimirror.reconcile.wholes import WholeOriginals
from multimirror.workers import Session, Worker, WorkerState
from multimirror.workers.probe import Facts
from tests.unit.reconcile.builders import a_job, observed


class FakeWrites:
    """A cache that has not seen our last write to one key yet."""

    def __init__(self, unseen: str) -> None:
        self.unseen = unseen

    def settled(self, key: str) -> bool:
        return key != self.unseen

    async def seen(self, _: str) -> bool:
        return False

    def wrote(self, _: object) -> None:
        pass


class FakeSession:
    """Takes everything; remembers the names of what was created."""

    def __init__(self, writes: FakeWrites) -> None:
        self._writes = writes
        self.writer = self.client = self
        self.facts = Facts("v1.36.4", "cluster", (), sees_namespaces=True, sees_nodes=True)
        self.created: list[str] = []

    def is_ours(self, *_: object) -> bool:
        return True

    def writes(self, *_: object) -> OwnWrites:
        return cast("OwnWrites", self._writes)

    async def create(self, _: object, copy: dict[str, Any], __: str) -> dict[str, Any]:
        self.created.append(copy["metadata"]["name"])
        return {**copy, "metadata": {**copy["metadata"], "uid": "made", "resourceVersion": "2"}}


class FakeWorker:
    """The management cluster itself."""

    name = "w1"
    state = WorkerState(connected=True, is_management=True)


async def create(session: FakeSession) -> RequeueAfter | None:
    job = a_job("train").on("w1").job
    wholes = WholeOriginals(cast("Any", None))
    wholes.keep(JOB, job)
    context = WorkerContext(
        signer=Signer(b"key", "here"),
        memory=Memory(),
        originals=cast("Any", None),
        announcements=cast("Any", None),
        wholes=wholes,
        timer=cast("Any", FakeTimer()),
        refusal_seconds=1.0,
        clock=lambda: 0.0,
    )
    executor = WorkerExecutor(cast("Worker", FakeWorker()), cast("Session", session), context)
    ref = Ref(JOB.resource.name, job["metadata"]["uid"])
    return await executor.execute(ref, observed(job), CreateCopy("w1", "team", 1))


class FakeTimer:
    def copy_created(self, *_: object) -> None:
        pass


async def test_in_the_cluster_of_the_original_a_copy_has_another_name() -> None:
    session = FakeSession(FakeWrites(unseen=""))
    assert await create(session) is None
    (name,) = session.created
    assert name.startswith("train-")


async def test_no_copy_is_made_while_the_cache_has_not_seen_the_last_write_to_its_own_name() -> None:
    named = FakeSession(FakeWrites(unseen=""))
    await create(named)
    session = FakeSession(FakeWrites(unseen=f"team/{named.created[0]}"))
    assert isinstance(await create(session), RequeueAfter)
    assert session.created == []

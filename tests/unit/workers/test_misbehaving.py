"""A worker that sends what no honest one does: lost at once, left alone for longer each time; nobody else notices."""

import asyncio
import functools
from typing import Any

import pytest

from multimirror.api import WORKER_CLUSTERS
from multimirror.batch.times import format_time, utc_datetime
from multimirror.kube.budget import MIB
from multimirror.kube.errors import OverBudget
from multimirror.workers import Worker
from multimirror.workers.limits import WorkerBudget
from multimirror.workers.misbehaviour import Misbehaviour
from multimirror.workers.probe import clock_ahead
from tests.unit.kube.servers import Seen, Wire
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.workers.fake_cluster import FakeCluster
from tests.unit.workers.stage import JOBS, NAMESPACES, NODES, NOW, Stage, a_copy, a_node, a_stage, clock


def hostile(cluster: FakeCluster, part: str, script: Any) -> None:
    """From now on it answers requests for `part` like that."""
    honest = cluster.server.scripts[0]

    async def handle(seen: Seen, wire: Wire) -> None:
        await (script if part in seen.target else honest)(seen, wire)

    cluster.server.scripts.clear()
    cluster.server.then(handle)


def honest(cluster: FakeCluster) -> None:
    cluster.server.scripts.clear()
    cluster.server.then(cluster._handle)


async def huge(_: Seen, wire: Wire) -> None:
    await wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 400000000\r\n\r\n" + b"x" * MIB)
    await wire.silence()


async def flood(_: Seen, wire: Wire) -> None:
    """New copies for as long as somebody listens."""
    await wire.start_chunks()
    for number in range(100_000):
        await wire.event("ADDED", {**a_copy(f"job-{number}"), "metadata": versioned(number)})


def versioned(number: int) -> dict[str, Any]:
    return {**a_copy(f"job-{number}")["metadata"], "uid": f"uid-{number}", "resourceVersion": str(1000 + number)}


def is_that_or_misbehaves(worker: Worker, identity: str) -> bool:
    return worker.state.identity == identity or worker.state.misbehaviour is not None


async def misbehaving(stage: Stage, name: str, count: int = 1) -> Misbehaviour:
    def again() -> bool:
        found = stage.worker(name).state.misbehaviour
        return found is not None and found.count == count

    await stage.until(again, 5000)
    await stage.until(lambda: stage.worker(name).state.reason == "Misbehaving")
    found = stage.worker(name).state.misbehaviour
    assert found is not None
    return found


@virtual_time
async def test_a_huge_version_costs_its_worker_alone_and_pauses_it_longer_each_time() -> None:
    async with a_stage() as stage:
        east, west = await stage.add("east"), await stage.add("west")
        await stage.connected("east")
        other = await stage.connected("west")
        before = other.session
        hostile(east, "/version", huge)
        await stage.set_secret("east", east.kubeconfig("another", **{"as": "another"}))

        first = await misbehaving(stage, "east")
        assert first.count == 1
        assert first.until - clock() == pytest.approx(60, abs=2)
        assert "GET /version is larger than 1048576 bytes" in stage.worker("east").state.message
        assert stage.workers.contact("east").lost_since is not None

        second = await misbehaving(stage, "east", 2)
        assert second.until - clock() == pytest.approx(120, abs=3)
        assert other.session is before
        assert west.server.seen


def test_a_pause_doubles_up_to_an_hour() -> None:
    found, pauses = None, []
    for _ in range(9):
        found = Misbehaviour.after(found, "too much", NOW)
        pauses.append(found.until - NOW)
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert found is not None
    assert not found.is_over(found.until + 3599)
    assert found.is_over(found.until + 3600)
    assert Misbehaviour.read({"status": {"misbehaviour": found.written()}}) == found


@virtual_time
async def test_a_flood_of_new_objects_ends_the_session() -> None:
    async with a_stage() as stage:
        east = await stage.add("east")
        hostile(east, "/jobs", flood)
        await stage.until(lambda: stage.workers.get("east") is not None)
        found = await misbehaving(stage, "east")
        assert "objects with our labels" in found.message
        assert stage.worker("east").copies("uid-of-train") == []


@virtual_time
async def test_a_breach_in_the_middle_of_a_session_ends_it_at_once() -> None:
    async with a_stage() as stage:
        east = await stage.add("east")
        worker = await stage.connected("east")
        assert worker.session is not None
        hostile(east, "/namespaces/team-a/jobs", huge)
        with pytest.raises(Exception, match="larger than"):
            await worker.session.writer.create(JOBS, a_copy())
        await misbehaving(stage, "east")
        assert worker.session is None


@virtual_time
async def test_whoever_starts_again_leaves_it_alone_until_then() -> None:
    async with a_stage() as stage:
        until = format_time(utc_datetime(NOW + 600))
        status = {"misbehaviour": {"count": 4, "until": until, "message": "it sent too much"}}
        await stage.add("east")
        cluster = stage.management.objects[WORKER_CLUSTERS.path(), "", "east"]
        await stage.management.put(WORKER_CLUSTERS, {**cluster, "status": status})
        await stage.lost("east")
        await asyncio.sleep(500)
        assert stage.worker("east").state.reason == "Misbehaving"
        assert stage.clusters["east"].server.seen == []
        await asyncio.sleep(110)
        worker = await stage.connected("east")
        assert worker.state.misbehaviour is not None, "it is known still"
        await asyncio.sleep(3600)
        assert worker.state.misbehaviour is None, "it behaved for an hour"


@virtual_time
async def test_another_kubeconfig_is_tried_at_once() -> None:
    async with a_stage() as stage:
        east = await stage.add("east")
        hostile(east, "/version", huge)
        await stage.until(lambda: stage.workers.get("east") is not None)
        await misbehaving(stage, "east")
        honest(east)
        await stage.set_secret("east", east.kubeconfig("another", **{"as": "another"}))
        started = clock()
        worker = await stage.connected("east")
        assert clock() - started < 5
        assert worker.state.misbehaviour is not None
        assert worker.state.misbehaviour.count == 1


@virtual_time
async def test_a_person_who_removes_the_record_has_it_tried_at_once() -> None:
    async with a_stage() as stage:
        east = await stage.add("east")
        hostile(east, "/version", huge)
        await stage.until(lambda: stage.workers.get("east") is not None)
        found = await misbehaving(stage, "east")
        cluster = stage.management.objects[WORKER_CLUSTERS.path(), "", "east"]
        await stage.management.put(WORKER_CLUSTERS, {**cluster, "status": {"misbehaviour": found.written()}})
        await asyncio.sleep(5)
        assert stage.worker("east").state.misbehaviour == found, "what we wrote ourselves changes nothing"
        honest(east)
        await stage.management.put(WORKER_CLUSTERS, {**cluster, "status": {}})
        started = clock()
        worker = await stage.connected("east")
        assert clock() - started < 5
        assert worker.state.misbehaviour is None


@virtual_time
async def test_what_another_process_wrote_down_ends_our_own_session() -> None:
    async with a_stage() as stage:
        await stage.add("east")
        await stage.connected("east")
        cluster = stage.management.objects[WORKER_CLUSTERS.path(), "", "east"]
        status = {"misbehaviour": {"count": 1, "until": format_time(utc_datetime(clock() + 60)), "message": "flood"}}
        await stage.management.put(WORKER_CLUSTERS, {**cluster, "status": status})
        await misbehaving(stage, "east")
        assert stage.worker("east").session is None


@virtual_time
async def test_one_that_is_another_cluster_each_time_misbehaves() -> None:
    async with a_stage() as stage:
        east = await stage.add("east")
        await stage.connected("east")
        for number in range(4):
            east.identity = f"another-{number}"
            await stage.until(functools.partial(is_that_or_misbehaves, stage.worker("east"), east.identity))
        assert "another cluster" in (await misbehaving(stage, "east")).message


@pytest.mark.parametrize("uid", ["", "x" * 65, "a b", "a\nb", 7, None, {"a": 1}])
def test_an_identity_that_is_none_is_refused(uid: Any) -> None:
    @virtual_time
    async def story() -> None:
        async with a_stage() as stage:
            await stage.add("east", identity="x")
            stage.clusters["east"].identity = uid
            await stage.lost("east")
            assert stage.worker("east").state.reason == "BadAnswer"

    story()


@virtual_time
async def test_a_version_without_end_is_cut() -> None:
    async with a_stage() as stage:
        east = await stage.add("east")

        async def version(_: Seen, wire: Wire) -> None:
            await wire.answer(200, {"gitVersion": "v1\x1b[2J" + "x" * 100_000})

        hostile(east, "/version", version)
        worker = await stage.connected("east")
        assert len(worker.state.version) < 70
        assert worker.state.version.isprintable()


def test_a_clock_that_is_days_away_is_not_believed() -> None:
    assert clock_ahead("Tue, 01 Jan 9999 00:00:00 GMT", NOW) == 86400
    assert clock_ahead("Tue, 01 Jan 1980 00:00:00 GMT", NOW) == -86400
    assert clock_ahead("x" * 10_000, NOW) == 0


def a_node_with(name: str, resources: dict[str, Any]) -> dict[str, Any]:
    node = a_node(name)
    node["status"]["allocatable"] = resources
    return node


@virtual_time
async def test_nodes_that_are_none_count_for_nothing_and_break_nothing() -> None:
    async with a_stage() as stage:
        east = await stage.add("east")
        await east.put(NODES, a_node("good", cpu="4"))
        await east.put(NODES, a_node_with("odd", {"cpu": "9" * 1000, **{f"x/{number}": "1" for number in range(1000)}}))
        for number, status in enumerate(
            [[], {"allocatable": [], "conditions": {}}, {"conditions": ["x", {"type": []}]}]
        ):
            await east.put(NODES, {"metadata": {"name": f"bad-{number}"}, "spec": [], "status": status})
        for number in range(10):
            more = {f"example.com/{number}-{each}": "1" for each in range(60)}
            await east.put(NODES, a_node_with(f"more-{number}", more))
        worker = await stage.connected("east")
        assert worker.state.capacity is not None
        assert worker.state.capacity["cpu"] == 4
        assert len(worker.state.capacity) <= 256


@virtual_time
async def test_namespaces_that_come_and_go_are_told_a_few_times_a_second() -> None:
    async with a_stage() as stage:
        east = await stage.add("east")
        worker = await stage.connected("east")
        stage.seen.states.clear()
        for number in range(500):
            await east.put(NAMESPACES, {"metadata": {"name": f"n-{number}"}})
        started = clock()
        await stage.until(lambda: len(worker.state.namespaces or ()) == 500)
        assert len(stage.seen.states) <= 3 + 6 * (clock() - started)


@virtual_time
async def test_thousands_of_originals_that_go_at_once_are_no_breach_of_their_worker() -> None:
    """Somebody deletes a namespace: the copies are there for some minutes longer, in this session and the next."""
    known, told = 30_000, list[OverBudget]()
    budget = WorkerBudget("east", lambda: known, told.append)
    cache = budget.copies()
    cache.check(30_000, 60 * MIB)
    cache.add(30_000, 60 * MIB)
    known = 0
    await asyncio.sleep(60)
    cache.check(0, 100)
    budget.copies().check(30_000, 60 * MIB)
    assert told == []
    await asyncio.sleep(3600)
    cache.check(0, 0)
    with pytest.raises(OverBudget):
        budget.copies().check(30_000, 60 * MIB)

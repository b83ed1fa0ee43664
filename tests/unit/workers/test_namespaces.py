"""Which namespaces are followed: not followed is not not there."""

import asyncio
from typing import Any

import pytest

from multimirror.api import WORKER_CLUSTERS
from multimirror.kube.controller import NotYet
from multimirror.kube.resources import JOBS, NAMESPACES
from multimirror.workers import NotFollowed
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.workers.stage import Stage, a_copy, a_namespace, a_stage, clock

UID = "uid-of-train"
A, B = [{"name": "team-a"}], [{"name": "team-b"}]


async def narrowed(stage: Stage, namespaces: list[dict[str, str]] | None) -> None:
    """The WorkerCluster allows other namespaces, and the session that knows them is open."""
    worker = stage.worker("east")
    before = worker.session
    await stage.set_spec("east", **({"namespaces": namespaces} if namespaces is not None else {}))
    await stage.until(lambda: worker.session not in (None, before))


@pytest.mark.parametrize("before", [None, [*A, *B]], ids=["all namespaces", "two namespaces"])
def test_copies_do_not_vanish_when_their_namespace_is_allowed_no_more(before: list[dict[str, str]] | None) -> None:
    @virtual_time
    async def story() -> None:
        async with a_stage() as stage:
            allowed: dict[str, Any] = {"namespaces": before} if before is not None else {}
            cluster = await stage.add("east", **allowed)
            await cluster.put(JOBS, a_copy(namespace="team-a"))
            worker = await stage.connected("east")
            await narrowed(stage, B)

            assert len(worker.copies(UID)) == 1
            assert stage.workers.contact("east", "team-a").connected
            await cluster.remove(JOBS, "train", "team-a")
            await stage.until(lambda: not worker.copies(UID))
            assert stage.workers.contact("east", "team-a").connected, "now we know that it is gone"

    story()


@virtual_time
async def test_nor_when_the_worker_is_lost_meanwhile() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east", namespaces=[*A, *B])
        await cluster.put(JOBS, a_copy(namespace="team-a"))
        worker = await stage.connected("east")
        await cluster.cut_off()
        await stage.lost("east")
        await stage.set_spec("east", namespaces=B)
        cluster.restore()
        await stage.connected("east")
        assert len(worker.copies(UID)) == 1


@virtual_time
async def test_a_namespace_without_copies_is_followed_no_more_and_says_so() -> None:
    async with a_stage() as stage:
        await stage.add("east", namespaces=[*A, *B])
        worker = await stage.connected("east")
        await narrowed(stage, B)

        contact = stage.workers.contact("east", "team-a")
        assert (contact.connected, contact.lost_since) == (False, None), "nobody knows, and nothing is lost"
        assert contact.why == "its namespace team-a is not followed yet"
        assert stage.workers.contact("east", "team-b").connected
        assert stage.workers.contact("east").connected
        session = worker.session
        assert session is not None
        assert (session.follows("team-a"), session.follows("team-b")) == (False, True)
        with pytest.raises(NotFollowed) as early:
            session.writes("team-a")
        assert isinstance(early.value, NotYet), "whoever asks is asked to come back, and nobody is told"


@virtual_time
async def test_a_namespace_is_followed_from_the_moment_that_somebody_asks_and_in_each_session_after_that() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east", namespaces=B)
        await cluster.put(JOBS, a_copy(namespace="team-a"))
        worker = await stage.connected("east")
        assert worker.copies(UID) == []

        for _ in range(3):
            stage.workers.follow("east", "team-a")
        assert not stage.workers.contact("east", "team-a").connected, "not yet"
        await stage.until(lambda: len(worker.copies(UID)) == 1)
        assert stage.seen.states[-1] == ("east", True), "whoever subscribed looks at everything anew"
        assert stage.workers.contact("east", "team-a").connected
        assert worker.session is not None
        worker.session.writes("team-a").wrote(await worker.session.client.create(JOBS, a_copy("second")))

        await cluster.remove(JOBS, "train", "team-a")
        await cluster.remove(JOBS, "second", "team-a")
        await stage.until(lambda: not worker.copies(UID))
        await cluster.cut_off()
        await stage.lost("east")
        cluster.restore()
        await stage.connected("east")
        assert stage.workers.contact("east", "team-a").connected


@virtual_time
async def test_what_is_asked_for_before_the_worker_is_known_is_followed_from_its_first_session_on() -> None:
    async with a_stage() as stage:
        stage.workers.follow("east", "team-a")  # the originals were listed before the WorkerClusters
        cluster = await stage.add("east", namespaces=B)
        await cluster.put(JOBS, a_copy(namespace="team-a"))
        worker = await stage.connected("east")
        assert len(worker.copies(UID)) == 1
        assert stage.workers.contact("east", "team-a").connected


@virtual_time
async def test_what_was_asked_of_a_worker_holds_for_the_next_one_of_its_name() -> None:
    """Copies that were left there are the same ones: nobody else may know of those whose originals are gone."""
    async with a_stage() as stage:
        await stage.add("east", namespaces=B)
        await stage.connected("east")
        stage.workers.follow("east", "team-a")
        await stage.until(lambda: stage.workers.contact("east", "team-a").connected)
        await stage.management.remove(WORKER_CLUSTERS, "east")
        await stage.until(lambda: stage.workers.get("east") is None)
        await stage.set_spec("east", namespaces=B)
        await stage.connected("east")
        assert stage.workers.contact("east", "team-a").connected


@virtual_time
async def test_where_everything_is_followed_asking_costs_nothing() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await stage.connected("east")
        asked = len(cluster.server.seen)
        for number in range(100):
            stage.workers.follow("east", f"team-{number}")
        stage.workers.follow("nobody", "team-a")
        await asyncio.sleep(0.1)
        assert len(cluster.server.seen) == asked


@virtual_time
async def test_a_namespace_whose_rights_are_taken_away_is_in_trouble_alone() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east", namespaces=[*A, *B])
        await cluster.put(JOBS, a_copy(namespace="team-a"))
        worker = await stage.connected("east")
        session = worker.session
        await asyncio.sleep(30)
        taken = clock()
        await cluster.deny("list", "watch", namespace="team-a")
        await stage.until(lambda: stage.workers.contact("east", "team-a").lost_since is not None)

        contact = stage.workers.contact("east", "team-a")
        assert not contact.connected
        assert contact.lost_since is not None
        assert taken < contact.lost_since < taken + 60
        assert contact.why.startswith("its namespace team-a cannot be followed: may not watch jobs")
        assert worker.session is session
        assert stage.workers.contact("east").connected
        assert stage.workers.contact("east", "team-b").connected
        assert stage.seen.states[-1] == ("east", False)
        assert list(worker.state.unfollowed) == [("jobs.batch", "team-a")]

        since = contact.lost_since
        await asyncio.sleep(100)
        assert stage.workers.contact("east", "team-a").lost_since == since
        await cluster.grant()
        await stage.until(lambda: not worker.state.unfollowed)
        assert stage.workers.contact("east", "team-a").connected
        assert stage.workers.contact("east", "team-a").lost_since is None


@virtual_time
async def test_its_loss_is_remembered_over_a_new_session() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east", namespaces=[*A, *B])
        await cluster.put(JOBS, a_copy(namespace="team-a"))
        await stage.connected("east")
        await cluster.deny("list", "watch", namespace="team-a")
        await stage.until(lambda: stage.workers.contact("east", "team-a").lost_since is not None)
        since = stage.workers.contact("east", "team-a").lost_since
        await narrowed(stage, B)
        assert stage.workers.contact("east", "team-b").connected
        contact = stage.workers.contact("east", "team-a")
        assert (contact.connected, contact.lost_since) == (False, since)


@virtual_time
async def test_when_no_namespace_can_be_followed_the_worker_is_lost() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east", namespaces=[*A, *B])
        await stage.connected("east")
        cluster.denied |= {("watch", "jobs", "team-a"), ("watch", "jobs", "team-b")}
        cluster.denied |= {("list", "jobs", "team-a"), ("list", "jobs", "team-b")}
        await cluster.end_watches()
        await stage.until(lambda: stage.worker("east").session is None)
        await stage.until(lambda: not stage.worker("east").state.ready and stage.worker("east").state.connected)
        assert "may not list jobs.batch in namespace team-a" in stage.workers.contact("east").why


@virtual_time
async def test_when_all_rights_are_taken_away_that_is_said_and_copies_are_there_again_with_the_rights() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await cluster.put(JOBS, a_copy())
        worker = await stage.connected("east")
        await cluster.deny("list", "watch", "create", "patch", "delete")
        await stage.until(lambda: worker.session is None)
        stage.workers.follow("east", "team-a")
        await stage.until(lambda: worker.state.connected, 30)
        assert worker.state.why_not_ready[0] == "PermissionDenied"
        session = worker.session
        await asyncio.sleep(60)
        assert worker.session is session, "it stays connected, and is asked about rights now and then"
        contact = stage.workers.contact("east", "team-a")
        assert not contact.connected
        assert contact.lost_since is not None
        assert "cannot be followed: may not" in contact.why

        await cluster.grant()
        await stage.until(lambda: stage.workers.contact("east", "team-a").connected)
        assert len(worker.copies(UID)) == 1
        await stage.until(lambda: stage.workers.contact("east").connected)  # asked less often than the copies


@virtual_time
async def test_a_right_that_lacks_in_one_namespace_leaves_the_others_in_contact() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("west")
        await stage.connected("west")
        cluster = await stage.add("east", namespaces=[*A, *B])
        await cluster.put(JOBS, a_copy(namespace="team-b"))
        cluster.denied |= {("delete", "jobs", "team-a")}
        worker = await stage.connected("east")

        whole, here = stage.workers.contact("east"), stage.workers.contact("east", "team-a")
        assert (whole.connected, here.connected) == (False, False)
        assert whole.lost_since is not None
        assert "may not delete jobs.batch in namespace team-a" in here.why
        assert stage.workers.contact("east", "team-b").connected
        assert len(worker.copies(UID)) == 1
        await cluster.grant()
        await stage.until(lambda: stage.workers.contact("east").connected)
        assert stage.workers.contact("east", "team-a").connected


@virtual_time
async def test_a_running_copy_is_followed_although_a_right_lacks_everywhere() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await cluster.put(JOBS, a_copy())
        cluster.denied |= {("delete", "jobs", "")}
        worker = await stage.connected("east")
        assert not stage.workers.contact("east", "team-a").connected

        stage.workers.follow("east", "team-a")
        await stage.until(lambda: len(worker.copies(UID)) == 1)
        assert stage.workers.contact("east", "team-a").connected
        assert not stage.workers.contact("east").connected, "it gets nothing new"


@virtual_time
async def test_namespaces_that_come_and_go_are_told() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await cluster.put(NAMESPACES, a_namespace("team-a"))
        worker = await stage.connected("east")
        assert worker.state.namespaces == frozenset({"team-a"})

        await cluster.put(NAMESPACES, a_namespace("team-b"))
        await stage.until(lambda: worker.state.namespaces == frozenset({"team-a", "team-b"}))
        await cluster.put(NAMESPACES, a_namespace("team-a", deletionTimestamp="2026-01-01T00:00:00Z"))
        await stage.until(lambda: worker.state.namespaces == frozenset({"team-b"}))
        told = len(stage.seen.states)
        await cluster.put(NAMESPACES, a_namespace("team-b", labels={"a": "b"}))
        await cluster.remove(NAMESPACES, "team-a")
        await cluster.put(NAMESPACES, a_namespace("team-c"))
        await stage.until(lambda: worker.state.namespaces == frozenset({"team-b", "team-c"}))
        assert len(stage.seen.states) == told + 1, "of the others nobody needed to know"

"""A worker is connected, lost, found again and renewed; each told to whoever subscribed, and timed by one clock."""

import asyncio
import contextlib
import json

import pytest

from multimirror.api import WORKER_CLUSTERS
from multimirror.kube.errors import TimedOut
from multimirror.kube.resources import JOBS
from multimirror.workers import out_of_reach
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.workers.stage import NOW, a_copy, a_stage, clock


@virtual_time
async def test_a_worker_is_connected_and_its_copies_are_there_when_that_is_told() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await cluster.put(JOBS, a_copy())
        await stage.connected("east")

        worker = stage.worker("east")
        assert (worker.state.connected, worker.state.ready, worker.state.version) == (True, True, "v1.36.4")
        assert stage.seen.states[-1] == ("east", True)
        assert [copy["metadata"]["name"] for copy in worker.copies("uid-of-train")] == ["train"]
        (told,) = stage.seen.copies
        assert (told[0], told[1], told[2].initial) == ("east", JOBS, True)
        contact = stage.workers.contact("east")
        assert (contact.connected, contact.lost_since, contact.recorded) == (True, None, False)
        assert stage.workers.contact("east", "team-a").connected


@virtual_time
async def test_before_it_was_tried_nobody_knows_whether_it_is_lost() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await cluster.cut_off()
        await stage.until(lambda: stage.workers.get("east") is not None)

        contact = stage.workers.contact("east")
        assert (contact.connected, contact.lost_since) == (False, None)


@virtual_time
async def test_two_heartbeats_without_an_answer_and_it_is_lost_until_it_answers() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await cluster.put(JOBS, a_copy())
        await stage.connected("east")
        cut = clock()
        await cluster.cut_off()
        worker = await stage.lost("east")

        assert clock() - cut < 13.0
        contact = stage.workers.contact("east")
        assert contact.lost_since is not None
        assert cut < contact.lost_since <= clock()
        assert "no answer" in contact.why
        assert worker.copies("uid-of-train") == []
        assert stage.workers.contact("east", "team-a") == contact

        since = contact.lost_since
        await asyncio.sleep(120)
        assert stage.workers.contact("east").lost_since == since, "trying again sets no clock back"
        cluster.restore()
        await stage.connected("east")
        assert stage.workers.contact("east").lost_since is None
        assert stage.seen.states[-1] == ("east", True)
        assert len(worker.copies("uid-of-train")) == 1


@virtual_time
async def test_new_credentials_are_used_at_once_and_are_no_loss() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        worker = await stage.connected("east")
        before = worker.session
        config = json.loads(cluster.kubeconfig("another"))
        config["users"][0]["user"]["as"] = "somebody"
        await stage.set_secret("east", json.dumps(config).encode())
        await stage.until(lambda: worker.session is not before)

        assert stage.workers.contact("east").lost_since is None, "it is being tried, not lost"
        await stage.connected("east")
        assert cluster.server.seen[-1].headers["authorization"] == "bearer another"


@virtual_time
async def test_another_token_is_used_at_once_and_the_session_goes_on() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await cluster.put(JOBS, a_copy())
        worker = await stage.connected("east")
        before, told = worker.session, len(stage.seen.states)
        await stage.set_secret("east", cluster.kubeconfig("another"))
        await stage.until(lambda: cluster.server.seen[-1].headers["authorization"] == "bearer another")
        cluster.revoked.add("t")
        await asyncio.sleep(120)

        assert worker.session is before
        assert not any(reconnected for _, reconnected in stage.seen.states[told:]), "no cache is new"
        assert len(worker.copies("uid-of-train")) == 1


@virtual_time
async def test_another_token_that_is_not_accepted_is_a_loss_like_any_other() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        worker = await stage.connected("east")
        cluster.revoked.add("wrong")
        await stage.set_secret("east", cluster.kubeconfig("wrong"))
        await stage.lost("east")
        assert worker.state.reason == "Unauthorized"


@virtual_time
async def test_another_cluster_behind_the_same_address_is_noticed() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await cluster.put(JOBS, a_copy())
        worker = await stage.connected("east")
        before = worker.session
        cluster.identity = "another"
        await cluster.remove(JOBS, "train", "team-a")
        await stage.until(lambda: worker.session not in (None, before))

        assert worker.session is not None
        assert worker.session.facts.identity == "another"
        assert worker.copies("uid-of-train") == []


@virtual_time
async def test_one_cluster_under_two_names_is_used_under_one() -> None:
    async with a_stage() as stage:
        await stage.add("east", identity="the-one")
        await stage.connected("east")
        await stage.add("twin", identity="the-one")
        await stage.lost("twin")
        assert stage.worker("twin").state.reason == "SameCluster"
        assert "same cluster as east" in stage.workers.contact("twin").why

        await stage.management.remove(WORKER_CLUSTERS, "east")
        await stage.connected("twin")


@virtual_time
async def test_a_worker_that_nobody_knows_is_lost_since_somebody_asked() -> None:
    async with a_stage() as stage:
        await stage.workers.settled()
        first = stage.workers.contact("nowhere")
        assert (first.connected, first.lost_since) == (False, clock())
        assert first.why == "there is no such WorkerCluster"
        await asyncio.sleep(30)
        assert stage.workers.contact("nowhere", "team-a").lost_since == first.lost_since


@virtual_time
async def test_a_worker_cluster_that_is_removed_is_lost_from_then_on() -> None:
    async with a_stage() as stage:
        await stage.add("east")
        await stage.connected("east")
        await asyncio.sleep(30)
        await stage.management.remove(WORKER_CLUSTERS, "east")
        await stage.until(lambda: stage.workers.get("east") is None)

        removed = clock()
        await asyncio.sleep(60)
        assert stage.workers.contact("east").lost_since == removed
        assert stage.seen.states[-1] == ("east", False)


@virtual_time
async def test_what_its_status_says_about_its_loss_counts_after_a_restart() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await cluster.cut_off()
        await stage.set_status("east", connected=False, since="2023-11-14T22:00:00Z")
        await stage.lost("east")
        assert stage.workers.contact("east").lost_since == 1_699_999_200.0

        stage.workers.begin()
        assert stage.workers.contact("east").lost_since == 1_699_999_200.0


@virtual_time
async def test_what_others_reached_until_now_was_not_lost() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await stage.connected("east")
        await stage.set_status("east", connected=True, since="2023-11-14T22:00:00Z")
        await stage.until(lambda: stage.workers.contact("east").recorded)
        assert stage.seen.states[-1] == ("east", False), "renewals of fences wait for this"
        await cluster.cut_off()
        await stage.lost("east")
        assert (stage.workers.contact("east").lost_since or 0.0) < NOW + 20

        await asyncio.sleep(100)
        stage.workers.begin()
        assert stage.workers.contact("east").lost_since == clock()


@virtual_time
async def test_sixteen_writes_that_hang_do_not_lose_a_worker() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        worker = await stage.connected("east")
        session = worker.session
        assert session is not None
        cluster.delays["POST"] = 10.0

        async def write_on() -> None:
            for number in range(4):
                with contextlib.suppress(TimedOut):  # four of twenty wait for the others
                    await session.writer.create(JOBS, a_copy(f"train-{number}-{id(asyncio.current_task())}"))

        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(write_on())
            for _ in range(10):
                await asyncio.sleep(4)
                assert worker.session is session
        assert worker.session is session
        assert ("east", False) not in stage.seen.states
        assert worker.state.latency is not None
        assert worker.state.latency < 1.0


@virtual_time
async def test_its_clock_is_compared_with_ours() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        cluster.date = "Tue, 14 Nov 2023 22:14:20 GMT"  # a minute after NOW
        await stage.connected("east")
        assert 58 < stage.workers.contact("east").clock_ahead <= 60


@pytest.mark.parametrize(
    ("refusal", "reason", "message"),
    [
        (
            (503, "ServiceUnavailable", "the server is starting"),
            "ServerError",
            "it answers, and is not ready yet (503 ServiceUnavailable: the server is starting)",
        ),
        (
            (403, "Forbidden", "RBAC: clusterrole not found"),
            "Forbidden",
            "it answers, and refuses (403 Forbidden: RBAC: clusterrole not found)",
        ),
    ],
)
def test_of_a_server_that_answers_nobody_says_that_it_cannot_be_reached(
    refusal: tuple[int, str, str], reason: str, message: str
) -> None:
    @virtual_time
    async def story() -> None:
        async with a_stage() as stage:
            cluster = await stage.add("east")
            await stage.connected("east")
            cluster.refusal = refusal
            worker = await stage.lost("east")
            assert (worker.state.reason, worker.state.message) == (reason, message)
            contact = stage.workers.contact("east")
            assert out_of_reach("east", contact.reason, contact.why) == f"worker east is of no use now ({message})"
            cluster.refusal = None
            await stage.connected("east")
            await cluster.cut_off()
            await stage.lost("east")
            contact = stage.workers.contact("east")
            assert out_of_reach("east", contact.reason, contact.why).startswith("worker east cannot be reached (")

    story()

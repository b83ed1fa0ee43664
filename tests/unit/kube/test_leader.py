"""Leader election: at most one leader, at any moment, by the only clock there is."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from multimirror.kube import Client, LeaderElector
from multimirror.kube.errors import LeadershipLost
from multimirror.kube.supervise import TaskEnded
from tests.unit.kube.servers import THINGS, Seen, Server, Things, Wire, running
from tests.unit.kube.virtual_time import virtual_time


class Candidate:
    """A process that wants to lead, and notes when it does."""

    def __init__(self, client: Client, name: str) -> None:
        self.elector = LeaderElector(client, "it", "default", identity=name)
        self.since: float | None = None
        self.until: float | None = None
        self.enough = asyncio.Event()

    async def lead(self) -> None:
        self.since = asyncio.get_running_loop().time()
        try:
            await self.enough.wait()
        finally:
            self.until = asyncio.get_running_loop().time()

    async def run(self) -> None:
        await self.elector.run(self.lead)


@asynccontextmanager
async def an_election() -> AsyncIterator[tuple[Server, Things, Client]]:
    async with running() as server, Client(server.connection()) as client:
        yield server, Things(server, plural="leases"), client


def holder(leases: Things) -> str:
    return str(leases.objects["it"]["spec"]["holderIdentity"])


@virtual_time
async def test_of_two_candidates_one_leads_and_the_other_takes_over_when_it_stops() -> None:
    async with an_election() as (_, leases, client), asyncio.TaskGroup() as tasks:
        one, two = Candidate(client, "one"), Candidate(client, "two")
        first = tasks.create_task(one.run())
        await asyncio.sleep(1)
        tasks.create_task(two.run())
        await asyncio.sleep(120)
        assert [one.elector.is_leader, two.elector.is_leader] == [True, False]
        assert two.elector.leader == "one"
        one.enough.set()
        await first
        stopped = asyncio.get_running_loop().time()
        await asyncio.sleep(5)
        assert two.since is not None
        assert 0 <= two.since - stopped <= 2.5
        assert holder(leases) == "two"
        assert leases.objects["it"]["spec"]["leaseTransitions"] == 1
        two.enough.set()
    assert holder(leases) == ""


@virtual_time
async def test_a_leader_that_died_is_followed_after_its_lease_has_run_out() -> None:
    async with an_election() as (_, leases, client), running() as other, Client(other.connection()) as own:
        other.then(leases.handle)
        one, two = Candidate(own, "one"), Candidate(client, "two")
        first = asyncio.create_task(one.run())
        await asyncio.sleep(10)
        other.cut_off()  # nothing can be released
        first.cancel()
        died = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(two.run())
            await asyncio.sleep(40)
            assert first.cancelled()
            assert two.since is not None
            assert 13 <= two.since - died <= 18
            two.enough.set()


@virtual_time
async def test_a_leader_that_cannot_reach_the_server_stops_before_another_may_start() -> None:
    async with (
        an_election() as (server, leases, client),
        running() as other,
        Client(other.connection()) as another_way,
    ):
        other.then(leases.handle)
        one, two = Candidate(client, "one"), Candidate(another_way, "two")
        first = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        second = asyncio.create_task(two.run())
        await asyncio.sleep(3)
        server.cut_off()
        with pytest.raises(LeadershipLost):
            await first
        await asyncio.sleep(30)
        assert one.until is not None
        assert two.since is not None
        assert one.until < two.since
        two.enough.set()
        await second


@virtual_time
async def test_leadership_that_cannot_be_proved_stops_writes_even_before_anybody_noticed() -> None:
    async with (
        an_election() as (server, leases, client),
        running() as things_server,
        Client(things_server.connection()) as plain,
    ):
        Things(things_server)
        one = Candidate(client, "one")
        guarded = plain.guarded(one.elector.guard)
        with pytest.raises(LeadershipLost):
            await guarded.create(THINGS, {"metadata": {"name": "too-early"}})
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        await guarded.create(THINGS, {"metadata": {"name": "fine"}})
        server.cut_off()
        await asyncio.sleep(12)
        with pytest.raises(LeadershipLost, match="nothing is written"):
            await guarded.create(THINGS, {"metadata": {"name": "too-late"}})
        await guarded.get(THINGS, "fine", "default")
        assert [seen.method for seen in things_server.seen] == ["POST", "GET"]
        with pytest.raises(LeadershipLost):
            await task
    assert holder(leases) == "one"


@virtual_time
async def test_leadership_lost_while_a_connection_is_made_stops_the_write_that_waits_for_it() -> None:
    """As after SIGSTOP in the middle of a handshake: the check has to come when the connection is there."""
    async with an_election() as (server, _, client), running() as slow:
        sent: list[bytes] = []

        async def tunnel(_: Seen, wire: Wire) -> None:
            await asyncio.sleep(12)
            await wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
            sent.append(await wire.reader.read(100))

        slow.then(tunnel)
        one = Candidate(client, "one")
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        server.cut_off()
        async with Client(slow.connection(proxy=f"http://127.0.0.1:{slow.port}")) as plain:
            with pytest.raises(LeadershipLost, match="nothing is written"):
                await plain.guarded(one.elector.guard).create(THINGS, {"metadata": {"name": "too-late"}})
        assert [seen.method for seen in slow.seen] == ["CONNECT"]
        assert not any(sent)
        with pytest.raises(LeadershipLost):
            await task


@virtual_time
async def test_a_process_that_slept_knows_that_it_does_not_lead_before_its_loop_turns_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with an_election() as (_, _, client):
        one = Candidate(client, "one")
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        one.elector.check()
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        monkeypatch.setattr(time, "clock_gettime", lambda _: now + 60)
        with pytest.raises(LeadershipLost):
            one.elector.check()
        one.enough.set()
        await task


@virtual_time
async def test_a_lease_taken_by_somebody_else_ends_the_leadership_at_the_next_look() -> None:
    async with an_election() as (_, leases, client):
        one = Candidate(client, "one")
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        await leases.put("it", spec={"holderIdentity": "usurper", "leaseDurationSeconds": 15})
        with pytest.raises(LeadershipLost, match="to usurper"):
            await task
        assert asyncio.get_running_loop().time() < 8
        assert holder(leases) == "usurper"


@virtual_time
async def test_a_renewal_that_took_effect_but_was_not_answered_does_not_cost_the_leadership() -> None:
    async with an_election() as (server, leases, client):
        one = Candidate(client, "one")
        task = asyncio.create_task(one.run())
        await asyncio.sleep(5)

        async def answer_lost(seen: Seen, wire: Wire) -> None:
            if seen.method == "PUT":
                await leases.put("it", spec=seen.json["spec"])
                wire.reset()
            else:
                await leases.handle(seen, wire)

        server.scripts.clear()
        server.then(answer_lost)
        server.then(leases.handle)
        await asyncio.sleep(60)
        assert one.elector.is_leader
        one.enough.set()
        await task


@virtual_time
async def test_what_ends_the_leaders_work_with_an_error_is_told_and_the_lease_given_back() -> None:
    async with an_election() as (_, leases, client):

        async def fail() -> None:
            await asyncio.sleep(1)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await LeaderElector(client, "it", "default", identity="one").run(fail)
        assert holder(leases) == ""


@virtual_time
async def test_a_renewal_that_cannot_go_on_ends_the_work() -> None:
    async with an_election() as (_, _, client):

        def broken_clock() -> datetime:
            now = asyncio.get_running_loop().time()
            return datetime.fromtimestamp(now, UTC) if now < 60 else datetime.fromtimestamp(1 / 0, UTC)

        one = Candidate(client, "one")
        elector = LeaderElector(client, "it", "default", identity="one", wall_clock=broken_clock)
        with pytest.raises(TaskEnded, match=r"^renewal of lease default/it ended unexpectedly: ZeroDivisionError"):
            await elector.run(one.lead)
        assert one.until == asyncio.get_running_loop().time()
        assert 60 <= one.until <= 62.5
        assert not elector.is_leader


@virtual_time
async def test_a_lease_without_anything_in_it_is_free() -> None:
    async with an_election() as (_, leases, client), asyncio.TaskGroup() as tasks:
        await leases.put("it", spec=None)
        one = Candidate(client, "one")
        tasks.create_task(one.run())
        await asyncio.sleep(20)
        assert holder(leases) == "one"
        one.enough.set()


@virtual_time
async def test_the_log_says_who_became_leader_who_waits_and_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    async with an_election() as (_, leases, client), asyncio.TaskGroup() as tasks:
        one, two = Candidate(client, "one"), Candidate(client, "two")
        tasks.create_task(one.run())
        await asyncio.sleep(1)
        assert "became leader" in capsys.readouterr().out
        second = asyncio.ensure_future(two.run())
        await asyncio.sleep(1)
        assert "waiting for the lease" in capsys.readouterr().out
        one.enough.set()
        await asyncio.sleep(5)
        assert "released lease" in capsys.readouterr().out
        await leases.put("it", spec={"holderIdentity": "usurper", "leaseDurationSeconds": 15})
        await asyncio.wait([second])
        assert "lost lease" in capsys.readouterr().out
        with pytest.raises(LeadershipLost):
            await second

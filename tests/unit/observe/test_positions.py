"""Positions on the Jobs themselves, on virtual time: whose, when, and what that costs."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from multimirror.api import CLUSTER_ANNOTATION
from multimirror.api.names import ESTIMATED_START_ANNOTATION, POSITION_ANNOTATION
from multimirror.batch import Json
from multimirror.batch.times import format_time, utc_datetime
from multimirror.kinds import JOB, Kind, Ref
from multimirror.kinds.pod_sets import nanos
from multimirror.kube import Client
from multimirror.kube.errors import Conflict
from multimirror.kube.own_writes import OwnWrites
from multimirror.observe.positions import Positions
from multimirror.observe.sharing import RecentStarts
from multimirror.observe.snapshot import InLine
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.observe.fleets import Fleet

EPOCH = 1_800_000_000.0
MINUTE = 70.0
"""In which everything is written that is due each minute."""


def now() -> float:
    return EPOCH + asyncio.get_running_loop().time()


class Jobs:
    """The Jobs that wait, the API server that has them, and the queues that they are in."""

    def __init__(self) -> None:
        self.state = Fleet()
        self.objects: dict[str, Json] = {}
        self.patched: list[str] = []
        self.conflict = False
        self._version = 0

    def waits(self, name: str, queue: str = "q", *, since: float = 0.0) -> None:
        """In its queue, behind all others."""
        created = format_time(utc_datetime(EPOCH + since))
        self.objects.setdefault(name, {"metadata": {"name": name, "namespace": "team", "uid": name}})
        self.objects[name]["metadata"]["resourceVersion"] = "0"
        job = InLine(key=f"team/{name}", uid=name, since=created, requests={"cpu": nanos(1)})
        self.state.lines.setdefault(queue, []).append(job)
        self.state.waiting[queue] = len(self.state.lines[queue])
        if queue not in [each["metadata"]["name"] for each in self.state.queues]:
            self.state.queues.append({"metadata": {"name": queue}})

    def leaves(self, name: str, queue: str = "q", **annotations: str) -> None:
        """Its queue; it may be there still."""
        self.state.lines[queue] = [job for job in self.state.lines[queue] if job.uid != name]
        self.state.waiting[queue] = len(self.state.lines[queue])
        metadata = self.objects[name]["metadata"]
        metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}

    def told(self, key: str = POSITION_ANNOTATION) -> dict[str, str]:
        found = {name: (obj["metadata"].get("annotations") or {}).get(key) for name, obj in self.objects.items()}
        return {name: value for name, value in found.items() if value is not None}

    # --- the cache, and the server

    def get(self, ref: Ref) -> Json | None:
        return self.objects.get(ref.uid)

    def kind(self, ref: Ref) -> Kind:
        return JOB

    def all(self) -> Iterable[tuple[Ref, Json]]:
        return [(Ref(JOB.resource.name, name), obj) for name, obj in self.objects.items()]

    def writes(self, ref: Ref) -> OwnWrites:
        return cast("OwnWrites", self)

    def wrote(self, obj: Json) -> None:
        pass

    async def patch(self, resource: Any, name: str, body: Json, namespace: str) -> Json:
        metadata = self.objects[name]["metadata"]
        assert (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) == (name, metadata["resourceVersion"])
        self.patched.append(name)
        if self.conflict:
            raise Conflict("changed")
        noted = metadata.get("annotations", {}) | body["metadata"]["annotations"]
        self._version += 1
        metadata |= {
            "annotations": {key: value for key, value in noted.items() if value is not None},
            "resourceVersion": str(self._version),
        }
        return self.objects[name]


@asynccontextmanager
async def showing(jobs: Jobs) -> AsyncIterator[None]:
    positions = Positions(cast("Client", jobs), jobs.state, jobs, clock=now)
    task = asyncio.get_running_loop().create_task(positions.run())
    try:
        yield
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])


@virtual_time
async def test_the_first_ten_that_have_waited_for_a_minute_say_their_position_and_nobody_else() -> None:
    jobs = Jobs()
    for number in range(1, 13):
        jobs.waits(f"job-{number}", since=-300.0 if number != 3 else 30.0)
    async with showing(jobs):
        await asyncio.sleep(MINUTE)
        assert jobs.told() == {f"job-{number}": str(number) for number in range(1, 11) if number != 3}
        await asyncio.sleep(MINUTE)
        assert jobs.told()["job-3"] == "3"


@virtual_time
async def test_what_has_not_changed_is_not_written_again() -> None:
    jobs = Jobs()
    for number in range(5):
        jobs.waits(f"job-{number}", since=-300.0)
    async with showing(jobs):
        await asyncio.sleep(60 * MINUTE)
        assert sorted(jobs.patched) == [f"job-{number}" for number in range(5)]


@virtual_time
async def test_one_is_written_once_a_minute_at_most_and_all_together_two_a_second() -> None:
    jobs = Jobs()
    for queue in range(100):
        for number in range(12):
            jobs.waits(f"job-{queue}-{number}", f"q{queue}", since=-300.0)
    async with showing(jobs):
        for _ in range(20):
            for queue in range(100):
                line = jobs.state.lines[f"q{queue}"]
                line.insert(0, line.pop())
            await asyncio.sleep(30)
    assert 600 <= len(jobs.patched) <= 1300
    assert max(jobs.patched.count(name) for name in jobs.objects) <= 10


@virtual_time
async def test_what_is_not_true_any_more_is_taken_away_also_after_a_restart() -> None:
    jobs = Jobs()
    for name in ("held", "assigned", "first"):
        jobs.waits(name, since=-300.0)
    async with showing(jobs):
        await asyncio.sleep(MINUTE)
        assert jobs.told() == {"held": "1", "assigned": "2", "first": "3"}
    jobs.leaves("held")
    jobs.leaves("assigned", **{CLUSTER_ANNOTATION: "w1"})
    async with showing(jobs):
        await asyncio.sleep(2 * MINUTE)
    assert jobs.told() == {"first": "1"}


@virtual_time
async def test_an_estimate_is_a_moment_and_is_written_again_when_it_is_off() -> None:
    jobs = Jobs()
    jobs.waits("job", since=-300.0)
    jobs.state.starts["q"] = RecentStarts(jobs=1, sizes={"cpu": nanos(1)})
    async with showing(jobs):
        await asyncio.sleep(MINUTE)
        assert jobs.told(ESTIMATED_START_ANNOTATION) == {"job": "about 2027-01-15T09:01:00Z"}
        await asyncio.sleep(4 * MINUTE)
        assert len(jobs.patched) == 1, "five minutes later it would be five minutes later"
        jobs.state.starts["q"] = RecentStarts(jobs=2, sizes={"cpu": nanos(2)})
        await asyncio.sleep(MINUTE)
        assert jobs.told(ESTIMATED_START_ANNOTATION) == {"job": "about 2027-01-15T08:36:00Z"}
        del jobs.state.starts["q"]
        await asyncio.sleep(MINUTE)
        assert jobs.told(ESTIMATED_START_ANNOTATION) == {}
        assert jobs.told() == {"job": "1"}


@virtual_time
async def test_who_was_changed_by_somebody_else_is_left_to_the_next_round() -> None:
    jobs = Jobs()
    jobs.waits("job", since=-300.0)
    jobs.conflict = True
    async with showing(jobs):
        await asyncio.sleep(MINUTE)
        assert (jobs.patched, jobs.told()) == (["job"], {})
        jobs.conflict = False
        await asyncio.sleep(MINUTE)
        assert jobs.told() == {"job": "1"}


@virtual_time
async def test_an_estimate_beyond_all_calendars_is_none_and_ends_nothing() -> None:
    jobs = Jobs()
    jobs.waits("absurd", since=-300.0)
    jobs.state.lines["q"][0] = replace(jobs.state.lines["q"][0], requests={"cpu": nanos(2**63)})
    jobs.waits("behind-it", since=-300.0)
    jobs.state.starts["q"] = RecentStarts(jobs=1, sizes={"cpu": nanos(1)})
    async with showing(jobs):
        await asyncio.sleep(MINUTE)
        assert jobs.told() == {"absurd": "1", "behind-it": "2"}
        assert jobs.told(ESTIMATED_START_ANNOTATION) == {}


@virtual_time
async def test_for_a_position_nobody_looks_at_every_node_of_every_worker() -> None:
    jobs = Jobs()
    jobs.waits("a", since=-300.0)
    async with showing(jobs):
        await asyncio.sleep(MINUTE)
        assert jobs.told() == {"a": "1"}
        assert jobs.state.compared == []

"""The reporter on virtual time, with an API server in memory: what is written, when, and what one bad object costs."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from multimirror.api import COHORTS, MIRROR_QUEUES, WORKER_CLUSTERS, CohortSpec, MirrorQueueSpec, Quota
from multimirror.batch import Json
from multimirror.kube.errors import Invalid
from multimirror.observe.copies import CopyCounter
from multimirror.observe.reporter import Reporter
from multimirror.observe.sharing import RecentStarts
from multimirror.options import DispatcherOptions
from multimirror.scheduling.past_use import PastUses
from multimirror.workers import WorkerState
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.observe.fleets import Api, Fleet, Sum

EPOCH = 1_800_000_000.0
UP = WorkerState(connected=True, reason="Connected", message="Kubernetes v1.36.0")
LOST = WorkerState(reason="Unreachable", message="no route to host")
WHILE = 60.0
"""Virtual seconds in which everything that is due has been written."""


def now() -> float:
    return EPOCH + asyncio.get_running_loop().time()


@asynccontextmanager
async def reporting(
    api: Api,
    *,
    counted: bool = True,
    told: list[tuple[str, str, str]] | None = None,
    past_uses: PastUses | None = None,
) -> AsyncIterator[Reporter]:
    """`told`: is given what is told of objects, by name."""
    options = DispatcherOptions(report_seconds=5.0, contact_seconds=60.0)

    def tell(about: Json, reason: str, message: str) -> None:
        if told is not None:
            told.append((about["metadata"]["name"], reason, message))

    reporter = Reporter(api.client, api.fleet, options, clock=now, tell=tell, past_uses=past_uses)
    task = asyncio.get_running_loop().create_task(reporter.run())
    if counted:
        reporter.counted()
    try:
        yield reporter
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])


def a_fleet(
    *,
    workers: Iterable[str] = (),
    queues: Iterable[str] = (),
    unknown_fields: Iterable[str] = (),
    fleet: Fleet | None = None,
) -> Api:
    fleet = fleet or Fleet()
    api = Api(fleet, unknown_fields=unknown_fields)
    api.watched = False
    for worker in workers:
        fleet.states[worker] = UP
        fleet.on_workers[worker] = Sum()
        api.put(WORKER_CLUSTERS, worker)
    for queue in queues:
        fleet.queue_specs[queue] = MirrorQueueSpec()
        api.put(MIRROR_QUEUES, queue)
    api.watched = True
    api.watch()
    return api


def conditions(status: Json) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status.get("conditions") or ()}


# --- what is written, and when ----------------------------------------------------------------------------------------


@virtual_time
async def test_a_condition_is_written_at_once_and_numbers_every_few_seconds() -> None:
    api = a_fleet(workers=["w"])
    async with reporting(api) as reporter:
        await asyncio.sleep(WHILE)
        assert conditions(api.status(WORKER_CLUSTERS, "w")) == {"Connected": "True", "Ready": "True"}
        api.writes.clear()
        for jobs in range(1, 21):
            api.fleet.on_workers["w"] = Sum(jobs)
            reporter.wake()
            await asyncio.sleep(1)
        assert 3 <= len(api.writes) <= 5
        before = asyncio.get_running_loop().time()
        api.fleet.states["w"] = LOST
        reporter.wake()
        await asyncio.sleep(1.5)
        assert conditions(api.status(WORKER_CLUSTERS, "w")) == {"Connected": "False", "Ready": "False"}
        assert api.writes[-1].at <= before + 1


@virtual_time
async def test_what_did_not_change_is_not_written() -> None:
    api = a_fleet(workers=["w"], queues=["q"])
    async with reporting(api) as reporter:
        for _ in range(100):
            reporter.wake()
            await asyncio.sleep(1)
    for name in ("w", "q"):
        written = ["conditions" in write.status for write in api.writes if write.name == name]
        assert written == [True, False], "conditions come first, then the numbers; then nothing"


@virtual_time
async def test_what_was_written_is_not_written_again_while_the_cache_does_not_show_it() -> None:
    api = a_fleet(queues=["q"])
    api.watched = False
    async with reporting(api) as reporter:
        await asyncio.sleep(WHILE)
        api.fleet.waiting["q"] = 3
        reporter.wake()
        await asyncio.sleep(WHILE)
        assert [write.name for write in api.writes] == ["q", "q"], "conditions and numbers"
        api.watch()
        await asyncio.sleep(WHILE)
    assert api.writes[-1].status == {"pending": 3}
    assert len(api.writes) == 3


@virtual_time
async def test_a_patch_that_changes_nothing_on_the_server_does_not_keep_later_ones_from_being_written() -> None:
    """The server has an older CRD, which does not know a field: the version stays, and nothing is on its way."""
    api = a_fleet(queues=["q"], unknown_fields=["workers"])
    api.fleet.running["q"] = Counter(a=1)
    async with reporting(api) as reporter:
        await asyncio.sleep(WHILE)
        assert api.writes[-1].status == {"workers": [{"name": "a", "running": 1, "finished": 0}]}, "it changed nothing"
        api.fleet.waiting["q"] = 3
        reporter.wake()
        await asyncio.sleep(WHILE)
    assert api.status(MIRROR_QUEUES, "q")["pending"] == 3


@virtual_time
async def test_a_patch_that_changes_nothing_is_sent_again_only_after_a_long_while() -> None:
    api = a_fleet(queues=["q"], unknown_fields=["workers"])
    async with reporting(api) as reporter:
        await asyncio.sleep(WHILE)
        api.writes.clear()
        for _ in range(100):
            reporter.wake()
            await asyncio.sleep(2)
        assert api.writes == []
        api.unknown_fields = frozenset()  # the CRD is brought up to date
        await asyncio.sleep(300)
    assert api.status(MIRROR_QUEUES, "q")["workers"] == []


@virtual_time
async def test_a_write_that_failed_is_made_good_by_the_next() -> None:
    api = a_fleet(workers=["w"], queues=["q"])
    api.down = True
    async with reporting(api):
        await asyncio.sleep(WHILE)
        assert api.writes == []
        api.down = False
        await asyncio.sleep(2 * 5)
    assert conditions(api.status(WORKER_CLUSTERS, "w")) == {"Connected": "True", "Ready": "True"}
    assert conditions(api.status(MIRROR_QUEUES, "q")) == {"Ready": "True"}
    assert len(api.writes) == 4


@virtual_time
async def test_a_write_whose_answer_was_lost_is_not_repeated_once_the_cache_shows_it() -> None:
    api = a_fleet(queues=["q"])
    api.answers_lost = True
    async with reporting(api):
        await asyncio.sleep(WHILE)
    assert len(api.writes) == 2


@virtual_time
async def test_an_object_made_anew_under_the_same_name_has_a_status_of_its_own() -> None:
    api = a_fleet(queues=["q"])
    async with reporting(api) as reporter:
        await asyncio.sleep(WHILE)
        api.delete(MIRROR_QUEUES, "q")
        api.put(MIRROR_QUEUES, "q")
        reporter.wake()
        await asyncio.sleep(2)
    assert conditions(api.status(MIRROR_QUEUES, "q")) == {"Ready": "True"}


@virtual_time
async def test_queues_are_reported_on_once_every_job_was_looked_at() -> None:
    api = a_fleet(workers=["w"], queues=["q"])
    async with reporting(api, counted=False) as reporter:
        await asyncio.sleep(WHILE)
        assert {write.name for write in api.writes} == {"w"}
        reporter.counted()
        await asyncio.sleep(2)
    assert {write.name for write in api.writes} == {"w", "q"}


# --- one does not cost the others -------------------------------------------------------------------------------------


@virtual_time
async def test_a_worker_whose_status_cannot_be_made_costs_itself_alone() -> None:
    api = a_fleet(workers=["a", "broken", "z"], queues=["q"])
    api.fleet.on_workers["broken"] = Sum(1, {"cpu": Decimal("Infinity")})
    with capture_logs() as logs:
        async with reporting(api):
            await asyncio.sleep(WHILE)
            assert {write.name for write in api.writes if "conditions" not in write.status} == {"a", "z", "q"}
            assert conditions(api.status(WORKER_CLUSTERS, "broken")) == {"Connected": "True", "Ready": "True"}
            api.fleet.on_workers["broken"] = Sum(1, {"cpu": Decimal(2)})
            await asyncio.sleep(WHILE)
    assert api.status(WORKER_CLUSTERS, "broken")["used"] == {"cpu": "2"}
    errors = [(log["event"], log["name"]) for log in logs if log["log_level"] == "error"]
    assert errors == [("status not reported", "broken")], "told once, and not in every round"


@virtual_time
async def test_copies_that_cannot_be_counted_cost_their_worker_alone() -> None:
    @dataclass
    class Hostile(Fleet):
        def copy_states(self, worker: str) -> Iterable[str]:
            if worker == "hostile":
                raise TypeError("a copy without metadata")
            return ("running", "running", "failed")

    fleet = Hostile(states={"hostile": UP, "good": UP})
    api = Api(fleet)
    api.put(WORKER_CLUSTERS, "hostile")
    api.put(WORKER_CLUSTERS, "good")
    with capture_logs() as logs:
        async with reporting(api) as reporter:
            await asyncio.sleep(WHILE)
            copies = {worker.name: worker.copies for worker in reporter.snapshot().workers}
    assert copies == {"hostile": None, "good": {"running": 2, "failed": 1}}
    assert len([log for log in logs if log["log_level"] == "error"]) == 1
    assert len(api.writes) == 4


@virtual_time
async def test_a_thousand_queues_to_write_do_not_delay_the_word_that_a_worker_is_lost() -> None:
    api = a_fleet(workers=["w"], queues=[f"q{number}" for number in range(1000)])
    api.seconds_to_answer = 0.5
    async with reporting(api) as reporter:
        await asyncio.sleep(10)
        assert 0 < sum(write.resource == "mirrorqueues" for write in api.writes) < 100
        api.fleet.states["w"] = LOST
        reporter.wake()
        await asyncio.sleep(2)
        assert conditions(api.status(WORKER_CLUSTERS, "w"))["Connected"] == "False"


@virtual_time
async def test_of_many_numbers_a_few_are_written_in_a_second_and_all_have_their_turn() -> None:
    names = [f"q{number}" for number in range(100)]
    api = a_fleet(queues=names)
    async with reporting(api) as reporter:
        await asyncio.sleep(WHILE)
        api.writes.clear()
        for second in range(100):
            api.fleet.waiting.update(names)
            reporter.wake()
            await asyncio.sleep(1)
            assert len(api.writes) <= 20 + 4 * (second + 1)
    written = Counter(write.name for write in api.writes)
    assert set(written) == set(names)
    assert max(written.values()) <= min(written.values()) + 1


@virtual_time
async def test_between_objects_everything_else_has_its_turn() -> None:
    @dataclass
    class Watched(Fleet):
        """Counts how many queues are looked at between two turns of the event loop."""

        looked_at: int = 0
        most: int = 0

        def pending(self, queue: str) -> int:
            if not self.looked_at:
                asyncio.get_running_loop().call_soon(self._turn)
            self.looked_at += 1
            return super().pending(queue)

        def _turn(self) -> None:
            self.most, self.looked_at = max(self.most, self.looked_at), 0

    fleet = Watched()
    api = a_fleet(fleet=fleet, queues=[f"q{number}" for number in range(1000)])
    async with reporting(api):
        await asyncio.sleep(WHILE)
    assert len({write.name for write in api.writes}) == 1000
    assert 0 < fleet.most <= 20


# --- what the server refuses ------------------------------------------------------------------------------------------


def failures(kind: str, reason: str) -> float:
    return gauge("status_write_failures_total", kind=kind, reason=reason) or 0.0


@virtual_time
async def test_numbers_that_are_refused_keep_no_condition_from_being_told() -> None:
    api = a_fleet(workers=["w"])
    api.refuse = lambda status: Invalid("too many properties") if "used" in status else None
    before = failures("WorkerCluster", "Invalid")
    with capture_logs() as logs:
        async with reporting(api) as reporter:
            await asyncio.sleep(WHILE)
            assert conditions(api.status(WORKER_CLUSTERS, "w")) == {"Connected": "True", "Ready": "True"}
            api.fleet.states["w"] = LOST
            reporter.wake()
            await asyncio.sleep(2)
            assert conditions(api.status(WORKER_CLUSTERS, "w")) == {"Connected": "False", "Ready": "False"}
            assert failures("WorkerCluster", "Invalid") > before
            await asyncio.sleep(3600)
            tries = failures("WorkerCluster", "Invalid") - before
            assert 12 <= tries <= 25, "ever more seldom, and never given up"
            api.refuse = lambda _: None
            await asyncio.sleep(310)
            assert api.status(WORKER_CLUSTERS, "w")["jobs"] == 0
    errors = [(log["event"], log["part"]) for log in logs if log["log_level"] == "error"]
    assert errors == [("status not written", "numbers")], "logged once for as long as it fails in the same way"


@virtual_time
async def test_an_outage_is_over_when_it_is_over() -> None:
    api = a_fleet(workers=["w"])
    api.down = True
    before = failures("WorkerCluster", "Unreachable")
    async with reporting(api):
        await asyncio.sleep(3600)
        assert failures("WorkerCluster", "Unreachable") > before
        api.down = False
        await asyncio.sleep(10)
    assert conditions(api.status(WORKER_CLUSTERS, "w")) == {"Connected": "True", "Ready": "True"}


@virtual_time
async def test_only_resources_of_quotas_and_capacities_are_reported_and_not_very_many() -> None:
    asked = {f"example.com/r{number:03}": Decimal(1) for number in range(200)}
    api = a_fleet(workers=["w"], queues=["q"])
    api.fleet.on_workers["w"] = Sum(1, {"cpu": Decimal(2), **asked})
    api.fleet.queue_specs["q"] = MirrorQueueSpec(quota=Quota(resources={"example.com/r190": Decimal(5)}))
    async with reporting(api):
        await asyncio.sleep(WHILE)
        assert api.status(WORKER_CLUSTERS, "w")["used"] == {"cpu": "2", "example.com/r190": "1"}
        hostile = {"cpu": Decimal(8), "no name at all!": Decimal(1), "x" * 70: Decimal(1), **asked}
        api.fleet.states["w"] = replace(UP, capacity=hostile)
        await asyncio.sleep(WHILE)
    status = api.status(WORKER_CLUSTERS, "w")
    assert status["capacity"]["example.com/r190"] == "1", "those of quotas come first"
    assert len(status["capacity"]) <= 32
    assert len(status["used"]) <= 32
    assert not {"no name at all!", "x" * 70} & set(status["capacity"])


# --- numbers ----------------------------------------------------------------------------------------------------------


def gauge(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"multimirror_{name}", labels)


@virtual_time
async def test_gauges_show_what_is_there_and_forget_what_is_gone() -> None:
    worker, queue = "gauged-worker", "gauged-queue"
    api = a_fleet(workers=[worker], queues=[queue])
    api.fleet.on_workers[worker] = Sum(2)
    api.fleet.running[queue] = Counter({worker: 2})
    api.fleet.waiting[queue] = 7
    api.fleet.copies[worker] = ["running", "suspended", "running"]

    def shown() -> list[float | None]:
        return [
            gauge("worker_up", worker=worker),
            gauge("worker_jobs", worker=worker),
            gauge("copies", worker=worker, state="running"),
            gauge("copies", worker=worker, state="failed"),
            gauge("queue_pending_jobs", queue=queue),
            gauge("queue_running_jobs", queue=queue),
        ]

    async with reporting(api):
        await asyncio.sleep(WHILE)
        assert shown() == [1, 2, 2, 0, 7, 2]
        api.delete(WORKER_CLUSTERS, worker)
        api.delete(MIRROR_QUEUES, queue)
        await asyncio.sleep(WHILE)
        assert shown() == [None] * 6


@virtual_time
async def test_the_more_copies_the_more_seldom_they_are_counted() -> None:
    counter = CopyCounter(shortest_interval=5.0)
    await counter.count("small", ["running"] * 10)
    await counter.count("large", ["running"] * 20_000)
    due: dict[str, list[int]] = {"small": [], "large": []}
    for second in range(21):
        for worker in due:
            due[worker] += [second] if counter.is_due(worker) else []
        await asyncio.sleep(1)
    assert due["small"][0] == 5
    assert due["large"] == [20]
    counter.keep(["small"])
    assert counter.counts == {"small": {"running": 10}}


@virtual_time
async def test_copies_are_counted_in_slices() -> None:
    counter = CopyCounter(shortest_interval=5.0)
    task = asyncio.get_running_loop().create_task(counter.count("w", ["running"] * 20_000))
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 20_000 / 500


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_times_in_a_status_are_by_the_dispatchers_clock_and_pauses_do_not_depend_on_it(skew: float) -> None:
    @virtual_time
    async def run() -> None:
        api = a_fleet(workers=["w"])
        offset = 0.0
        options = DispatcherOptions(report_seconds=5.0)
        reporter = Reporter(api.client, api.fleet, options, clock=lambda: EPOCH + offset)
        task = asyncio.get_running_loop().create_task(reporter.run())
        await asyncio.sleep(WHILE)
        api.fleet.on_workers["w"] = Sum(1)
        offset = skew  # somebody sets the clock
        await asyncio.sleep(10)
        assert api.status(WORKER_CLUSTERS, "w")["jobs"] == 1
        since = {each["lastTransitionTime"] for each in api.status(WORKER_CLUSTERS, "w")["conditions"]}
        assert since == {"2027-01-15T08:00:00Z"}
        task.cancel()
        await asyncio.wait([task])

    run()


# --- quota ------------------------------------------------------------------------------------------------------------


def sharing(**used: int) -> Api:
    """Queues of one cohort with 10 cpu each."""
    api = a_fleet(queues=used)
    for queue in used:
        api.fleet.queue_specs[queue] = MirrorQueueSpec(cohort="c", quota=Quota(resources={"cpu": Decimal(10)}))
    use(api, **used)
    return api


def use(api: Api, **used: int) -> None:
    api.fleet.in_queues |= {queue: {"cpu": Decimal(amount)} for queue, amount in used.items()}


@virtual_time
async def test_queues_and_cohorts_tell_what_they_have_and_share() -> None:
    api = sharing(a=14, b=2)
    api.put(COHORTS, "c")
    api.fleet.starts["a"] = RecentStarts(jobs=7, p50=3.4, p90=80.0)
    async with reporting(api):
        await asyncio.sleep(WHILE)
        status = api.status(MIRROR_QUEUES, "a")
        assert {field: status.get(field) for field in ("own", "used", "borrowed", "lent", "share", "fairShare")} == {
            "own": {"cpu": "10"},
            "used": {"cpu": "14"},
            "borrowed": {"cpu": "4"},
            "lent": None,
            "share": 200,
            "fairShare": 400,
        }
        assert (status["startsPerHour"], status["waitSeconds"]) == (7, {"p50": 3, "p90": 80})
        assert conditions(status) == {"Ready": "True", "Borrowing": "True", "Overused": "False"}
        assert api.status(MIRROR_QUEUES, "b")["lent"] == {"cpu": "4"}
        assert api.status(COHORTS, "c")["used"] == {"cpu": "16"}
        assert value("multimirror_queue_quota", queue="a", resource="cpu", kind="borrowed") == 4
        assert value("multimirror_queue_share", queue="a") == 200
        api.delete(MIRROR_QUEUES, "a")
        await asyncio.sleep(WHILE)
        assert value("multimirror_queue_quota", queue="a", resource="cpu", kind="borrowed") is None


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


@virtual_time
async def test_a_queue_that_leaves_its_cohort_says_no_more_of_sharing() -> None:
    api = sharing(a=14, b=2)
    async with reporting(api):
        await asyncio.sleep(WHILE)
        api.fleet.queue_specs["a"] = MirrorQueueSpec()
        await asyncio.sleep(WHILE)
        status = api.status(MIRROR_QUEUES, "a")
        assert conditions(status) == {"Ready": "True"}
        assert {"own", "borrowed", "lent", "share", "fairShare"}.isdisjoint(status)


@virtual_time
async def test_a_busy_queue_that_borrows_costs_a_write_every_few_seconds_and_one_a_minute_for_its_words() -> None:
    api = sharing(a=14, b=2)
    async with reporting(api) as reporter:
        await asyncio.sleep(WHILE)
        before = len(api.writes)
        for second in range(120):
            use(api, a=14 + second % 3)
            reporter.wake()
            await asyncio.sleep(1)
        writes = [write.status for write in api.writes[before:] if write.name == "a"]
        assert sum("conditions" in status for status in writes) <= 3
        assert len(writes) <= 120 / 5 + 4


@virtual_time
async def test_borrowing_that_comes_and_goes_is_not_written_each_time() -> None:
    api = sharing(a=14, b=2)
    async with reporting(api) as reporter:
        await asyncio.sleep(WHILE)
        before = len(api.writes)
        for second in range(60):
            use(api, a=14 if second % 2 else 4)
            reporter.wake()
            await asyncio.sleep(1)
        writes = [write.status for write in api.writes[before:] if write.name == "a"]
        assert 2 <= sum("conditions" in status for status in writes) <= 60 / 5 + 1
        assert conditions(api.status(MIRROR_QUEUES, "a")) in (
            {"Ready": "True", "Borrowing": holds, "Overused": "False"} for holds in ("True", "False")
        )


def remembering(half_life: int | None = 3600, **used: int) -> tuple[Api, PastUses]:
    """A cohort whose queues' past counts, and who knows it."""
    api = sharing(**used)
    api.put(COHORTS, "c")
    api.fleet.cohort_specs["c"] = CohortSpec(half_life=half_life)

    def written(is_queue: bool, name: str) -> object:
        return api.status(MIRROR_QUEUES if is_queue else COHORTS, name).get("pastUse")

    return api, PastUses(written)


@virtual_time
async def test_what_was_used_before_stands_in_the_status_and_is_seldom_written() -> None:
    """Of what goes on as it did, every tenth: so much time may pass, there is an end to it."""
    api, past_uses = remembering(300, a=15, b=0)
    async with reporting(api, past_uses=past_uses) as reporter:
        await asyncio.sleep(WHILE)
        assert api.status(MIRROR_QUEUES, "a")["pastUse"]["using"] == "0.75"
        assert api.status(MIRROR_QUEUES, "b")["pastUse"] == api.status(MIRROR_QUEUES, "b")["pastUse"] | {"value": "0"}
        before = len(api.writes)
        for _ in range(50):
            reporter.wake()
            await asyncio.sleep(60)
        writes = api.writes[before:]
        assert {write.name for write in writes} == {"a"}
        assert 4 <= len(writes) <= 8, "from 0 to 0.75, in ten half-lives"
        assert Decimal(api.status(MIRROR_QUEUES, "a")["pastUse"]["value"]) > Decimal("0.6")


@virtual_time
async def test_a_busy_queue_costs_no_write_more_because_its_past_counts() -> None:
    counts = []
    for half_life in (None, 60):
        api, past_uses = remembering(half_life, a=14, b=2)
        async with reporting(api, past_uses=past_uses) as reporter:
            await asyncio.sleep(WHILE)
            before = len(api.writes)
            for second in range(120):
                use(api, a=14 + second % 3)
                reporter.wake()
                await asyncio.sleep(1)
            counts.append(sum(write.name == "a" for write in api.writes[before:]))
            shown = "pastUse" in api.status(MIRROR_QUEUES, "a")
            assert shown is (half_life is not None)
    assert counts[1] <= counts[0] + 1


@virtual_time
async def test_a_restart_goes_on_from_what_the_status_says() -> None:
    api, past_uses = remembering(a=20, b=0)
    async with reporting(api, past_uses=past_uses):
        await asyncio.sleep(3600)
    use(api, a=0)
    again = PastUses(lambda is_queue, name: api.status(MIRROR_QUEUES if is_queue else COHORTS, name).get("pastUse"))
    async with reporting(api, past_uses=again):
        await asyncio.sleep(WHILE)
        found = api.status(MIRROR_QUEUES, "a")["pastUse"]
        assert (found["using"], round(float(found["value"]), 1)) == ("0", 0.5)


@virtual_time
async def test_what_was_used_before_is_a_metric_of_queues_and_cohorts_for_as_long_as_it_counts() -> None:
    api, past_uses = remembering(300, a=15, b=0)
    api.put(COHORTS, "above")
    specs = {"above": CohortSpec(half_life=300), "c": CohortSpec(half_life=300, parent="above")}
    api.fleet.cohort_specs = dict(specs)
    async with reporting(api, past_uses=past_uses) as reporter:
        await asyncio.sleep(300)
        shown = value("multimirror_queue_past_use", queue="a")
        assert shown == pytest.approx(0.75 / 2, abs=0.02), "one half-life of three quarters"
        assert value("multimirror_queue_past_use", queue="b") == 0
        assert value("multimirror_cohort_past_use", cohort="c") == pytest.approx(0.75 / 2, abs=0.02)
        assert value("multimirror_cohort_past_use", cohort="above") is None, "it is compared with nobody"
        api.fleet.cohort_specs = {"above": CohortSpec(), "c": CohortSpec(parent="above")}
        reporter.wake()
        await asyncio.sleep(WHILE)
        assert value("multimirror_queue_past_use", queue="a") is None
        assert value("multimirror_cohort_past_use", cohort="c") is None
        api.fleet.cohort_specs = dict(specs)
        reporter.wake()
        await asyncio.sleep(WHILE)
        assert value("multimirror_cohort_past_use", cohort="c") is not None
        del api.fleet.cohort_specs["c"]
        api.delete(COHORTS, "c")
        api.delete(MIRROR_QUEUES, "a")
        await asyncio.sleep(WHILE)
        assert value("multimirror_cohort_past_use", cohort="c") is None
        assert value("multimirror_queue_past_use", queue="a") is None


@virtual_time
async def test_without_a_half_life_the_past_leaves_the_status() -> None:
    api, past_uses = remembering(a=20, b=0)
    async with reporting(api, past_uses=past_uses) as reporter:
        await asyncio.sleep(WHILE)
        assert "pastUse" in api.status(MIRROR_QUEUES, "a")
        api.fleet.cohort_specs = {"c": CohortSpec()}
        reporter.wake()
        await asyncio.sleep(WHILE)
        assert "pastUse" not in api.status(MIRROR_QUEUES, "a")


@virtual_time
async def test_a_queue_that_begins_to_borrow_hears_so_once_and_not_again_after_a_restart() -> None:
    api = sharing(a=4, b=2)
    told: list[tuple[str, str, str]] = []
    for _ in range(2):
        async with reporting(api, told=told) as reporter:
            await asyncio.sleep(WHILE)
            for cpu in (14, 15, 14):
                use(api, a=cpu)
                reporter.wake()
                await asyncio.sleep(WHILE)
    assert told == [("a", "Borrowing", "it uses 14 cpu, 10 its own; 4 may be taken back at any time")]


@virtual_time
async def test_a_queue_that_borrows_now_and_then_hears_so_every_ten_minutes_at_most() -> None:
    api = sharing(a=4, b=2)
    told: list[tuple[str, str, str]] = []
    async with reporting(api, told=told) as reporter:
        for minute in range(31):
            use(api, a=14 if minute % 2 else 4)
            reporter.wake()
            await asyncio.sleep(60)
    assert len(told) == 3


@virtual_time
async def test_what_slips_out_of_the_last_hour_is_written_now_and_then() -> None:
    api = sharing(a=1)
    async with reporting(api):
        for jobs in range(60, 0, -1):
            api.fleet.starts["a"] = RecentStarts(jobs=jobs, p50=1.0, p90=2.0)
            await asyncio.sleep(60)
        assert 4 <= sum("startsPerHour" in write.status for write in api.writes) <= 8
        del api.fleet.starts["a"]
        await asyncio.sleep(WHILE)
        assert "startsPerHour" not in api.status(MIRROR_QUEUES, "a")

"""The reporter, whatever happens in whatever order: in the end every status says what is so, and nothing is written.

Numbers and connections change, objects come, go and are made anew, the server is away or loses its answers, the cache
is behind, and the CRD is old. Once all of that is over, each status is as the read model has it.
"""

import asyncio

from hypothesis import example, given, settings
from hypothesis import strategies as st

from multimirror.api import MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.observe.reporter import Reporter
from multimirror.options import DispatcherOptions
from multimirror.workers import WorkerState
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.observe.fleets import Api, Fleet, Sum

STATES = (
    WorkerState(connected=True, reason="Connected", message="Kubernetes v1.36.0"),
    WorkerState(connected=True, reason="Connected", message="Kubernetes v1.36.0", missing=("create Jobs",)),
    WorkerState(reason="Unreachable", message="no route to host"),
)
OLD_CRD = "the CRD is old, or new"
EVENTS = (
    "a worker has another state",
    "a worker has other Jobs",
    "others wait",
    "a queue is changed",
    "a queue is made anew",
    "the server is away, or back",
    "answers are lost, or not",
    "answers take a while, or not",
    "the cache falls behind, or catches up",
    OLD_CRD,
)


def happen(event: str, number: int, api: Api) -> None:
    even = number % 2 == 0
    match EVENTS.index(event):
        case 0:
            api.fleet.states["w"] = STATES[number % 3]
        case 1:
            api.fleet.on_workers["w"] = Sum(number)
        case 2:
            api.fleet.waiting["q"] = number
        case 3:
            api.put(MIRROR_QUEUES, "q")
        case 4:
            api.delete(MIRROR_QUEUES, "q")
            api.put(MIRROR_QUEUES, "q")
        case 5:
            api.down = even
        case 6:
            api.answers_lost = even
        case 7:
            api.seconds_to_answer = float(number % 3)
        case 8:
            api.watched = even
            api.watch()
        case 9:
            api.unknown_fields = frozenset() if even else frozenset({"pending"})


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from(EVENTS), st.integers(0, 5), st.sampled_from([0.0, 0.5, 3.0, 7.0])),
        max_size=12,
    )
)
@example([(OLD_CRD, 1, 0.5), ("others wait", 3, 7.0), ("others wait", 4, 7.0), (OLD_CRD, 0, 7.0)])
def test_in_the_end_every_status_says_what_is_so(events: list[tuple[str, int, float]]) -> None:
    @virtual_time
    async def run() -> None:
        api = Api(Fleet(states={"w": STATES[0]}))
        api.put(WORKER_CLUSTERS, "w")
        api.put(MIRROR_QUEUES, "q")
        options = DispatcherOptions(report_seconds=5.0)
        reporter = Reporter(api.client, api.fleet, options, clock=lambda: 1_800_000_000.0)
        task = asyncio.get_running_loop().create_task(reporter.run())
        reporter.counted()
        for name, number, seconds in events:
            happen(name, number, api)
            reporter.wake()
            await asyncio.sleep(seconds)
        api.down, api.answers_lost, api.watched, api.seconds_to_answer = False, False, True, 0.0
        api.watch()
        await asyncio.sleep(20)
        state, status = api.fleet.states["w"], api.status(WORKER_CLUSTERS, "w")
        holds = {each["type"]: each["status"] == "True" for each in status["conditions"]}
        assert holds == {"Connected": state.connected, "Ready": state.ready}
        assert status["jobs"] == api.fleet.worker_usage("w").jobs
        status = api.status(MIRROR_QUEUES, "q")
        assert {each["type"] for each in status["conditions"]} == {"Ready"}
        assert status["observedGeneration"] == next(iter(api.fleet.queues))["metadata"]["generation"]
        if any(name == OLD_CRD for name, _, _ in events):
            await asyncio.sleep(300)  # until a patch that changed nothing before is sent again
        if not api.unknown_fields:
            assert api.status(MIRROR_QUEUES, "q")["pending"] == api.fleet.waiting["q"]
        written = len(api.writes)
        await asyncio.sleep(30)
        assert len(api.writes) == written, "all is said"
        task.cancel()
        await asyncio.wait([task])

    run()

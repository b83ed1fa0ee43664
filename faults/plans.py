"""Scripted runs: what went wrong in the field with other multi-cluster controllers, played on ours; and what we found.

Each plan of `KNOWN` is named for an issue (kubernetes-sigs/kueue) that MultiKueue had and fixed, or still has; the text
says what a user saw. Each of `FOUND` is a bug that random seeds found here, cut down to what it takes. All of them run
in a second or so of real time and must break no promise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from faults.plan import Fault
from faults.scenario import Scenario
from faults.workload import Step

_HUB: Final = "dispatcher/management"
_ONE: Final = "dispatcher/worker-1"
_TWO: Final = "dispatcher/worker-2"


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario, and why."""

    why: str
    scenario: Scenario


def _job(at: float, name: str = "job-0", sort: str = "one", seconds: float = 5.0) -> Step:
    return Step(at, "submit", name, sort, seconds)


def _jobs(count: int, sort: str = "one", seconds: float = 5.0, apart: float = 1.0) -> list[Step]:
    return [_job(number * apart, f"job-{number}", sort, seconds) for number in range(count)]


def _watch(
    kind: str, link: str, *, at: float = 0.0, resource: str = "jobs", nth: int = 1, seconds: float = 0.0
) -> Fault:
    return Fault(kind=kind, link=link, at=at, verb="watch", resource=resource, nth=nth, seconds=seconds)


def _link(kind: str, link: str, at: float, seconds: float) -> Fault:
    return Fault(kind=kind, link=link, at=at, seconds=seconds)


def _plan(why: str, steps: list[Step], *plan: Fault, **more: object) -> Plan:
    chosen: dict[str, object] = {"seed": 1, "steps": tuple(steps), "plan": plan, "placement": "Ordered", **more}
    return Plan(why, Scenario(**chosen))  # type: ignore[arg-type] # the fields of a Scenario


KNOWN: Final[Mapping[str, Plan]] = {
    "9968": _plan(
        "an idle watch that a proxy on the way cuts without a word is replaced, and nothing is missed",
        [*_jobs(2), _job(150, "job-9")],
        _watch("mute", _ONE),
        _watch("mute", _HUB, at=20, nth=2),
    ),
    "10990": _plan(
        "a worker that refuses every connection is tried again with back-off, not in a loop",
        _jobs(3, seconds=20),
        _link("partition", _ONE, 3, 120),
        when_lost="Wait",
    ),
    "11304": _plan(
        "one slow worker does not make Jobs for the others wait",
        _jobs(8),
        _link("slow", _ONE, 1, 60),
        placement="Spread",
    ),
    "11206": _plan(
        "one worker whose watch hangs does not stop dispatch to the others",
        [*_jobs(6), _job(30, "job-9")],
        _watch("mute", _ONE, resource="*"),
        _link("blackhole", _ONE, 4, 90),
        placement="Spread",
        when_lost="Wait",
    ),
    "11559": _plan(
        "a lost worker keeps its Jobs for as long as the policy says, also when the loss begins during a reconnect",
        _jobs(2, "forever"),
        _link("partition", _ONE, 5, 2),
        _link("partition", _ONE, 8, 10),
        lost_after=20.0,
    ),
    "12824": _plan(
        "a worker that comes back gets Jobs as soon as it answers",
        [*_jobs(2), _job(15, "job-9")],
        _link("partition", _ONE, 0, 10),
        _link("partition", _TWO, 0, 10),
    ),
    "12999": _plan(
        "a watch that reconnects moves no running Job, not even where lost workers' Jobs move at once",
        [*_jobs(6, "forever", apart=2), Step(14, "rotate", "worker-1")],
        _watch("end", _ONE, at=3),
        _watch("cut", _ONE, at=5),
        _watch("gone", _ONE, at=5),
        _watch("expired_event", _ONE, at=8),
        lost_after=0.0,
    ),
    "13188": _plan(
        "other credentials are taken up at once, also while the old ones are refused",
        [*_jobs(2, seconds=30), Step(12, "rotate", "worker-1"), _job(30, "job-9")],
        _link("unauthorized", _ONE, 5, 15),
        when_lost="Wait",
    ),
    "14020": _plan(
        "setting up a watch that never answers does not block for ever",
        _jobs(3),
        Fault(kind="hang", link=_ONE, verb="watch", resource="jobs"),
        Fault(kind="hang", link=_HUB, verb="watch", resource="jobs", at=5),
        Fault(kind="hang", link=_ONE, verb="watch", resource="namespaces"),
    ),
    "11849": _plan(
        "a worker's own Job of the same name is neither touched nor deleted, and the Job runs elsewhere",
        [Step(0, "squat", "job-0", value=0), _job(1), Step(25, "delete", "job-0"), _job(2, "job-1")],
    ),
    "11515": _plan(
        "a Job deleted while its worker is away leaves nothing there once it is back",
        [*_jobs(3, "forever"), Step(10, "delete", "job-0"), Step(10, "delete", "job-1"), Step(10, "delete", "job-2")],
        _link("partition", _ONE, 5, 40),
    ),
    "9201": _plan(
        "a Job deleted while nobody looked leaves nothing behind",
        [*_jobs(3, "forever"), *(Step(9, "delete", f"job-{number}") for number in range(3))],
        Fault(kind="crash_at", link="dispatcher", at=6, seconds=20),
    ),
    "13489": _plan(
        "a Job that is scaled while the connection is bad keeps its pods",
        [_job(0, sort="wide"), Step(8, "scale", "job-0", value=4), Step(14, "scale", "job-0", value=2)],
        Fault(kind="late", link=_ONE, verb="patch", at=7),
        _link("partition", _ONE, 13, 5),
        when_lost="Wait",
    ),
    "11867": _plan(
        "a copy that ends before its start was mirrored is mirrored as it ended",
        _jobs(4, seconds=0.0),
        _watch("late_events", _ONE, seconds=10),
        _link("overload", _HUB, 1, 8),
    ),
    "8308": _plan(
        "suspending and resuming shows, however late the news",
        [_job(0, sort="forever"), Step(6, "suspend", "job-0"), Step(20, "resume", "job-0")],
        _watch("late_events", _ONE, at=6, seconds=8),
        Fault(kind="wrong", link=_ONE, verb="patch", resource="jobs", at=6, status=500),
    ),
    "14779": _plan(
        "a finished Job with a time to live is not run again when its copy goes first, or its end is written late",
        [*_jobs(3, "fleeting", 2.0)],
        _link("overload", _HUB, 3, 20),
        _link("partition", _ONE, 12, 20),
        when_lost="Wait",
    ),
    "15380": _plan(
        "a Job whose copy is deleted on the worker while the controller is away runs again, once",
        [*_jobs(2, seconds=20), Step(6, "vanish", "job-0"), Step(6, "vanish", "job-1")],
        Fault(kind="crash_at", link="dispatcher", at=5, seconds=10),
    ),
    "11115": _plan(
        "the last status arrives although the write of it fails in every way",
        _jobs(3, "many", 3.0),
        Fault(kind="lost", link=_HUB, verb="patch", resource="jobs/status", nth=3),
        Fault(kind="late", link=_HUB, verb="patch", resource="jobs/status", nth=4),
        Fault(kind="wrong", link=_HUB, verb="patch", resource="jobs/status", nth=5, status=504),
        Fault(kind="reset", link=_HUB, verb="patch", resource="jobs/status", nth=6),
    ),
    "10122": _plan(
        "queue rules that change while Jobs wait are noticed",
        [
            Step(0, "limit", "", value=1),
            *_jobs(4, seconds=4),
            Step(6, "place", "", "Pack"),
            Step(20, "limit", "", value=9),
        ],
        _watch("cut", _HUB, at=5, resource="mirrorqueues"),
        _watch("gone", _HUB, at=5, resource="mirrorqueues"),
    ),
    "11062": _plan(
        "a Job that lost its worker is placed again although the cache lags",
        _jobs(3, seconds=30),
        _link("partition", _ONE, 5, 60),
        _watch("late_events", _HUB, at=5, seconds=15),
        lost_after=5.0,
    ),
    "8464": _plan(
        "an assignment whose answer is lost is neither forgotten nor made twice",
        _jobs(3),
        Fault(kind="lost", link=_HUB, verb="patch", resource="jobs", nth=1),
        Fault(kind="late", link=_HUB, verb="patch", resource="jobs", nth=2),
        Fault(kind="lost", link=_ONE, verb="create", resource="jobs", nth=1),
        Fault(kind="late", link=_ONE, verb="create", resource="jobs", nth=2),
    ),
    "14736": _plan(
        "a Job that is re-run holds its quota once",
        [Step(0, "limit", "", value=1), *_jobs(3, seconds=6), Step(4, "vanish", "job-0")],
        Fault(kind="crash_after", link=_HUB, verb="patch", resource="jobs", at=3, nth=1, seconds=1),
    ),
}

FOUND: Final[Mapping[str, Plan]] = {
    "replaced": _plan(
        "a worker replaced by an empty cluster at the same address was not noticed until its versions had caught up",
        [*_jobs(3, seconds=30), _job(60, "job-9")],
        Fault(kind="wipe", link="worker-1", at=12),
    ),
    "hammered": _plan(
        "a Job that was gone, unknown to a cache whose watch was silent, was written to twenty times a second",
        [*_jobs(3, "fleeting", 3.0)],
        _watch("mute", _HUB, at=4),
    ),
    "deleted while it waited": _plan(
        "a Job that was deleted while it waited, unknown to a cache whose watch was silent, was assigned in a loop",
        [
            Step(0, "cordon", "worker-1"),
            Step(0, "cordon", "worker-2"),
            _job(5),
            Step(10, "delete", "job-0"),
            Step(15, "uncordon", "worker-1"),
        ],
        _watch("mute", _HUB, at=8),
    ),
    "suspended in vain": _plan(
        "a Job whose copy vanished out of sight, and that its user suspended meanwhile, was started again",
        [_job(0, sort="forever"), Step(10, "suspend", "job-0")],
        _link("unauthorized", _ONE, 4, 15),
        Fault(kind="wipe", link="worker-1", at=5),
    ),
    "rotated": _plan(
        "other credentials for a worker moved its Jobs, where the policy moves them at once",
        [*_jobs(3, "forever"), Step(10, "rotate", "worker-1")],
        lost_after=0.0,
    ),
    "namesake": _plan(
        "the Job controller waited for pods of a deleted Job before it made those of another with the same name",
        [_job(9), Step(13, "vanish", "job-0")],
        _link("blackhole", "jobs/worker-1", 8, 45),
        when_lost="Wait",
    ),
    "slow writes": _plan(
        "a worker whose writes waited for a dead webhook was taken for lost after 9 s, and its Jobs went elsewhere",
        [
            *(_job(4.6, f"job-{number}", "forever") for number in range(20)),
            *(Step(60, "delete", f"job-{number}") for number in range(10)),
        ],
        _link("slow_writes", _ONE, 1, 90),
        lost_after=0.0,
    ),
    "narrowed": _plan(
        "Jobs that ran on a worker which was then given to other namespaces ran twice, and their copies stayed there",
        [
            *_jobs(2, "forever"),
            _job(2, "job-2", seconds=30.0),
            Step(10, "narrow", "worker-1"),
            _job(15, "job-9"),
            Step(20, "delete", "job-0"),
        ],
        Fault(kind="crash_at", link="dispatcher", at=25, seconds=1),
        lost_after=0.0,
    ),
    "narrowed before the copy": _plan(
        "a Job on its way to a worker that was given to other namespaces meanwhile waited there for ever, unheard",
        [_job(5), Step(5.2, "narrow", "worker-1")],
        *(Fault(kind="error", link=_ONE, verb="create", resource="jobs", nth=1, status=500) for _ in range(4)),
    ),
    "refused while it was connected anew": _plan(
        "one request that failed while a worker was connected anew moved its Jobs, where the policy moves them at once",
        [*_jobs(2, "forever"), Step(26, "rotate", "worker-1")],
        Fault(
            kind="wrong",
            link=_ONE,
            at=15.0,
            verb="create",
            resource="selfsubjectaccessreviews",
            status=504,
        ),
        lost_after=0.0,
    ),
    "orphaned": _plan(
        "pods of a Job that was deleted while its controller could not write kept their finalizer for ever",
        [_job(5.9, sort="indexed"), Step(22.8, "delete", "job-0")],
        _link("unauthorized", "jobs/worker-1", 7.6, 30),
    ),
    "swapped": _plan(
        "two workers that changed places lost the Jobs that ran there",
        _jobs(4, seconds=30),
        Fault(kind="swap", link="worker-2", at=10, seconds=15),
        Fault(kind="crash_at", link="dispatcher", at=11, seconds=1),
        placement="Spread",
    ),
}

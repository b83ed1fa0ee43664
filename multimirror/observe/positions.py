"""Position and estimate on the Jobs themselves: of the first ten of each queue, where `kubectl describe` shows them.

A PATCH is the dearest thing that there is (docs/decisions/0220), so: only of Jobs that have waited for a minute, once a
minute at most, only what has changed, two a second over all queues, and taken away in the very write that assigns the
Job. An estimate is a moment and not a span, or it would change all the time; it is written again when it is off by a
quarter of what is left. What is not true any more is taken away: of Jobs that are held, or are not among the first now.

Nothing is decided on these annotations. What was shown is known from our own writes, and after a restart from the Jobs:
they are looked through once.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Final, Protocol

import structlog

from multimirror.api.names import ESTIMATED_START_ANNOTATION, POSITION_ANNOTATION
from multimirror.api.placement import annotations, cluster_of, exactly
from multimirror.batch import Json
from multimirror.batch.times import format_time, seconds_of, utc_datetime
from multimirror.kinds import JOB, Kind, Ref
from multimirror.kube import Client, KubeError
from multimirror.kube.errors import Conflict, LeadershipLost, NotFound
from multimirror.kube.limits import Limits
from multimirror.kube.own_writes import OwnWrites
from multimirror.observe.line import Place, estimate, places
from multimirror.observe.snapshot import FleetState

_log = structlog.get_logger(__name__)
_ROUND_SECONDS: Final = 60.0
"""So often a Job is written at most, and so long it has to have waited."""
_FIRST: Final = 10
_WRITES_PER_SECOND: Final = 2.0
_SLICE: Final = 500
_TIMES_AS_LONG: Final = 4
"""So long is the pause after an estimate: with tens of thousands of Jobs that run, one by deadlines takes 30 ms."""
_OFF: Final = 0.25
_LEAST_OFF_SECONDS: Final = 300.0
_ABOUT: Final = "about "


class Objects(Protocol):
    """The objects of the management cluster, as the cache has them."""

    def get(self, ref: Ref) -> Json | None: ...
    def kind(self, ref: Ref) -> Kind: ...
    def all(self) -> Iterable[tuple[Ref, Json]]: ...
    def writes(self, ref: Ref) -> OwnWrites: ...


class Positions:
    """`run` it as a task."""

    def __init__(self, client: Client, state: FleetState, objects: Objects, *, clock: Callable[[], float]) -> None:
        self._client, self._state, self._objects, self._clock = client, state, objects, clock
        self._limits = Limits(1, _WRITES_PER_SECOND)
        self._shown: set[Ref] = set()
        """Those that have the annotations, as far as we know."""

    async def run(self) -> None:
        """Until cancelled."""
        await self._look_through()
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            await self._round()

    async def _look_through(self) -> None:
        for number, (ref, obj) in enumerate(self._objects.all(), 1):
            if POSITION_ANNOTATION in annotations(obj):
                self._shown.add(ref)
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    async def _round(self) -> None:
        first: set[Ref] = set()
        for queue in [each["metadata"]["name"] for each in self._state.mirror_queues()]:
            if not self._state.pending(queue):
                continue
            found = await self._first(queue)
            first |= found.keys()
            for ref, wanted in found.items():
                await self._show(ref, wanted)
            await asyncio.sleep(0)
        for ref in sorted(self._shown - first):
            await self._show(ref, {})

    async def _first(self, queue: str) -> dict[Ref, dict[str, str]]:
        """What the first of a queue are to say."""
        found: dict[Ref, dict[str, str]] = {}
        now = self._clock()
        async with aclosing(places(self._state, queue)) as line:
            async for place in line:
                if place.position > _FIRST:
                    break
                if seconds_of(place.job.since, now) <= now - _ROUND_SECONDS:
                    started = time.perf_counter()
                    found[Ref(JOB.resource.name, place.job.uid)] = self._wanted(queue, place, now)
                    await asyncio.sleep(_TIMES_AS_LONG * (time.perf_counter() - started))
        return found

    def _wanted(self, queue: str, place: Place, now: float) -> dict[str, str]:
        decision = self._state.decision(place.job.uid, workers=False)
        seconds = estimate(self._state, queue, place, decision.reason if decision is not None else "")
        position = {POSITION_ANNOTATION: str(place.position)}
        if seconds is None:
            return position
        return position | {ESTIMATED_START_ANNOTATION: f"{_ABOUT}{format_time(utc_datetime(now + seconds))}"}

    async def _show(self, ref: Ref, wanted: dict[str, str]) -> None:
        """On the Job as it is now; nothing: what it says is not true any more."""
        obj = self._objects.get(ref)
        if obj is None:
            self._shown.discard(ref)
            return
        noted = annotations(obj)
        told = {key: noted[key] for key in (POSITION_ANNOTATION, ESTIMATED_START_ANNOTATION) if key in noted}
        if cluster_of(obj) is not None:
            wanted = {}
        if not _differ(told, wanted, self._clock()):
            if not wanted:
                self._shown.discard(ref)
            return
        async with self._limits.slot():
            await self._write(ref, wanted)

    async def _write(self, ref: Ref, wanted: dict[str, str]) -> None:
        obj = self._objects.get(ref)
        if obj is None or (wanted and cluster_of(obj) is not None):
            return
        metadata, kind = obj["metadata"], self._objects.kind(ref)
        gone: Json = dict.fromkeys((POSITION_ANNOTATION, ESTIMATED_START_ANNOTATION))
        body = {"metadata": {**exactly(obj), "annotations": gone | wanted}}
        try:
            answer = await self._client.patch(kind.resource, metadata["name"], body, metadata["namespace"])
        except (LeadershipLost, NotFound, Conflict):
            return  # somebody was faster: the next round knows better
        except KubeError as error:
            _log.warning("a position was not written", ref=str(ref), error=str(error))
            return
        self._objects.writes(ref).wrote(answer)
        self._shown.add(ref)


def _differ(told: dict[str, str], wanted: dict[str, str], now: float) -> bool:
    """Whether it is worth a write."""
    if told.keys() != wanted.keys() or told.get(POSITION_ANNOTATION) != wanted.get(POSITION_ANNOTATION):
        return True
    if ESTIMATED_START_ANNOTATION not in wanted:
        return False
    starts, before = (_moment(each[ESTIMATED_START_ANNOTATION]) for each in (wanted, told))
    return abs(starts - before) > max(_LEAST_OFF_SECONDS, _OFF * (starts - now))


def _moment(text: str) -> float:
    """Far away where nobody can read it."""
    return seconds_of(text.removeprefix(_ABOUT), 0.0)

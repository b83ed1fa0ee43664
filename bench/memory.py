"""What a cached Job costs in memory: an ordinary one, one of half a megabyte, and a copy of either on a worker.

No fleet: events as an API server writes them go through the same parser, trim and store as in a dispatcher, and what is
still allocated afterwards is counted (tracemalloc), as is the most that was allocated in between. The reference of a
large Job is an ordinary one; that of both is the Job as it is parsed, which a cache without trimming would keep.
"""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from bench._canned import a_job
from bench.frame.parts import Part
from bench.frame.results import Recorder
from multimirror.api import ORIGIN_LABEL, ORIGIN_UID_LABEL
from multimirror.kinds import JOB
from multimirror.kube.store import Store
from multimirror.kube.watch import Trim, decode

Json = dict[str, Any]
_FAT_BYTES: Final = 500_000
_ENV: Final = [{"name": f"V{each}", "value": "x" * 10} for each in range(_FAT_BYTES // 38)]
_WHOLE: Final = 20
"""Jobs that are kept whole, for the reference."""


@dataclass(frozen=True, slots=True)
class _Kept:
    each: float
    """Bytes that a Job costs."""
    most: float
    """Bytes that were allocated at once, at the worst moment."""


async def measure(recorder: Recorder, sizes: Sequence[int]) -> None:
    for size in sizes:
        ordinary, fat = await _kept(size, _ordinary, JOB.trim), await _kept(size, _fat, JOB.trim)
        whole = await _kept(_WHOLE, _fat, lambda job: job)
        copy = await _kept(size, lambda number: _copy(_fat(number)), _read_copy)
        recorder.figure("an ordinary Job", size, ordinary.each / 1024, "KiB")
        recorder.figure("a Job of 0.5 MB", size, fat.each / 1024, "KiB")
        recorder.figure("a copy of 0.5 MB", size, copy.each / 1024, "KiB")
        recorder.figure("a Job of 0.5 MB, whole", size, whole.each / 1024, "KiB")
        recorder.figure("the most at once, while Jobs of 0.5 MB come in", size, fat.most / 1e6, "MB")
        recorder.ratio("a Job of 0.5 MB : an ordinary one", size, fat.each / ordinary.each)
        recorder.ratio("a copy of 0.5 MB : an ordinary Job", size, copy.each / ordinary.each)
        recorder.ratio("an ordinary Job : 4 KiB", size, ordinary.each / 4096)
        recorder.ratio(
            "the most at once : three whole ones beside what is kept", size, fat.most / _allowed(whole, fat, size)
        )


def _allowed(whole: _Kept, fat: _Kept, size: int) -> float:
    return 3 * whole.each + size * fat.each


async def _kept(size: int, make: Callable[[int], Json], trim: Trim) -> _Kept:
    """In a cache with that many."""
    store = Store()
    store.add_index("uid", lambda job: (job["metadata"]["uid"],))
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        async for events in decode(_lines(size, make), "bench", trim):
            for job in (event.object for event in events):
                store.put(f"{job['metadata']['namespace']}/{job['metadata']['name']}", job)
            await asyncio.sleep(0)
        gc.collect()
        after, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return _Kept((after - before) / size, most - before)


async def _lines(size: int, make: Callable[[int], Json]) -> AsyncIterator[bytes]:
    for number in range(size):
        yield orjson.dumps({"type": "ADDED", "object": make(number)}) + b"\n"


def _ordinary(number: int) -> Json:
    return a_job(number)


def _fat(number: int) -> Json:
    """Many small things: that costs most when it is parsed."""
    job = a_job(number)
    job["spec"]["template"]["spec"]["containers"][0]["env"] = _ENV
    return job


def _copy(job: Json) -> Json:
    job["metadata"]["labels"] |= {ORIGIN_LABEL: "here", ORIGIN_UID_LABEL: job["metadata"]["uid"]}
    return job


def _read_copy(job: Json) -> Json:
    kept = JOB.read_copy(job)
    assert kept is not None
    return kept


PART: Final = Part(
    name="memory",
    about="memory of a cached Job, of an ordinary one and of one of 0.5 MB; beside each other, and beside whole ones",
    unit="cached Jobs",
    sizes=(300,),
    fleet="embedded",
    seconds=lambda sizes: sum(5 + 0.05 * size for size in sizes),
    measure=measure,
)

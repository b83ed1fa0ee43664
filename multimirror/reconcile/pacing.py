"""How often what a worker says is written to the management cluster: for each Job, and for each worker.

A status is written with its whole object, and etcd keeps every version for a while: a worker with one Job that changed
its status as fast as it could would put megabytes a second there. So writes that workers bring about are paid for:

    one Job         1 write, or 64 KiB of its object, a second; ten of them at once
    one worker      500 writes, or 2 MiB, a second; four seconds' worth at once

The first changes of a Job, and its end, are written at once, always: an end comes once. What is in between is not lost:
the newest status is written when there is something to pay with. An honest Job controller writes about once a second.
To be taken from a worker costs a Job more (the next assignment and its copy are writes too): a worker that deletes
copies as fast as they are made is waited for likewise.
"""

from typing import Final

JOB_RATE: Final = 1.0
JOB_BURST: Final = 10.0
WORKER_RATE: Final = 500.0
WORKER_BURST: Final = 2000.0
JOB_BYTES: Final = 64 * 1024
"""Of an object that one of a Job's writes pays for; larger ones cost more."""
WORKER_BYTES: Final = 4 * 1024
"""The same of a worker's."""
LONGEST_LINE: Final = 10.0
"""Seconds over which those are spread who wait for the same worker."""


class Bucket:
    """Tokens that come back with time. Times are the event loop's."""

    __slots__ = ("_burst", "_promised", "_rate", "_tokens", "_when")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst, self._tokens, self._when = rate, burst, burst, now
        self._promised = now

    def wait(self, now: float) -> float:
        """In how many seconds there is something to pay with; 0: now."""
        self._refill(now)
        return 0.0 if self._tokens > 0 else -self._tokens / self._rate + 1e-3

    def turn(self, now: float) -> float:
        """The same for one of many: each is told a later time than the one before, up to some seconds. Ten thousand
        that were told the same would all come back at once, again and again, and be sent away but for one."""
        wait = self.wait(now)
        if wait:
            turn = max(now + wait, self._promised + 1 / self._rate)
            self._promised = min(turn, now + wait + LONGEST_LINE)
            return self._promised - now
        return wait

    def pay(self, cost: float, now: float) -> None:
        """What is not there is owed, up to as much as there can be."""
        self._refill(now)
        self._tokens = max(self._tokens - cost, -max(cost, self._burst))

    def _refill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._when) * self._rate)
        self._when = now


class Pacer:
    """The buckets of workers; those of Jobs are in their notes."""

    def __init__(self) -> None:
        self._workers: dict[str, Bucket] = {}

    def wait(self, job: Bucket, worker: str, now: float) -> float:
        """Before a write that can wait: in how many seconds it may be made."""
        return job.wait(now) or (self._worker(worker, now).turn(now) if worker else 0.0)

    def pay(self, job: Bucket, worker: str, size: int, now: float, *, writes: int = 1) -> None:
        """For so many writes of an object of that size."""
        job.pay(writes * max(1.0, size / JOB_BYTES), now)
        if worker:
            self._worker(worker, now).pay(writes * max(1.0, size / WORKER_BYTES), now)

    def _worker(self, name: str, now: float) -> Bucket:
        found = self._workers.get(name)
        if found is None:
            found = self._workers[name] = Bucket(WORKER_RATE, WORKER_BURST, now)
        return found


def job_bucket(now: float) -> Bucket:
    return Bucket(JOB_RATE, JOB_BURST, now)

"""What the controller remembers between syncs. All of it may be lost with the process: nothing is counted by it.

- expectations: how many creations and deletions the pod cache has still to show. Until it has, no pods are created or
  deleted again. They lapse after some minutes, in case an event was never delivered.
- removing: pods whose tracking finalizer we take off, or took off though the cache still shows it
- records: failures since the last success, for the back-off
- finished: Jobs that we finished, though the cache may still show them running
- writes: the newest version of a pod or Job that we wrote; a sync waits for caches that are older (read your writes)
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from builtin_controller.backoff import Record

PODS: Final = ("", "pods")
JOBS: Final = ("batch", "jobs")
_NO_RECORD: Final = Record()


@dataclass(slots=True)
class _Expectation:
    uid: str
    creations: int
    deletions: int
    since: float


@dataclass(slots=True)
class _Writes:
    uid: str
    versions: dict[tuple[str, str], str] = field(default_factory=dict)


class Memory:
    """Kept per Job, under the Job's key."""

    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self._expectations: dict[str, _Expectation] = {}
        self._removing: dict[str, dict[str, bool]] = {}  # UIDs of pods; whether the server has done it
        self._records: dict[str, Record] = {}
        self._finished: set[str] = set()
        self._writes: dict[str, _Writes] = {}

    def expect(self, key: str, uid: str, *, creations: int = 0, deletions: int = 0) -> None:
        """So many pods are about to be created, or deleted; what was expected before is replaced."""
        self._expectations[key] = _Expectation(uid, creations, deletions, asyncio.get_running_loop().time())

    def created(self, key: str, count: int = 1) -> None:
        """So many of the expected creations were seen, or will never be."""
        if key in self._expectations:
            self._expectations[key].creations -= count

    def deleted(self, key: str) -> None:
        """One of the expected deletions was seen, or will never be."""
        if key in self._expectations:
            self._expectations[key].deletions -= 1

    def unsettled(self, key: str, uid: str) -> float:
        """For how many seconds the cache may still owe us what was expected; 0 when it shows all of it.

        What was expected for another Job of that name will never be seen, and does not count.
        """
        expected = self._expectations.get(key)
        if expected is None or expected.uid != uid or (expected.creations <= 0 and expected.deletions <= 0):
            return 0.0
        return max(0.0, expected.since + self._lifetime - asyncio.get_running_loop().time())

    def expect_release(self, key: str, uids: Iterable[str]) -> None:
        """The tracking finalizers of these pods are about to go."""
        self._removing.setdefault(key, {}).update(dict.fromkeys(uids, False))

    def confirm_release(self, key: str, uid: str) -> None:
        """The server has taken it off. The cache may have shown that already."""
        uids = self._removing.get(key)
        if uids is not None and uid in uids:
            uids[uid] = True

    def is_released(self, key: str, uid: str) -> bool:
        """The server has taken it off, though the cache still shows it."""
        return self._removing.get(key, {}).get(uid, False)

    def released(self, key: str, uid: str) -> None:
        """The cache shows the pod without it, or the attempt failed."""
        uids = self._removing.get(key)
        if uids is not None:
            uids.pop(uid, None)
            if not uids:
                del self._removing[key]

    def removing(self, key: str) -> frozenset[str]:
        return frozenset(self._removing.get(key, ()))

    def record(self, key: str) -> Record:
        return self._records.get(key, _NO_RECORD)

    def keep_record(self, key: str, record: Record) -> None:
        if record == _NO_RECORD:
            self._records.pop(key, None)
        else:
            self._records[key] = record

    def finish(self, uid: str) -> None:
        """We wrote the Job's terminal condition."""
        self._finished.add(uid)

    def has_finished(self, uid: str) -> bool:
        return uid in self._finished

    def wrote(self, key: str, uid: str, resource: tuple[str, str], version: str) -> None:
        """The server answered a write for this Job with an object of that version."""
        writes = self._writes.get(key)
        if writes is None or writes.uid != uid:
            writes = self._writes[key] = _Writes(uid)
        known = writes.versions.get(resource)
        if known is None or is_newer(version, known):
            writes.versions[resource] = version

    def behind(self, key: str, caches: dict[tuple[str, str], str | None]) -> tuple[str, str] | None:
        """Which of the caches has not seen our last write for this Job."""
        writes = self._writes.get(key)
        if writes is None:
            return None
        for resource, version in writes.versions.items():
            seen = caches.get(resource)
            if seen is not None and is_newer(version, seen):
                return resource
        del self._writes[key]
        return None

    def forget_writes(self, key: str, uid: str | None = None) -> None:
        writes = self._writes.get(key)
        if writes is not None and uid in (None, writes.uid):
            del self._writes[key]

    def job_finished(self, key: str, uid: str) -> None:
        """The cache shows the Job finished."""
        self._records.pop(key, None)
        self._finished.discard(uid)
        self.forget_writes(key, uid)

    def job_deleted(self, key: str, uid: str) -> None:
        """The Job is gone; one that is created anew under its name inherits no delay."""
        self.job_finished(key, uid)

    def forget(self, key: str) -> None:
        """There is no Job under this key."""
        for kept in (self._expectations, self._removing, self._records, self._writes):
            kept.pop(key, None)


def is_newer(version: str, than: str) -> bool:
    """Compare resourceVersions, which are decimal numbers."""
    return (len(version), version) > (len(than), than)

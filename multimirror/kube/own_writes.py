"""Read your own writes: has the cache seen what we last wrote?

A watch lags behind. A reconciler that has just created something, looks into its cache and does not find it would
create it again. So it tells here what it wrote, and asks before it decides:

    writes.wrote(await client.create(JOBS, job))
    ...
    if not await writes.seen(key):          # at the next reconcile of that key
        ...                                 # (gives up after `patience`: then the cache is all there is)

An entry is forgotten as soon as the cache has caught up, so that this holds only what is in flight. The race where
the watch is faster than the answer to the write is covered: what the cache has seen already is never waited for.
"""

import asyncio
from dataclasses import dataclass, field

from .informer import Change, Informer, is_older
from .resource import Object, key_of


@dataclass(slots=True)
class _Pending:
    version: str | None  # the cache has to reach this resourceVersion,
    uid: str | None  # or, after a delete, to lose this object
    until: float
    waiters: list[asyncio.Future[bool]] = field(default_factory=list)


class OwnWrites:
    """Our own writes that one informer has not told us about yet."""

    def __init__(self, informer: Informer, *, patience: float = 15.0) -> None:
        self._informer = informer
        self._patience = patience
        self._pending: dict[str, _Pending] = {}
        informer.add_handler(self._on_change)

    def wrote(self, obj: Object) -> None:
        """The server answered a create, replace, patch, or a delete that is not complete yet, with this object."""
        self._expect(key_of(obj), obj["metadata"]["resourceVersion"], None)

    def deleted(self, obj: Object) -> None:
        """The server said that this object is gone."""
        self._expect(key_of(obj), None, obj["metadata"]["uid"])

    def settled(self, key: str) -> bool:
        """The cache has seen our last write to this key (or it took too long, and will not be waited for)."""
        pending = self._pending.get(key)
        if pending is None:
            return True
        if self._is_seen(key, pending) or asyncio.get_running_loop().time() >= pending.until:
            self._forget(key, seen=self._is_seen(key, pending))
            return True
        return False

    async def seen(self, key: str) -> bool:
        """Wait until the cache has seen our last write to this key. False when it took too long."""
        pending = self._pending.get(key)
        if pending is None or self._is_seen(key, pending):
            self._forget(key, seen=True)
            return True
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        pending.waiters.append(waiter)
        try:
            async with asyncio.timeout_at(pending.until):
                return await waiter
        except TimeoutError:
            self._forget(key, seen=False)
            return False

    def _expect(self, key: str, version: str | None, uid: str | None) -> None:
        until = asyncio.get_running_loop().time() + self._patience
        before = self._pending.get(key)
        pending = _Pending(version, uid, until, before.waiters if before is not None else [])
        if self._is_seen(key, pending):
            self._forget(key, seen=True)
        else:
            self._pending[key] = pending

    def _is_seen(self, key: str, pending: _Pending) -> bool:
        cached = self._informer.get(key)
        if pending.version is None:
            return cached is None or cached["metadata"]["uid"] != pending.uid
        if cached is not None and not is_older(cached["metadata"]["resourceVersion"], pending.version):
            return True
        # What was deleted since is not in the cache, but the cache has been past that moment.
        reached = self._informer.resource_version
        return reached is not None and not is_older(reached, pending.version)

    def _on_change(self, change: Change) -> None:
        if self._pending:
            key = change.key
            pending = self._pending.get(key)
            if pending is not None and self._is_seen(key, pending):
                self._forget(key, seen=True)

    def _forget(self, key: str, *, seen: bool) -> None:
        pending = self._pending.pop(key, None)
        if pending is not None:
            for waiter in pending.waiters:
                if not waiter.done():
                    waiter.set_result(seen)

"""One worker cluster, for as long as its WorkerCluster exists: connect, follow, lose, connect again.

A worker that does not answer two heartbeats in a row is lost (within about 12 seconds), and so is one that answers
but has not let us follow our copies for as long. Then it is tried again, after waits that grow to 30 seconds with
jitter, and at once when its credentials change. One where we lack rights is asked about them now and then. Everything
here is its own: client, limits, caches, tasks. One that hangs makes nobody else wait.
"""

import asyncio
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog

from multimirror.batch import Json
from multimirror.kube import ApiError, Change, Connection
from multimirror.kube.backoff import Backoff
from multimirror.kube.errors import ConfigError
from multimirror.workers.probe import Heartbeat, check, heartbeat
from multimirror.workers.session import Needs, Session
from multimirror.workers.state import WorkerState

_log = structlog.get_logger(__name__)

_LONGEST_WAIT: Final = 30.0
_BEATS: Final = 4
"""Between two questions about rights that we lack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """How the health of a worker is felt."""

    period: float = 4.0
    patience: float = 4.0
    """How long an answer may take."""
    misses: int = 2
    """So many in a row, and it is lost."""


class Listener(Protocol):
    """Who wants to know."""

    def copy_changed(self, worker: str, change: Change) -> None:
        """A copy was made, changed, or is gone."""

    def state_changed(self, worker: str, *, reconnected: bool) -> None:
        """What it can do has changed. `reconnected`: its caches are new; anything may have happened there."""

    def claim(self, worker: str, identity: str) -> str | None:
        """The worker that already is this cluster, if there is another one: it must not be used under two names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is asked of a worker, from its WorkerCluster and its Secret. A change of it means a new session."""

    kubeconfig: bytes | None
    needs: Needs
    reason: str = ""
    problem: str = ""
    """Why there is no kubeconfig."""


class Worker:
    """Keeps one worker connected."""

    def __init__(
        self,
        name: str,
        target: Target,
        listener: Listener,
        *,
        guard: Callable[[], None] | None = None,
        pulse: Pulse | None = None,
        lost_since: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.state = WorkerState(lost_since=lost_since if lost_since is not None else clock())
        self.session: Session | None = None
        """Open and synced, while connected."""
        self._target = target
        self._listener = listener
        self._guard = guard
        self._pulse = pulse or Pulse()
        self._clock = clock
        self._poked = asyncio.Event()
        self._settled = asyncio.Event()
        self._log = _log.bind(cluster=name)

    def retarget(self, target: Target) -> None:
        """The WorkerCluster or its Secret has changed."""
        if target != self._target:
            self._target = target
            self._poked.set()

    @property
    def is_settled(self) -> bool:
        """It was tried at least once."""
        return self._settled.is_set()

    async def settled(self) -> None:
        """Wait until it is known whether it can be reached."""
        await self._settled.wait()

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(initial=1.0, maximum=_LONGEST_WAIT)
        while True:
            self._poked.clear()
            try:
                connected = await self._once()
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one worker must not end the others
                connected = False
                self._lost("InternalError", f"{type(error).__name__}: {error}")
                self._log.error("a worker's connection failed unexpectedly", exc_info=True)
            if connected:
                backoff.reset()
            if self._poked.is_set():
                continue
            try:
                async with asyncio.timeout(backoff.delay()):
                    await self._poked.wait()
            except TimeoutError:
                pass
            else:
                backoff.reset()

    async def _once(self) -> bool:
        """One session to its end; whether it ever was one."""
        target = self._target
        if target.kubeconfig is None:
            self._lost(target.reason, target.problem)
            return False
        try:
            connection = Connection.strict(target.kubeconfig, name=self.name)
        except ConfigError as error:
            self._lost("KubeconfigRefused", str(error))
            return False
        connected = False
        try:
            async with Session.open(
                connection,
                target.needs,
                guard=self._guard,
                on_copy=lambda change: self._listener.copy_changed(self.name, change),
                on_room=self._room_changed,
            ) as session:
                same = self._listener.claim(self.name, session.facts.identity)
                if same is not None:
                    self._lost("SameCluster", f"it is the same cluster as {same}; one of the two is not used")
                    return False
                connected = True
                self._connected(session, target)
                await self._follow(session)
        except (ApiError, TimeoutError) as error:
            self._lost(_reason(error), str(error) or "no answer in time")
        finally:
            self.session = None
        return connected

    async def _follow(self, session: Session) -> None:
        """Heartbeats until they fail, or until something about the worker is to be different."""
        misses, beats, wait = 0, 0, self._pulse.period * _phase(self.name)
        while True:
            try:
                async with asyncio.timeout(wait):
                    await self._poked.wait()
            except TimeoutError:
                pass
            else:
                self._renew("Reconnecting", "its credentials or its settings have changed")
                return
            started = asyncio.get_running_loop().time()
            try:
                answer = await heartbeat(session.client, self._pulse.patience, self._clock)
                if session.deaf is not None:
                    raise session.deaf  # it answers, and does not let us follow our copies
            except ApiError:
                misses += 1
                if misses >= self._pulse.misses:
                    raise
                wait = self._pulse.period / 4
                continue
            if answer.identity != session.facts.identity:
                self._renew("Replaced", "another cluster answers at its address now")
                return
            misses, beats, wait = 0, beats + 1, self._pulse.period
            self._heard(answer, asyncio.get_running_loop().time() - started)
            if self.state.missing and beats % _BEATS == 0 and not await self._still_missing(session):
                self._renew("Reconnecting", "it has given us the rights that we lacked")
                return

    def _heard(self, answer: Heartbeat, latency: float) -> None:
        self.state = replace(self.state, last_contact=self._clock(), latency=latency, clock_ahead=answer.clock_ahead)

    async def _still_missing(self, session: Session) -> tuple[str, ...]:
        """What we may not do there, now."""
        try:
            missing = (await check(session.client, self._target.needs.namespaces)).missing
        except ApiError:
            return self.state.missing  # the next heartbeat knows more
        if missing and missing != self.state.missing:
            self.state = replace(self.state, missing=missing)
            self._listener.state_changed(self.name, reconnected=False)
        return missing

    def _connected(self, session: Session, target: Target) -> None:
        before, now = self.state, self._clock()
        self.session = session
        unusable_since = now if before.lost_since is None else before.lost_since
        self.state = WorkerState(
            connected=True,
            reason="Connected",
            message=f"Kubernetes {session.facts.version}",
            lost_since=unusable_since if session.facts.missing else None,
            last_contact=now,
            clock_ahead=session.facts.clock_ahead,
            version=session.facts.version,
            is_management=session.facts.identity == target.needs.origin,
            missing=session.facts.missing,
            capacity=session.capacity(),
            namespaces=session.namespaces(),
        )
        self._log.info("worker connected", version=session.facts.version, missing=list(session.facts.missing))
        self._listener.state_changed(self.name, reconnected=True)
        self._settled.set()

    def _renew(self, reason: str, message: str) -> None:
        """The session ends because there is to be another one: that is no loss, until the other one fails."""
        self.session = None
        self.state = replace(self.state, connected=False, reason=reason, message=message, lost_since=None)
        self._log.info("worker is connected anew", reason=reason)
        self._listener.state_changed(self.name, reconnected=False)
        self._poked.set()

    def _lost(self, reason: str, message: str) -> None:
        before = self.state
        since = before.lost_since if not before.connected and before.lost_since is not None else self._clock()
        self.session = None
        self.state = replace(before, connected=False, reason=reason, message=message, lost_since=since)
        if before.connected or (before.reason, before.message) != (reason, message):
            self._log.warning("worker not connected", reason=reason, error=message)
            self._listener.state_changed(self.name, reconnected=False)
        self._settled.set()

    def _room_changed(self) -> None:
        session = self.session
        if session is None:
            return
        capacity, namespaces = session.capacity(), session.namespaces()
        if capacity != self.state.capacity or namespaces != self.state.namespaces:
            self.state = replace(self.state, capacity=capacity, namespaces=namespaces)
            self._listener.state_changed(self.name, reconnected=False)

    def copies(self, uid: str) -> list[Json]:
        """What its cache holds of one Job; nothing while it is not connected."""
        return self.session.copies(uid) if self.session is not None else []


def _phase(name: str) -> float:
    """When in the period its heart beats: fifty workers that were connected together do not all beat together."""
    return zlib.crc32(name.encode()) / 2**32


def _reason(error: ApiError | TimeoutError) -> str:
    return type(error).__name__ if isinstance(error, ApiError) else "TimedOut"

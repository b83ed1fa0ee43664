"""One worker cluster, for as long as its WorkerCluster exists: connect, follow, lose, connect again.

A worker that does not answer two heartbeats in a row is lost (within about 12 seconds), and so is one that answers
but has not let us follow our copies for as long. Then it is tried again, after waits that grow to 30 seconds with
jitter, and at once when its credentials change. One where we lack rights is asked about them now and then. Everything
here is its own: clients, limits, caches, tasks. One that hangs makes nobody else wait, and whatever is wrong with one
is said by its own conditions and ends nobody else. One that sends what no honest worker does (limits.py) is lost at
once, and left alone for a while, also by whoever comes after us (misbehaviour.py).
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog

from multimirror.batch import Json
from multimirror.kube import ApiError, Change, Connection, Resource
from multimirror.kube.backoff import Backoff
from multimirror.kube.errors import ConfigError, OverBudget
from multimirror.kube.resources import JOBS
from multimirror.workers import metrics
from multimirror.workers.addresses import failure_in_words, why_not_connected
from multimirror.workers.limits import WorkerBudget
from multimirror.workers.losses import Losses
from multimirror.workers.misbehaviour import Misbehaviour
from multimirror.workers.options import WorkerOptions
from multimirror.workers.probe import Facts, ProbeAnswer, check, probe, sees_pods
from multimirror.workers.session import Scope, Session, SessionHandlers, SessionOptions
from multimirror.workers.state import Contact, TokenState, WorkerState

_log = structlog.get_logger(__name__)

_LONGEST_WAIT: Final = 30.0
_BEATS: Final = 4
"""Between two questions about rights that we lack."""
_PODS_BEATS: Final = 8
"""And about one that we can do without."""
_MOST_IMPOSTORS: Final = 1000
_FORMER_IDENTITIES: Final = 3
_TELL_EVERY: Final = 0.2
_SMALL_KUBECONFIG: Final = 8 * 1024
"""Up to here it is read at once; what is larger in a thread, so that nobody waits for it."""
_IDENTITIES: Final = 3
_IDENTITIES_WITHIN: Final = 600.0
"""So many times in so many seconds a cluster may be another one."""


class WorkerHandlers(Protocol):
    """Who wants to know. Called on the event loop; must be quick."""

    def copy_changed(self, worker: str, resource: Resource, change: Change) -> None:
        """A copy was made, changed, or is gone."""

    def state_changed(self, worker: str, *, reconnected: bool) -> None:
        """What it can do has changed. `reconnected`: a cache is new; anything may have happened there."""

    def capacity_changed(self, worker: str) -> None:
        """It has more or less to give, or other namespaces, and nothing else has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is asked of a worker, from its WorkerCluster and its kubeconfig. A change of it means a new session."""

    kubeconfig: bytes | None
    session: SessionOptions
    reason: str = ""
    problem: str = ""
    """Why there is no kubeconfig."""
    joined_by: str = field(default="", compare=False)
    """The address by which people reach it, for them to read."""


class Worker:
    """Keeps one worker connected."""

    def __init__(
        self,
        name: str,
        target: Target,
        options: WorkerOptions,
        handlers: WorkerHandlers,
        *,
        asked: Iterable[Scope],
        losses: Losses[Scope],
        claim: Callable[[str, str], str],
        clock: Callable[[], float],
        misbehaviour: Misbehaviour | None = None,
        identities: Iterable[str] = (),
    ) -> None:
        """`asked`: what to follow in any case. `claim(name, identity)`: who else is this cluster already, if any.
        `misbehaviour`, `identities`: what was written down of it."""
        self.name = name
        self.state = WorkerState(misbehaviour=misbehaviour)
        self.session: Session | None = None
        """Open and synced, while connected."""
        self._identities = list(identities)  # that it has had, as far as we know; the latest few
        self.token: TokenState | None = None
        """What is known of its token (renewal.py)."""
        self._in_use: bytes | None = None  # the kubeconfig of the session
        self._impostors: set[str] = set()  # keys of what was put in the place of copies of ours
        self._target, self._options, self._handlers = target, options, handlers
        self._losses, self._claim, self._clock = losses, claim, clock
        self._asked = set(asked)
        self._occupied: set[Scope] = set()  # where there were copies when the last session ended
        self._failures: dict[Scope, int] = {}  # heartbeats in a row at which it could not be followed
        self._retries = options.heartbeat.failure_threshold - 1  # for the first session, or one in another's place
        self._budget = WorkerBudget(name, lambda: options.known_copies(name), self._broke_budget)
        self._breach: OverBudget | None = None  # of the session that is open
        self._scope: asyncio.Timeout | None = None
        self._replaced: list[float] = []  # when it was another cluster than before
        self._parsed: tuple[bytes, Connection | ConfigError] | None = None
        self._told_at = float("-inf")  # when its capacity and namespaces were told last
        self._telling: asyncio.TimerHandle | None = None
        self._poked = asyncio.Event()
        self._settled = asyncio.Event()
        self._log = _log.bind(cluster=name)

    def retarget(self, target: Target) -> None:
        """The WorkerCluster or its kubeconfig has changed."""
        if target != self._target:
            self._target = target
            self._lift()
            self._poked.set()

    def recheck(self) -> None:
        """Who it is has to be asked again: another has its identity."""
        self._poked.set()

    def recorded_misbehaviour(self, found: Misbehaviour | None) -> None:
        """What its WorkerCluster says about it has changed: by us, by another process of ours, or by a person."""
        known = self.state.misbehaviour
        if found is None and known is not None:
            self._note(None)
            self._poked.set()
        elif found is not None and (known is None or found.until > known.until + 1.0):
            self._note(found)
            self._poked.set()

    def follow(self, namespace: str, resource: Resource = JOBS) -> None:
        """Keep track of the copies in that namespace, now and in each session to come."""
        scope = (resource, namespace)
        if scope not in self._asked:
            self._asked.add(scope)
            if self.session is not None:
                self.session.follow(namespace, resource)

    def uses(self, kubeconfig: bytes) -> bool:
        """Nobody here uses another one."""
        return self.session is None or self._in_use == kubeconfig

    def scopes(self) -> set[Scope]:
        """Where there are copies, or may be for all we know."""
        return self._asked | (self.session.occupied() if self.session is not None else self._occupied)

    def copies(self, uid: str, resource: Resource = JOBS) -> list[Json]:
        """What its cache holds of one object; nothing while it is not connected."""
        return self.session.copies(uid, resource) if self.session is not None else []

    def note_impostor(self, key: str, *, there: bool) -> None:
        """Something with our signature that is not ours: it was put in the place of a copy that is gone."""
        if not there:
            self._impostors.discard(key)
        elif len(self._impostors) < _MOST_IMPOSTORS:
            self._impostors.add(key)

    def foreign(self) -> int:
        """How many objects are there that carry our labels and are not ours, as far as we count them."""
        session = self.session  # once: metrics are rendered on a thread of their own
        return session.foreign() + len(self._impostors) if session is not None else 0

    async def settled(self) -> None:
        """Wait until it is known whether it can be reached."""
        await self._settled.wait()

    def contact(self, namespace: str | None, resource: Resource, *, recorded: bool) -> Contact:
        """Whether it can be talked to, as a whole or about the copies in one namespace."""
        state = self.state
        contact = Contact(
            state.ready and self.session is not None,
            self._losses.since(self.name) if self._settled.is_set() else None,
            state.why_not_ready[1],
            state.why_not_ready[0],
            outages=self._losses.outages(self.name),
            recorded=recorded,
            clock_ahead=state.clock_ahead,
        )
        if self.session is None or namespace is None:
            return contact
        # Trouble counts from the heartbeat that noted it until one notes its end: everybody concerned is told then.
        # A watch that is broken for a while in between makes nothing vanish: what it showed stays in the cache.
        trouble = state.unfollowed.get((resource.name, namespace))
        is_filled = self.session.is_filled(namespace, resource)
        if trouble is None and is_filled:
            return replace(contact, connected=True, lost_since=None, why="", reason="")
        if trouble is None and not state.ready:
            return contact  # it is not followed because nothing is allowed there
        why = trouble or f"its namespace {namespace} is not followed yet"
        lost_since = self._losses.since(self.name, (resource, namespace))
        return replace(contact, connected=False, lost_since=lost_since, why=why, reason="")

    # --- the connection

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(initial=1.0, maximum=_LONGEST_WAIT)
        try:
            while True:
                self._poked.clear()
                wait = self._pause()
                if not wait:
                    if await self._guarded():
                        backoff.reset()
                    wait = self._pause() or backoff.delay()
                if self._poked.is_set():
                    continue
                try:
                    async with asyncio.timeout(wait):
                        await self._poked.wait()
                except TimeoutError:
                    pass
                else:
                    backoff.reset()
        finally:
            if self._telling is not None:
                self._telling.cancel()
            self._settled.set()  # nobody is to wait for it any more

    def _pause(self) -> float:
        """How many seconds it is to be left alone."""
        misbehaviour = self.state.misbehaviour
        left = misbehaviour.until - self._clock() if misbehaviour is not None else 0.0
        if left <= 0:
            return 0.0
        self._lost("Misbehaving", str(misbehaviour))
        return left

    async def _guarded(self) -> bool:
        """One session to its end; whether it ever was one. Whatever is wrong with one worker costs that one alone."""
        try:
            async with asyncio.timeout(None) as self._scope:
                return await self._once()
        except Exception as error:  # noqa: BLE001
            if self._breach is not None:
                self._misbehaved(self._breach)
            else:
                self._lost("InternalError", f"{type(error).__name__}: {error}")
                self._log.error("a worker's connection failed unexpectedly", exc_info=True)
            return False
        finally:
            self._scope = self._breach = None

    async def _once(self) -> bool:
        target = self._target
        if target.kubeconfig is None:
            self._lost(target.reason, target.problem)
            return False
        try:
            connection = await self._connection(target.kubeconfig)
        except ConfigError as error:
            self._lost("KubeconfigRefused", str(error))
            return False
        connected = False
        try:
            async with Session.open(
                connection,
                target.session,
                SessionHandlers(self._copy_changed, self._cluster_changed, self._cache_filled),
                also=self._asked | self._occupied,
                guard=self._options.guard,
                clock=self._clock,
                budget=self._budget,
                formerly=tuple(self._identities),
            ) as session:
                same = self._claim(self.name, session.facts.identity)
                if same:
                    self._lost("SameCluster", f"it is the same cluster as {same}; one of the two is not used")
                    return False
                connected, self._in_use = True, target.kubeconfig
                try:
                    self._connected(session)
                    await self._follow(session, connection, target)
                finally:
                    self.session, self._occupied = None, session.occupied()
        except (ApiError, TimeoutError) as error:
            if self._breach is not None:
                raise
            if connected or self._retries == 0:
                reason, _ = why_not_connected(error)
                self._lost(reason, failure_in_words(self.name, connection.server, target.joined_by, error))
            else:
                self._retries -= 1  # as with heartbeats, one failure is no loss
                self._log.info("worker is not connected anew yet", error=str(error))
        return connected

    async def _connection(self, kubeconfig: bytes) -> Connection:
        """What it says, read once. Raises ConfigError."""
        if self._parsed is None or self._parsed[0] != kubeconfig:
            if len(kubeconfig) <= _SMALL_KUBECONFIG:
                found = self._parse(kubeconfig)
            else:
                async with self._options.parsing:
                    found = await asyncio.to_thread(self._parse, kubeconfig)
            self._parsed = (kubeconfig, found)
        found = self._parsed[1]
        if isinstance(found, ConfigError):
            raise found
        return found

    def _parse(self, kubeconfig: bytes) -> Connection | ConfigError:
        try:
            return Connection.strict(kubeconfig, name=self.name, plain_http=self._options.plain_http)
        except ConfigError as error:
            return error
        except Exception as error:  # noqa: BLE001
            # Whatever it says may be a part of the kubeconfig, and the status of a WorkerCluster is no place for that.
            return ConfigError(f"the kubeconfig cannot be read ({type(error).__name__})")

    # --- what it may not do

    def _broke_budget(self, error: OverBudget) -> None:
        """Whoever notices it first ends the session."""
        if self._breach is None and self._scope is not None:
            self._breach = error
            self._scope.reschedule(asyncio.get_running_loop().time())

    def _misbehaved(self, error: OverBudget) -> None:
        self._note(Misbehaviour.after(self.state.misbehaviour, error.message, self._clock()))
        self._log.warning("worker misbehaves", error=error.message)
        metrics.MISBEHAVED.labels(self.name).inc()
        self._pause()

    def _is_another(self) -> None:
        """Its identity has changed. Raises OverBudget for one that is another cluster each time."""
        now = asyncio.get_running_loop().time()
        self._replaced = [at for at in self._replaced if at > now - _IDENTITIES_WITHIN] + [now]
        if len(self._replaced) > _IDENTITIES:
            raise self._budget.traffic.breach("it says again and again that it is another cluster")

    def _lift(self) -> None:
        """It may be tried at once, whatever it did."""
        if self.state.misbehaviour is not None:
            self._note(self.state.misbehaviour.lifted(self._clock()))

    def _note(self, misbehaviour: Misbehaviour | None) -> None:
        if misbehaviour != self.state.misbehaviour:
            self.state = replace(self.state, misbehaviour=misbehaviour)
            self._handlers.state_changed(self.name, reconnected=False)

    async def _follow(self, session: Session, connection: Connection, target: Target) -> None:
        """Heartbeats until they fail, or until something about the worker is to be different."""
        heartbeat = self._options.heartbeat
        failures, beats, wait = 0, 0, heartbeat.period * _phase(self.name)
        while True:
            try:
                async with asyncio.timeout(wait):
                    await self._poked.wait()
            except TimeoutError:
                pass
            else:
                if not await self._took_token(connection, target):
                    self._renew("Reconnecting", "its credentials or its settings have changed")
                    return
                target = self._target
            started = asyncio.get_running_loop().time()
            try:
                answer = await probe(session.prober, heartbeat.timeout, self._clock)
                if session.watch_error is not None:
                    raise session.watch_error  # it answers, and does not let us follow our copies
            except ApiError:
                failures += 1
                if failures >= heartbeat.failure_threshold:
                    raise
                wait = heartbeat.period / 4
                continue
            if answer.identity != session.facts.identity:
                self._is_another()
                self._renew("Replaced", "another cluster answers at its address now")
                return
            failures, beats, wait = 0, beats + 1, heartbeat.period
            self._answered(answer, asyncio.get_running_loop().time() - started)
            self._check_scopes(session)
            self._check_room(session)
            if self.state.missing and beats % _BEATS == 0 and await self._got_rights(session):
                self._renew("Reconnecting", "it has given us rights that we lacked")
                return
            if target.session.follow_nodes and beats % _PODS_BEATS == 0 and await self._may_see_pods(session):
                self._renew("Reconnecting", "it has given us rights that we lacked")
                return

    async def _took_token(self, connection: Connection, target: Target) -> bool:
        """Only its token is another one: the session goes on with that, and shows at once that it is good."""
        self._poked.clear()
        wanted = self._target
        if wanted.kubeconfig in (None, target.kubeconfig) or wanted.session != target.session:
            return False
        assert wanted.kubeconfig is not None, "else it would be among those"
        try:
            taken = connection.take_token(await self._connection(wanted.kubeconfig))
        except ConfigError:
            return False
        if taken:
            self._in_use = wanted.kubeconfig
            self._log.info("worker has another token")
        return taken

    def _answered(self, answer: ProbeAnswer, latency: float) -> None:
        now = self._clock()
        self.state = replace(self.state, last_contact=now, latency=latency, clock_ahead=answer.clock_ahead)
        if self.state.misbehaviour is not None and self.state.misbehaviour.is_over(now):
            self._note(None)

    def _check_scopes(self, session: Session) -> None:
        """Which namespaces cannot be followed, and since when: that is the trouble of the copies there alone."""
        lost: dict[tuple[str, str], str] = {}
        for scope in {*session.scopes(), *self._losses.scopes(self.name)}:
            resource, namespace = scope
            trouble = session.trouble(namespace, resource)
            if not trouble:
                self._failures.pop(scope, None)
                if trouble is None:
                    self._losses.found(self.name, scope)
                continue
            self._failures[scope] = self._failures.get(scope, 0) + 1
            known = self._losses.since(self.name, scope) is not None
            if known or self._failures[scope] >= self._options.heartbeat.failure_threshold:
                self._losses.lost(self.name, scope)
                lost[resource.name, namespace] = trouble
        before = self.state.unfollowed.keys()
        if lost.keys() != before:
            self._log.warning("copies that cannot be followed", why=sorted(lost.values()))
            self.state = replace(self.state, unfollowed=lost)
            # Where there is contact again there may be copies of objects that went elsewhere meanwhile, or are gone.
            self._handlers.state_changed(self.name, reconnected=bool(before - lost.keys()))

    async def _got_rights(self, session: Session) -> bool:
        """Whether a new session can do more."""
        try:
            facts: Facts = await check(session.prober, self._target.session.namespaces, self._clock)
        except ApiError:
            return False  # the next heartbeat knows more
        if facts.missing and facts.missing != self.state.missing:
            self.state = replace(self.state, missing=facts.missing)
            self._handlers.state_changed(self.name, reconnected=False)
        return facts.lacking != session.facts.lacking

    async def _may_see_pods(self, session: Session) -> bool:
        """Whether a new session knows what is left on its nodes, and this one does not."""
        try:
            return not session.sees_pods and await sees_pods(session.prober)
        except ApiError:
            return False

    def _check_room(self, session: Session) -> None:
        """Whether what is left on its nodes is known: the right to see pods may be taken away."""
        counts, uncounted = session.nodes() is not None, session.uncounted
        if (counts, uncounted) != (self.state.counts_nodes, self.state.uncounted):
            self.state = replace(self.state, counts_nodes=counts, uncounted=uncounted)
            self._handlers.state_changed(self.name, reconnected=False)

    # --- what becomes of it

    def _connected(self, session: Session) -> None:
        self.session = session
        self._impostors.clear()
        identity = session.facts.identity  # the last, also one that comes back: copies are signed for it from now on
        self._identities = [*filter(identity.__ne__, self._identities), identity][-_FORMER_IDENTITIES:]
        metrics.show_foreign(self.name, self.foreign)
        for resource, namespace in self._asked:  # also those that were asked for while it was being opened
            session.follow(namespace, resource)
        if session.facts.missing:
            self._losses.lost(self.name)
        else:
            self._losses.found(self.name)
        self._failures.clear()
        self._retries = 0
        self.state = WorkerState(
            connected=True,
            reason="Connected",
            message=f"Kubernetes {session.facts.version}",
            last_contact=self._clock(),
            clock_ahead=session.facts.clock_ahead,
            version=session.facts.version,
            identity=session.facts.identity,
            former=tuple(each for each in self._identities if each != session.facts.identity),
            misbehaviour=self.state.misbehaviour,
            is_management=session.facts.identity == self._options.origin,
            missing=session.facts.missing,
            capacity=session.capacity(),
            namespaces=session.namespaces(),
            counts_nodes=session.nodes() is not None,
            uncounted=session.uncounted,
        )
        self._check_scopes(session)
        self._log.info("worker connected", version=session.facts.version, missing=list(session.facts.missing))
        self._handlers.state_changed(self.name, reconnected=True)
        self._settled.set()

    def _renew(self, reason: str, message: str) -> None:
        """The session ends because there is to be another one: that is no loss, until the other one fails."""
        self.session = None
        self._losses.found(self.name)
        self._retries = self._options.heartbeat.failure_threshold - 1
        self.state = replace(self.state, connected=False, reason=reason, message=message)
        self._log.info("worker is connected anew", reason=reason)
        self._handlers.state_changed(self.name, reconnected=False)
        self._poked.set()

    def _lost(self, reason: str, message: str) -> None:
        before = self.state
        self.session = None
        self._losses.lost(self.name)
        self.state = replace(before, connected=False, reason=reason, message=message)
        if before.connected or (before.reason, before.message) != (reason, message):
            self._log.warning("worker not connected", reason=reason, error=message)
            self._handlers.state_changed(self.name, reconnected=False)
        self._settled.set()

    # --- what its session tells

    def _copy_changed(self, resource: Resource, change: Change) -> None:
        self._handlers.copy_changed(self.name, resource, change)

    def _cluster_changed(self) -> None:
        """Told at once, and then a few times a second: its namespaces may come and go by the thousand."""
        loop = asyncio.get_running_loop()
        left = self._told_at + _TELL_EVERY - loop.time()
        if left <= 0:
            self._tell_cluster()
        elif self._telling is None:
            self._telling = loop.call_later(left, self._tell_cluster)

    def _tell_cluster(self) -> None:
        self._telling, self._told_at = None, asyncio.get_running_loop().time()
        session = self.session
        if session is not None:
            self.state = replace(
                self.state,
                capacity=session.capacity(),
                namespaces=session.namespaces(),
                counts_nodes=session.nodes() is not None,
                uncounted=session.uncounted,
            )
            self._handlers.capacity_changed(self.name)

    def _cache_filled(self) -> None:
        if self.session is not None:
            self._handlers.state_changed(self.name, reconnected=True)


def _phase(name: str) -> float:
    """When in the period its heart beats: fifty workers that were connected together do not all beat together."""
    return zlib.crc32(name.encode()) / 2**32

"""Leader election on a Lease: at most one process writes.

A candidate takes the Lease when nobody holds it, or when its holder has not renewed it for its whole duration *as
seen by the candidate's own monotonic clock*; wall clocks are never compared. The holder counts its time from *before*
a renewal was sent, and stops believing in itself after `renew_deadline`, which is shorter than the duration: when
another one takes over, the old holder has already stopped. Every attempt has a timeout inside that deadline.

`check` is asked before each write (see Client.guarded), when its connection is made and its turn has come. It looks at
the clock, so that a process that was frozen (SIGSTOP, a suspended machine), or whose event loop hung, finds out before
its first write afterwards, not after it. What cannot be prevented from here is a write that had already left for the
server when the Lease was lost, and one whose process is frozen between the check and the system call that follows it,
for longer than the duration exceeds the deadline; that is what resourceVersions and attempt numbers in the objects are
for.

On a regular stop the Lease is released, so that a standby need not wait for it to run out; but not before all writes
were answered. Where one is not, or was given up on, the Lease is left to run out.
"""

import asyncio
import contextlib
import math
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import structlog

from . import metrics
from .backoff import Backoff
from .client import Client
from .errors import AlreadyExists, ApiError, Conflict, LeadershipLost, NotFound
from .resource import Object
from .resources import LEASES
from .supervise import Supervisor
from .write_guard import WriteGuard

_log = structlog.get_logger(__name__)

_SETTLE_SECONDS: Final = 5.0
"""For the answers of writes that are on their way when the work has ended."""


def _awake() -> float:
    """A clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def default_identity() -> str:
    """This process, and no other: the pod's (or host's) name, and something random."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"


class LeaderElector:
    """One candidate for the leadership named by a Lease."""

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        *,
        identity: str | None = None,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if not retry_period < renew_deadline < lease_duration or lease_duration < 1:
            raise ValueError("retry_period < renew_deadline < lease_duration must hold, and lease_duration be >= 1 s")
        self.name = name
        self.namespace = namespace
        self.identity = identity or default_identity()
        self._client = client
        self._duration = lease_duration
        self._deadline = renew_deadline
        self._period = retry_period
        self._wall_clock = wall_clock
        self._lease: Object | None = None  # as last read or written
        self._changed_at = 0.0  # when we last saw it change, by our own clock
        self._proved_at: float | None = None  # the start of our last successful renewal,
        self._proved_awake = 0.0  # and the same by another clock
        self.guard = WriteGuard(self.check)
        """For clients that write only while we lead."""
        self._metric = metrics.LEADER.labels(name)
        self._metric.set(0)
        self._log = _log.bind(cluster=client.cluster, lease=f"{namespace}/{name}", identity=self.identity)

    @property
    def is_leader(self) -> bool:
        """We lead, and can still prove it."""
        if self._proved_at is None:
            return False
        # The loop's clock stands still while the loop hangs (uvloop) or the machine sleeps; this one does not.
        return self._now() < self._proved_at + self._deadline and _awake() < self._proved_awake + self._deadline

    @property
    def leader(self) -> str | None:
        """Who holds the Lease, as far as we know."""
        return ((self._lease or {}).get("spec") or {}).get("holderIdentity") or None

    def check(self) -> None:
        """Raise LeadershipLost unless we lead. To be called before each write."""
        if not self.is_leader:
            raise LeadershipLost(f"{self.identity} does not lead {self.namespace}/{self.name}: nothing is written")

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait to become the leader, then run `lead` for as long as that lasts, and release the Lease.

        Returns when `lead` does. Raises LeadershipLost when the leadership was lost; `lead` has been cancelled by then.
        """
        await self._acquire()
        try:
            async with Supervisor() as tasks:
                tasks.start(f"renewal of lease {self.namespace}/{self.name}", self._keep())
                await lead()
        finally:
            await self._release()  # only now, when nothing is done in our name any more

    async def _acquire(self) -> None:
        backoff = Backoff(initial=self._period, maximum=self._period)
        told: str | None = None
        while not await self._try_once(self._deadline):
            if self.leader is not None and self.leader != told:
                told = self.leader
                self._log.info("waiting for the lease", leader=told)
            await asyncio.sleep(backoff.delay())
        self._metric.set(1)
        self._log.info("became leader")

    async def _keep(self) -> None:
        """Renew until it does not work any more."""
        while True:
            assert self._proved_at is not None
            ends = self._proved_at + self._deadline
            await asyncio.sleep(min(self._period, max(0.0, ends - self._now())))
            left = ends - self._now()
            if left > 0:
                await self._try_once(left)
            if not self.is_leader or self.leader != self.identity:
                self._proved_at = None
                self._metric.set(0)
                self._log.error("lost lease", leader=self.leader)
                raise LeadershipLost(f"{self.identity} lost {self.namespace}/{self.name} to {self.leader or 'nobody'}")

    async def _try_once(self, seconds: float) -> bool:
        """Take or renew the Lease, or find out who holds it."""
        started, awake = self._now(), _awake()
        try:
            async with asyncio.timeout(seconds):
                taken = await self._take()
        except (ApiError, TimeoutError) as error:
            self._log.warning("cannot reach the lease", error=str(error) or f"no answer in {seconds:.1f} s")
            return False
        if taken:
            self._proved_at, self._proved_awake = started, awake
        return taken

    async def _take(self) -> bool:
        lease = self._lease
        if lease is None or self.leader != self.identity:
            try:
                lease = await self._client.get(LEASES, self.name, self.namespace)
            except NotFound:
                return await self._create()
            self._observe(lease)
            if self.leader not in {None, self.identity} and self._now() < self._changed_at + self._promised():
                return False
        assert lease is not None
        try:
            self._observe(await self._client.replace(LEASES, self._ours(lease)))
        except (Conflict, NotFound):
            # Somebody wrote in between, or a write of ours took effect after all: look again.
            with contextlib.suppress(NotFound):
                self._observe(await self._client.get(LEASES, self.name, self.namespace))
                return self.leader == self.identity and await self._renew_again()
            self._lease = None
            return False
        return True

    async def _renew_again(self) -> bool:
        assert self._lease is not None
        self._observe(await self._client.replace(LEASES, self._ours(self._lease)))
        return True

    async def _create(self) -> bool:
        empty = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
        }
        try:
            self._observe(await self._client.create(LEASES, self._ours(empty)))
        except AlreadyExists:
            return False
        return True

    def _ours(self, lease: Object) -> Object:
        """The Lease with us as its holder, renewed now."""
        spec = dict(lease.get("spec") or {})
        now = self._wall_clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if spec.get("holderIdentity") != self.identity:
            spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + 1 if spec else 0
            spec["acquireTime"] = now
        spec |= {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._duration),  # never less than we rely on
            "renewTime": now,
        }
        return {**lease, "spec": spec}

    async def _release(self) -> None:
        """Best effort, and only if it is ours, and nothing that we sent can still arrive."""
        held, self._proved_at = self._proved_at is not None, None
        self._metric.set(0)
        if not held or self._lease is None or self.leader != self.identity:
            return
        settled = await self.guard.settled(min(_SETTLE_SECONDS, self._duration - self._deadline))
        if not settled or self.guard.gave_up_within(self._duration):
            self._log.warning("left the lease to run out: a write on its way was not answered, and may arrive yet")
            return
        try:
            async with asyncio.timeout(min(5.0, self._deadline)):
                try:
                    await self._clear_holder(self._lease)
                except Conflict:  # a renewal was on its way when the work ended
                    lease = await self._client.get(LEASES, self.name, self.namespace)
                    if lease["spec"].get("holderIdentity") != self.identity:
                        return
                    await self._clear_holder(lease)
        except (ApiError, TimeoutError) as error:
            self._log.warning("could not release the lease; it will run out", error=str(error) or "no answer")
        else:
            self._log.info("released lease")

    async def _clear_holder(self, lease: Object) -> None:
        spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        self._lease = await self._client.replace(LEASES, {**lease, "spec": spec})

    def _promised(self) -> float:
        """How long the holder may rely on the Lease without renewing it; its settings may not be ours."""
        return float(((self._lease or {}).get("spec") or {}).get("leaseDurationSeconds") or self._duration)

    def _observe(self, lease: Object) -> None:
        before = self._lease
        if before is None or before["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
            self._changed_at = self._now()
        self._lease = lease

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

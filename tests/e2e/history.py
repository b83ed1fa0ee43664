"""Everything that happened on a stage, and what must hold of it: I1 to I10, as the fault suite checks them.

Two sources: proxies between the dispatchers and every API server note what was asked for and answered, and watches
that go straight to the API servers note what each cluster held (faults.record). Links that a test cuts, names that it
gives to other clusters and dispatchers that it starts and ends are in the record too, so that a check knows what stood
in the way of what. After each test the stage is brought to rest, by a dispatcher that is started anew, and all checks
of faults.invariants are made on the record; how Jobs end is for the test itself to say.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from faults import CopyLabels, Fault, Injector, Proxy, Record, Rules, Watcher, check
from faults.invariants import at_rest
from faults.record import MANAGEMENT, Life
from faults.stage import DISPATCHER, certificates
from multimirror.api import MirrorQueueSpec
from multimirror.kube import Client, Connection
from multimirror.kube.resources import EVENTS, JOBS, LEASES, PODS
from tests.waiting import DEADLINE

Json = dict[str, Any]
LOOK: Final = 0.05
PATIENCE: Final = 60.0  # for what nothing stands in the way of: this machine may have other things to do


class History:
    """Records while its context is open."""

    def __init__(self, management: Client, workers: Mapping[str, Client]) -> None:
        self._clients = {MANAGEMENT: management, **workers}
        self.record = Record()
        self._injector = Injector((), self.record)
        self._injector.on_state = self._state_changed
        self._proxies: list[Proxy] = []
        self._watchers: list[Watcher] = []
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._injector.stop()
        await self._stack.aclose()

    # --- recording

    async def follow(self, namespace: str) -> None:
        """What happens in that namespace, from now on, on all clusters."""
        resources = dict.fromkeys(self._clients, (JOBS, PODS)) | {MANAGEMENT: (JOBS, PODS, EVENTS, LEASES)}
        watcher = await self._stack.enter_async_context(Watcher(self.record, resources, namespace))
        for cluster, client in self._clients.items():
            await watcher.follow(cluster, client)
        self._watchers.append(watcher)

    async def link(self, cluster: str, kubeconfig: Json, client: str = DISPATCHER) -> Proxy:
        """A way for a dispatcher to a cluster."""
        proxy = Proxy(client, cluster, kubeconfig, self._injector, certificates())
        self._proxies.append(proxy)
        return await self._stack.enter_async_context(proxy)

    @contextlib.contextmanager
    def life(self, client: str = DISPATCHER, *, end: str = "stopped") -> Iterator[None]:
        """A dispatcher's, from its start to its end."""
        self._lived(client, "started")
        try:
            yield
        finally:
            self._lived(client, end)

    def _lived(self, client: str, what: str) -> None:
        self.record.lives.append(Life(asyncio.get_running_loop().time(), client, what))

    def _state_changed(self, link: str) -> None:
        for proxy in self._proxies:
            if proxy.link == link:
                proxy.state_changed()

    # --- what goes wrong

    def spoil(self, kind: str, cluster: str, client: str = DISPATCHER) -> None:
        """A link is in that state (faults.plan) until it is mended."""
        self._injector.spoil(Fault(kind=kind, link=f"{client}/{cluster}", seconds=math.inf))

    def delay(self, verb: str, resource: str, seconds: float, cluster: str = MANAGEMENT) -> None:
        """The dispatcher's next request of that sort takes so long."""
        link = f"{DISPATCHER}/{cluster}"
        self._injector.expect(Fault(kind="delay", link=link, verb=verb, resource=resource, seconds=seconds))

    def lose_answer(self, verb: str, resource: str, cluster: str = MANAGEMENT) -> None:
        """The dispatcher's next request of that sort takes effect, and nobody tells it."""
        self._injector.expect(Fault(kind="lost", link=f"{DISPATCHER}/{cluster}", verb=verb, resource=resource))

    def mend(self, cluster: str, client: str = DISPATCHER) -> None:
        """It is as before."""
        self._injector.mend(f"{client}/{cluster}")

    def mend_all(self) -> None:
        """Nothing is wrong with any link any more."""
        for link in tuple(self._injector.states):
            self._injector.mend(link)

    def struck(self, kind: str, cluster: str) -> None:
        """Something has been done to a worker (faults.plan), and stays so."""
        self._injector.struck(Fault(kind=kind, link=cluster, seconds=math.inf), math.inf)

    @contextlib.contextmanager
    def without(self, link: str, kind: str = "restart") -> Iterator[None]:
        """For that long nobody can count on a link, on a whole cluster by its name, or on a process by its own."""
        self._injector.spoil(Fault(kind=kind, link=link, seconds=math.inf))
        try:
            yield
        finally:
            self._injector.mend(link)

    # --- looking back

    @property
    def events(self) -> list[tuple[str, str, str, Json]]:
        """Cluster, type of event, kind and object, as they were told."""
        return [(seen.cluster, seen.type, seen.kind, seen.object) for seen in self.record.seen]

    def jobs(self, cluster: str) -> list[tuple[str, Json]]:
        """Every version of every Job of a cluster: type of event, object."""
        return [(seen.type, seen.object) for seen in self.record.changes("Job", cluster)]

    async def check(
        self, rules: Rules, idle: Callable[[], Awaitable[None]] | None = None, *, within: float = DEADLINE
    ) -> None:
        """Wait for rest, while a dispatcher works (which is `idle` then); raise when a promise was broken."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._rest(rules, idle)
        found = check(self.record, rules)
        assert not found, "\n".join(map(str, found))

    async def _rest(self, rules: Rules, idle: Callable[[], Awaitable[None]] | None) -> None:
        while True:
            if idle is not None:
                await idle()
            for watcher in self._watchers:
                await watcher.caught_up()
            if not at_rest(self.record, rules):
                return
            await asyncio.sleep(LOOK)


def rules_of(queue: Json, origin: str | None = None) -> Rules:
    """What holds for the Jobs of a MirrorQueue. With a fence, no policy allows a second copy."""
    spec = MirrorQueueSpec.read(queue)
    return Rules(
        labels=CopyLabels(identity=origin),
        when_lost=spec.on_worker_lost.action if spec.fence is None else "Wait",
        lost_after=spec.on_worker_lost.after,
        fence=spec.fence.timeout if spec.fence is not None else 0.0,
        grace=spec.fence.grace if spec.fence is not None else 0.0,
        retention=spec.retention,
        patience=PATIENCE,
    )


@contextlib.asynccontextmanager
async def watched(
    management: Json, workers: Mapping[str, Json], namespace: str, rules: Rules | None = None
) -> AsyncIterator[None]:
    """A run without proxies, by the clusters' kubeconfigs: what they held is recorded, and checked for what that shows.

    I1 to I7, that is, once all has come to rest; I8 and I9 ask for requests.
    """
    async with contextlib.AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(Client(Connection.from_kubeconfig(kubeconfig), user_agent="watcher"))
            for name, kubeconfig in {MANAGEMENT: management, **workers}.items()
        }
        history = await stack.enter_async_context(History(clients.pop(MANAGEMENT), clients))
        await history.follow(namespace)
        yield
        await history.check(rules or Rules())

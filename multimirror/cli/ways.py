"""Ways to a worker from where a command runs: the dispatcher reaches it from elsewhere, perhaps by another address.

    1. the address that the dispatcher uses, as it is stored
    2. the address by which the worker was joined, which `join` writes beside it; started a moment later, or as soon as
       the first has failed; who is there first, with a certificate of the worker's own CA, is used
    3. through the management cluster (relay)

Each is tried with TLS and no further: a token is sent only to who has shown a certificate of that cluster. The second
counts only where the stored kubeconfig has a CA of its own: any name has a certificate of some public one. The way that
was found is kept until it fails. An address that does not answer costs two and a half seconds, once.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from multimirror.cli.background import Background, current_background
from multimirror.cli.relay.calling import Relay
from multimirror.kube import Connection
from multimirror.kube.dialing import Dialed, Dialer, Direct, NoWay, address_of, in_words, over

P = TypeVar("P", bound=asyncio.BaseProtocol)

_HEAD_START_SECONDS: Final = 0.25
_PATIENCE_SECONDS: Final = 2.5
_REMEMBERED_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Address:
    """One of a worker's, with what it is in words."""

    words: str
    dial: Direct


class Ways:
    """The Dialer of a worker: finds a way, and keeps to it."""

    def __init__(self, addresses: Sequence[Address], relay: Dialer | None) -> None:
        self.used = ""
        """The way that was taken, in words; empty: none yet."""
        self._addresses, self._relay = addresses, relay
        self._choosing = asyncio.Lock()
        self._way: Dialer | None = None
        self._failure: tuple[float, NoWay] | None = None

    async def __call__(self, factory: Callable[[], P]) -> Dialed[P]:
        async with self._choosing:
            way = self._way
            if way is None:
                return await self._choose(factory)
        try:
            return await way(factory)
        except OSError:
            async with self._choosing:
                if self._way is way:
                    self._way = None
            raise  # it is asked for again, where that is safe

    async def _choose(self, factory: Callable[[], P]) -> Dialed[P]:
        now = asyncio.get_running_loop().time()
        if self._failure is not None and now < self._failure[0]:
            raise self._failure[1]
        errors: list[str] = []
        found = await _race(self._addresses, factory, errors)
        if found is not None:
            address, dialed = found
            self._way, self.used = address.dial, f"at {address.dial.server}, {address.words}"
            return dialed
        if self._relay is not None:
            try:
                dialed = await self._relay(factory)
            except OSError as error:
                errors.append(f"through the management cluster: {in_words(error)}")
            else:
                self._way, self.used = self._relay, "through the management cluster"
                return dialed
        failure = NoWay(f"it cannot be reached from here: {'; '.join(errors)}")
        self._failure = (asyncio.get_running_loop().time() + _REMEMBERED_SECONDS, failure)
        raise failure


async def _race(
    addresses: Sequence[Address], factory: Callable[[], P], errors: list[str]
) -> tuple[Address, Dialed[P]] | None:
    """One after the other with a little head start; the first that shows the right certificate wins, the others end.

    None: all have failed, and `errors` says how.
    """
    won: list[tuple[Address, Dialed[P]]] = []
    tasks: list[asyncio.Task[None]] = []

    async def attempt(address: Address, before: asyncio.Event, failed: asyncio.Event) -> None:
        await _at_most(_HEAD_START_SECONDS, before)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                dialed = await address.dial(factory)
        except OSError as error:
            why = f"no answer in {_PATIENCE_SECONDS:g} s" if isinstance(error, TimeoutError) else in_words(error)
            errors.append(f"{address.dial.server}, {address.words}: {why}")
            failed.set()
            return
        if won:
            dialed.transport.abort()
            return
        won.append((address, dialed))
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async with asyncio.TaskGroup() as group:
        before = asyncio.Event()
        before.set()
        for address in addresses:
            failed = asyncio.Event()
            tasks.append(group.create_task(attempt(address, before, failed)))
            before = failed
    return won[0] if won else None


async def _at_most(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


@dataclass(frozen=True, slots=True)
class _Relayed:
    """Through the management cluster, and nobody has to guess that it is so."""

    connection: Connection
    management: Connection
    system: str
    stored_in: str
    here: Background

    async def __call__(self, factory: Callable[[], P]) -> Dialed[P]:
        to = self.connection
        relay = self.here.shared(Relay, lambda: Relay(self.management, self.system, self.here))
        sock = await relay.connect(self.stored_in)
        host, _, _ = address_of(to.server)
        transport, protocol = await over(sock, factory, to.tls, to.tls_server_name or host)
        self.here.note(f"worker {to.name} cannot be reached from here; this goes through the management cluster")
        return Dialed(transport, protocol, to.server)


def ways_to(connection: Connection, joined_by: str | None, management: Connection, system: str, stored_in: str) -> Ways:
    """To the worker with that stored connection. `joined_by`: the address that stands beside it.

    `stored_in`: the Secret and the key in it, by which a dispatcher's pod finds the address too.
    """
    stored = Direct(server=connection.server, tls=connection.tls, tls_server_name=connection.tls_server_name)
    addresses = [Address("as the dispatcher does", stored)]
    if joined_by is not None and joined_by != connection.server:
        addresses.append(Address("by which it was joined", replace(stored, server=joined_by)))
    here = current_background()
    return Ways(addresses, _Relayed(connection, management, system, stored_in, here) if here else None)

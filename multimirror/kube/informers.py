"""One informer shared by many users: whoever asks for the same kind and selectors gets the same cache."""

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from .client import Client
from .informer import Informer
from .resource import Resource

_Key = tuple[Resource, str | None, str | None, str | None]


class Informers:
    """The caches of one cluster. They run while the context is open.

    async with Informers(client) as informers:
        jobs = informers.of(JOBS)
        await informers.synced()
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._informers: dict[_Key, Informer] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._running: list[asyncio.Task[None]] = []

    def of(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> Informer:
        """The cache of this kind; made and started when it is first asked for."""
        key = (resource, namespace, label_selector, field_selector)
        informer = self._informers.get(key)
        if informer is None:
            informer = self._informers[key] = Informer(
                self.client, resource, namespace, label_selector=label_selector, field_selector=field_selector
            )
            if self._tasks is not None:
                self._start(informer)
        return informer

    async def synced(self) -> None:
        """Wait until every cache that was asked for has been filled."""
        for informer in tuple(self._informers.values()):
            await informer.synced()

    def __iter__(self) -> Iterator[Informer]:
        return iter(tuple(self._informers.values()))

    async def __aenter__(self) -> Self:
        self._tasks = await asyncio.TaskGroup().__aenter__()
        for informer in self._informers.values():
            self._start(informer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks is not None:
            for task in self._running:
                task.cancel()
            tasks, self._tasks = self._tasks, None
            await tasks.__aexit__(kind, error, trace)

    def _start(self, informer: Informer) -> None:
        assert self._tasks is not None
        self._running.append(self._tasks.create_task(informer.run(), name=f"informer {informer.resource.name}"))

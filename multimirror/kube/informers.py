"""One informer shared by many users: whoever asks for the same kind and selectors gets the same cache."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from .client import Client
from .informer import Informer
from .resource import Resource
from .supervise import Supervisor

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
        self._tasks: Supervisor | None = None

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
                self._tasks.start(informer.name, informer.run())
        return informer

    async def synced(self) -> None:
        """Wait until every cache that was asked for has been filled."""
        for informer in tuple(self._informers.values()):
            await informer.synced()

    def __iter__(self) -> Iterator[Informer]:
        return iter(tuple(self._informers.values()))

    async def __aenter__(self) -> Self:
        self._tasks = await Supervisor().__aenter__()
        for informer in self._informers.values():
            self._tasks.start(informer.name, informer.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks is not None:
            tasks, self._tasks = self._tasks, None
            await tasks.__aexit__(kind, error, trace)

"""How commands that take a while tell how far they are: a line for each step, at once, also into a pipe."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from multimirror.batch import Json
from multimirror.cli.output import echo
from multimirror.kube import Client, Resource
from multimirror.kube.errors import Gone, TimedOut, Unreachable

_PAUSE: Final = 0.5


def say(text: str) -> None:
    echo(text)


class Progress:
    """Says a thing when it is new, and how long everything took."""

    def __init__(self) -> None:
        self._last = ""
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Unless it was the last thing said."""
        if text != self._last:
            self._last = text
            say(text)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started


async def versions(
    client: Client, resource: Resource, name: str, namespace: str | None = None
) -> AsyncGenerator[Json | None, None]:
    """An object as it is, and again each time it changes; None when it is gone. Goes on through short outages."""
    selector = f"metadata.name={name}"
    while True:
        found = await client.list(resource, namespace, field_selector=selector)
        yield found.items[0] if found.items else None
        try:
            async with aclosing(
                client.watch(
                    resource, namespace, resource_version=found.resource_version, field_selector=selector, timeout=60
                )
            ) as events:
                async for event in events:
                    if event.type in {"ADDED", "MODIFIED", "DELETED"}:
                        yield None if event.type == "DELETED" else event.object
        except (Gone, Unreachable, TimedOut):
            await asyncio.sleep(_PAUSE)

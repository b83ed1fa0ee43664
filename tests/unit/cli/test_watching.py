"""`get --watch` shows what it hears, also what was there when it began to listen."""

import asyncio
from collections.abc import Callable
from typing import Any

from multimirror.cli.commands import get
from multimirror.kube import Change
from multimirror.kube.resources import EVENTS, JOBS


class Caches:
    """Of every kind one, whose handlers the test calls."""

    def __init__(self) -> None:
        self.handlers: dict[Any, Callable[[Change], None]] = {}

    def of(self, resource: Any, *_: object, **__: object) -> Any:
        caches = self

        class Cache:
            def add_handler(self, handler: Callable[[Change], None]) -> None:
                caches.handlers[resource] = handler

            def list(self) -> list[Any]:
                return []

        return Cache()


def test_a_reason_that_was_there_before_the_watch_is_news() -> None:
    """The Jobs may be shown before the cache of events is filled; then nothing else need ever happen to them."""
    caches, news = Caches(), asyncio.Event()
    get._following_context(caches, get._Asked(JOBS, None, "team", None, "table"), news)  # type: ignore[arg-type]
    event = {"metadata": {"namespace": "team", "name": "why"}}
    caches.handlers[EVENTS](Change(None, event, initial=True))
    assert news.is_set()

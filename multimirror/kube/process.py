"""The frame of a process: an event loop, signals, and an orderly end.

    run(main)       # main(stop) works until `stop` is set, tidies up and returns

SIGTERM or SIGINT set `stop`. Who has not come to an end after `grace` seconds (or at a second signal) is cancelled.
Tasks that are still there when `main` has returned were left behind by mistake; they are logged by name, and
cancelled.
"""

import asyncio
import contextlib
import gc
import signal
from collections.abc import Awaitable, Callable

import structlog

_log = structlog.get_logger(__name__)


def run(main: Callable[[asyncio.Event], Awaitable[None]], *, grace: float = 25.0) -> None:
    """Run `main` to its end on a fast event loop. The kubelet allows 30 seconds; `grace` stays below that."""
    relax_garbage_collector()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_supervise(main, grace))


def relax_garbage_collector() -> None:
    """Look for reference cycles seldom: caches of JSON have none, and walking them costs more than parsing them did.

    With the defaults more than half of the CPU time of a busy watch goes there. Young cycles are still found.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


async def _supervise(main: Callable[[asyncio.Event], Awaitable[None]], grace: float) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(main(stop))

    def on_signal(which: signal.Signals) -> None:
        if stop.is_set():
            _log.warning("stops at once", signal=which.name)
            work.cancel()
            return
        _log.info("stops", signal=which.name, grace=grace)
        stop.set()
        loop.call_later(grace, work.cancel)

    for which in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(which, on_signal, which)
    try:
        await work
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        _log.error("did not stop in time and was cancelled", grace=grace)
    finally:
        for which in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(which)
        await _sweep()


async def _sweep() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        _log.error("a task was left behind", task=task.get_name())
        task.cancel()
    with contextlib.suppress(ValueError):  # an empty set
        await asyncio.wait(left)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - does not exist on every system
    except ImportError:
        return None
    return uvloop.new_event_loop

"""How the demonstration is shown: live on a terminal, line by line where there is none.

The live view is drawn when something has changed, at most ten times a second, and once a second for its clock; each
frame is written over the last one in a single write, so that nothing flickers. It follows the size of the terminal.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from clusters.demonstration.scene import Happening, Scene, Tone
from clusters.demonstration.view import ASCII, UNICODE, Symbols, frame, status_line
from multimirror.kube.terminal import printable

_FRAME_SECONDS: Final = 0.1
_CLOCK_SECONDS: Final = 1.0
_WORTH_A_LINE: Final = (Tone.STORY, Tone.MOVED, Tone.BAD)


def is_live(console: Console) -> bool:
    """Whether a view can be drawn there."""
    return console.is_terminal and not console.is_dumb_terminal


def marks_for(console: Console) -> Symbols:
    """What the terminal can show."""
    return ASCII if console.options.ascii_only else UNICODE


def drawing(scene: Scene, console: Console) -> Text:
    """One frame, as large as the terminal is now."""
    width, height = console.size
    lines = frame(scene.picture(), width, height, marks_for(console))
    for line in lines:
        line.plain = printable(line.plain)
    return Text("\n", no_wrap=True, overflow="crop", end="").join(lines)


@contextlib.asynccontextmanager
async def showing(scene: Scene, console: Console) -> AsyncIterator[None]:
    """Show it while the context is open."""
    show = _live(scene, console) if is_live(console) else _lines(scene, console)
    task = asyncio.create_task(show, name="the view")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _live(scene: Scene, console: Console) -> None:
    news = asyncio.Event()
    listener = lambda _: news.set()  # noqa: E731 - it is given away and taken back by this name
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, news.set)
    scene.listeners.append(listener)
    size = console.size
    try:
        with Live(
            console=console, screen=True, auto_refresh=False, get_renderable=lambda: drawing(scene, console)
        ) as live:
            while True:
                if console.size != size:
                    size = console.size
                    console.clear()  # what a smaller terminal has wrapped would stay
                live.refresh()
                await asyncio.sleep(_FRAME_SECONDS)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_CLOCK_SECONDS):
                        await news.wait()
                news.clear()
    finally:
        scene.listeners.remove(listener)
        loop.remove_signal_handler(signal.SIGWINCH)


async def _lines(scene: Scene, console: Console) -> None:
    news: asyncio.Queue[Happening | None] = asyncio.Queue()
    scene.listeners.append(news.put_nowait)
    shown, last = "", 0.0
    try:
        while True:
            happening = await news.get()
            if happening is not None:
                if happening.tone in _WORTH_A_LINE:
                    text = f"{happening.second:5.1f} s  -- {happening.who} {' '.join(happening.what.split())}"
                    console.print(printable(text), soft_wrap=True, markup=False)
                continue
            picture = scene.picture()
            line = status_line(picture)
            if picture.second >= last + _CLOCK_SECONDS and line[7:] != shown:
                console.print(printable(line), soft_wrap=True, markup=False)
                shown, last = line[7:], picture.second
    finally:
        scene.listeners.remove(news.put_nowait)

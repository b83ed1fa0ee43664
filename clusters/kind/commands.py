"""Runs docker and kind; a command that fails is told by its last words, one that is cancelled is ended first."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from clusters.fleet import FleetError


class CommandError(FleetError):
    """A command failed, or took too long."""


class NotPossibleError(FleetError):
    """No kind fleet can be made here; says what is wrong and what to do."""


async def run(
    *arguments: str,
    given: str | None = None,
    seconds: float = 900.0,
    scratch: Path | None = None,
    descriptors: Sequence[int] = (),
    alone: bool = False,
) -> str:
    """What it prints. `scratch`: where it puts temporary files; `descriptors`: what it and its children are to hold
    while they run; `alone`: should it have to be ended, its children are left to come to their end."""
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.PIPE if given is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(scratch)} if scratch else None,
            pass_fds=tuple(descriptors),
            start_new_session=True,  # so that its own children can be ended with it
        )
    except OSError as error:
        raise CommandError(f"{arguments[0]}: {error}") from error
    try:
        async with asyncio.timeout(seconds):
            told, complaints = await process.communicate(given.encode() if given is not None else None)
    except TimeoutError:
        raise CommandError(f"`{' '.join(arguments)}` did not end in {seconds:g} s") from None
    finally:
        if process.returncode is None:
            await _end(process, os.kill if alone else os.killpg)
    if process.returncode != 0:
        words = complaints.decode(errors="replace").strip().splitlines()[-15:]
        raise CommandError("\n".join([f"`{' '.join(arguments)}` failed (exit code {process.returncode}):", *words]))
    return told.decode(errors="replace")


async def has_image(image: str) -> bool:
    """Whether this Docker has it."""
    try:
        await run("docker", "image", "inspect", "--format", "{{.Id}}", image, seconds=30)
    except CommandError:
        return False
    return True


async def _end(process: asyncio.subprocess.Process, kill: Callable[[int, int], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            kill(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                while process.returncode is None:  # noqa: ASYNC110 - wait() waits for whoever holds its output, too
                    await asyncio.sleep(0.02)
            return

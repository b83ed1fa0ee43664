"""`logs -f`: a Job's logs, followed from worker to worker to its end. What is shown is decided in following.py."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from multimirror.batch import Json
from multimirror.cli.attempt_logs import AttemptLogs
from multimirror.cli.following import Decision, Memory, Observed, decide
from multimirror.cli.log_lines import Printer
from multimirror.cli.logs import LogOptions, Say
from multimirror.kube import Client, Informer
from multimirror.kube.errors import Unreachable
from multimirror.kube.informers import Informers
from multimirror.kube.resources import EVENTS, JOBS
from multimirror.kube.supervise import Supervisor, TaskEnded

_FIRST_LOOK: Final = 15.0
_LOOK_EVERY: Final = 5.0
"""Seconds; that a cache of the management cluster has become stale is no event."""


async def follow(
    management: Callable[[], Client], original: Json, options: LogOptions, *, system: str, write: Say, note: Say
) -> None:
    """Until the Job has ended and everything is read, or is known to be out of reach. Raises CommandError."""
    try:
        async with management() as client:
            await _Following(management, client, original, options, system=system, write=write, note=note).run()
    except TaskEnded as ended:
        cause: BaseException | None = ended
        while isinstance(cause, TaskEnded):
            cause = cause.__cause__
        if isinstance(cause, OSError):  # whoever read our output has gone, for example
            raise cause from ended
        raise


class _Following:
    def __init__(
        self,
        management: Callable[[], Client],
        client: Client,
        original: Json,
        options: LogOptions,
        *,
        system: str,
        write: Say,
        note: Say,
    ) -> None:
        self._management, self._client, self._system = management, client, system
        self._original, self._options, self._note = original, options, note
        self._printer = Printer(write, prefix=options.prefix)
        self._memory = Memory()
        self._attempt: AttemptLogs | None = None
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def run(self) -> None:
        metadata, clock = self._original["metadata"], asyncio.get_running_loop().time
        async with Informers(self._client) as informers, Supervisor() as tasks:
            jobs = informers.of(JOBS, metadata["namespace"], field_selector=f"metadata.name={metadata['name']}")
            events = informers.of(EVENTS, metadata["namespace"], field_selector=f"involvedObject.uid={metadata['uid']}")
            for informer in (jobs, events):
                informer.add_handler(lambda _change: self._news.set())
            await _synced(jobs)
            while True:
                self._news.clear()
                found = next((job for job in jobs.list() if job["metadata"]["uid"] == metadata["uid"]), None)
                self._original = found or self._original
                trouble = jobs.error.message if jobs.error is not None else ""
                observed = self._observed(found, list(events.list()) if events.has_synced else None, trouble)
                decision = decide(observed, self._memory, clock())
                self._memory = decision.memory
                for text in decision.say:
                    self._note(text)
                await self._act(decision, tasks)
                if decision.done:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(_LOOK_EVERY, decision.again_in or _LOOK_EVERY)):
                        await self._news.wait()

    def _observed(self, original: Json | None, events: list[Json] | None, trouble: str) -> Observed:
        attempt = self._attempt
        if attempt is None:
            return Observed(original=original, events=events, management_trouble=trouble)
        if attempt.refused is not None:
            raise attempt.refused
        return Observed(
            original=original,
            events=events,
            at=attempt.place,
            trouble=attempt.trouble,
            drained=attempt.drained,
            unread=attempt.unread,
            management_trouble=trouble,
        )

    async def _act(self, decision: Decision, tasks: Supervisor) -> None:
        """Read at the decided place, and nowhere else."""
        if self._attempt is not None and self._attempt.place != decision.follow:
            self._attempt, reading = None, self._reading
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])
        if self._attempt is None and decision.follow is not None:
            self._printer.forget()
            self._attempt = AttemptLogs(
                decision.follow,
                self._management,
                lambda: self._original,
                self._options,
                system=self._system,
                printer=self._printer,
                note=self._note,
                changed=self._news.set,
                first=self._reading is None and self._memory.waits is None,
            )
            name = f"logs of attempt {decision.follow.attempt}"
            self._reading = tasks.start(name, self._attempt.run(), may_return=True)
        if self._attempt is not None and decision.ending:
            self._attempt.finish()


async def _synced(jobs: Informer) -> None:
    """A cache waits for ever for what it may not read."""
    try:
        async with asyncio.timeout(_FIRST_LOOK):
            await jobs.synced()
    except TimeoutError:
        raise jobs.error or Unreachable(f"no list of Jobs in {_FIRST_LOOK:g} s", cluster=jobs.client.cluster) from None

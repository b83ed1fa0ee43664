"""The logs of one attempt on its worker: its copy is found, its pods are watched, and each is read to its end.

A worker that cannot be reached is tried again, with back-off, for as long as somebody wants to read there. As in the
dispatcher a session ends as a whole and is never repaired: a heartbeat that fails ends every stream, those included
that hang on a connection which is dead and does not know it yet. How far each pod was read outlives it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

from multimirror.batch import Json
from multimirror.cli.container_runs import is_sound
from multimirror.cli.copies import Copy, find_copy, worker_of
from multimirror.cli.errors import CommandError
from multimirror.cli.following import Place
from multimirror.cli.log_lines import Printer
from multimirror.cli.log_reader import LogReader, Progress
from multimirror.cli.logs import LogOptions, Say
from multimirror.cli.workers import CredentialsError, WorkerConnection
from multimirror.kube import ApiError, Change, Client, Informer, key_of
from multimirror.kube.backoff import Backoff
from multimirror.kube.errors import NotFound, TimedOut, Unreachable
from multimirror.kube.resources import JOBS, PODS
from multimirror.kube.supervise import Supervisor

_ANSWER: Final = 8.0
"""Seconds that an answer may take, once there was one."""
_HEARTBEAT: Final = 5.0
_NOT_MADE_YET: Final = 0.5
_LONGEST_WAIT: Final = 15.0


class AttemptLogs:
    """Reads at one place while `run` does. What becomes of it is in the attributes; `changed` is called for each."""

    def __init__(
        self,
        place: Place,
        management: Callable[[], Client],
        original: Callable[[], Json],
        options: LogOptions,
        *,
        system: str,
        printer: Printer,
        note: Say,
        changed: Callable[[], None],
        first: bool,
    ) -> None:
        """`management` opens another client there; `original` is the Job as it was seen last; `first`: what was written
        before we came is shown as far as the options ask for it, and not all of it."""
        self.place = place
        self.trouble = ""
        """Why nothing can be read."""
        self.refused: CredentialsError | None = None
        """It will never be: who asks may not read the worker's credentials."""
        self.drained = False
        """Everything was read, after `finish`."""
        self._management, self._original, self._options, self._system = management, original, options, system
        self._printer, self._note, self._changed = printer, note, changed
        self._first_look = first
        self._progress: dict[str, Progress] = {}  # by the pod's uid
        self._pods: dict[str, Json] = {}  # as they are now, by uid
        self._readers: dict[str, LogReader] = {}
        self._worker: WorkerConnection | None = None  # as it was last
        self._finishing = False
        self._found = False  # the copy, once
        self._news = asyncio.Event()

    @property
    def unread(self) -> list[str]:
        """What was not read to its end, in words."""
        left = [each for each in self._progress.values() if not each.complete]
        return [f"pod {each.name}" + (f" ({each.problem})" if each.problem else "") for each in left]

    def finish(self) -> None:
        """The Job has ended: no more pods will come."""
        if not self._finishing:
            self._finishing = True
            self._news.set()

    async def run(self) -> None:
        """Until it is drained."""
        backoff = Backoff(initial=1.0, maximum=_LONGEST_WAIT)
        while not self.drained:
            try:
                await self._session(backoff)
            except CredentialsError as error:
                if error.hidden:
                    self.refused = error
                    self._changed()
                    return
                self._tell(error.message)
            except CommandError as error:
                self._tell(error.message)
            except ApiError as error:
                self._tell(error.message)
            else:
                continue
            await asyncio.sleep(backoff.delay())

    def _tell(self, trouble: str) -> None:
        if bool(trouble) != bool(self.trouble):
            self._changed()
        self.trouble = trouble

    async def _session(self, backoff: Backoff) -> None:
        """From a connection to its end. Raises ApiError and CommandError."""
        worker = self._worker = await self._connection()
        async with worker.client() if worker is not None else self._management() as there:
            copy = await self._copy(lambda: find_copy(there, self._original(), worker))
            backoff.reset()
            if copy is None or copy.job is None:
                self._drained_without_copy()
            else:
                await self._follow(copy)

    async def _connection(self) -> WorkerConnection | None:
        """The way there, as it is stored now; or as it was, while the management cluster does not answer."""
        if self.place.worker is None:
            return None
        try:
            async with self._management() as client:
                return await worker_of(client, self._original(), self._system)
        except (Unreachable, TimedOut):
            if self._worker is None:
                raise
            return self._worker

    async def _copy(self, find: Callable[[], Coroutine[Any, Any, Copy]]) -> Copy | None:
        """Wait until it is made; None: it never will be."""
        while True:
            copy = await find()
            self._tell("")
            if copy.job is not None or self._finishing:
                return copy
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_NOT_MADE_YET):
                    await self._news.wait()

    def _drained_without_copy(self) -> None:
        if not self._found:
            self._note(f"the copy on {self.place.worker} was removed before its logs were read")
        self._pods = {}  # they went with it
        self._note_gone()
        self.drained = True
        self._changed()

    async def _follow(self, copy: Copy) -> None:
        """Read all its pods, until everything is read or the worker does not answer any more."""
        self._found = True
        self._pods, self._readers = {}, {}
        pods = Informer(copy.client, PODS, copy.namespace, label_selector=copy.pod_selector)
        pods.add_handler(self._pod_changed)
        async with Supervisor() as tasks:
            tasks.start(pods.name, pods.run())
            await _synced(pods)
            self._note_gone()
            loop = asyncio.get_running_loop()
            beat, all_known = loop.time() + _HEARTBEAT, False
            while True:
                self._news.clear()
                if self._finishing and not all_known:
                    found = await copy.client.list(PODS, copy.namespace, label_selector=copy.pod_selector)
                    for pod in filter(is_sound, found.items):
                        self._pods.setdefault(pod["metadata"]["uid"], pod)  # in place: readers look there
                    all_known = True
                self._start_readers(copy, tasks)
                if all_known and all(each.complete for each in self._progress.values()):
                    self.drained = True
                    self._changed()
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(beat):
                        await self._news.wait()
                if loop.time() >= beat:
                    await _beat(copy)
                    beat = loop.time() + _HEARTBEAT

    def _start_readers(self, copy: Copy, tasks: Supervisor) -> None:
        """For pods that nobody reads yet."""
        wanted = [pod for uid, pod in self._pods.items() if uid not in self._readers and self._options.selects(pod)]
        for pod in sorted(wanted, key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), key_of(pod))):
            uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
            if uid not in self._progress:
                tail = self._options.tail if self._first_look else None
                self._progress[uid] = Progress(name, self._options.container_of(pod), tail, self._first_look)
                self._printer.expect(name)
            current = partial(self._pods.get, uid)
            reader = self._readers[uid] = LogReader(
                copy.client, copy.namespace, self._progress[uid], self._printer, current=current, note=self._note
            )
            task = tasks.start(f"log of {name}", reader.run(), may_return=True)
            task.add_done_callback(lambda _task: self._news.set())
        self._first_look = False  # of pods that come later, all is shown

    def _note_gone(self) -> None:
        """Pods that went away while nobody could see them."""
        for uid, progress in self._progress.items():
            if not progress.complete and uid not in self._pods:
                progress.complete = True
                if progress.run is not None:
                    self._note(f"pod {progress.name} is gone, and what it wrote at its end with it")

    def _pod_changed(self, change: Change) -> None:
        if not is_sound(change.object):
            return  # no kubelet has made that
        uid = change.object["metadata"]["uid"]
        if change.new is not None:
            self._pods[uid] = change.new
        else:
            self._pods.pop(uid, None)
        self._news.set()
        reader = self._readers.get(uid)
        if reader is not None:
            reader.changed()


async def _synced(pods: Informer) -> None:
    """Raises Unreachable."""
    try:
        async with asyncio.timeout(_ANSWER):
            await pods.synced()
    except TimeoutError:
        why = pods.error.message if pods.error is not None else f"no list of pods in {_ANSWER:g} s"
        raise Unreachable(why, cluster=pods.client.cluster) from None


async def _beat(copy: Copy) -> None:
    """Any answer will do, and quickly: the way there has been found. Raises ApiError."""
    assert copy.job is not None
    try:
        async with asyncio.timeout(_ANSWER):
            with suppress(NotFound):
                await copy.client.get(JOBS, copy.job["metadata"]["name"], copy.namespace)
    except TimeoutError:
        raise TimedOut(f"no answer in {_ANSWER:g} s", cluster=copy.client.cluster) from None

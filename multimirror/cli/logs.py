"""What the pods of a Job write, read straight from the worker's API server; followed through retries to the Job's end.

A followed log that breaks off while its container still runs is taken up again from the last time that something came.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from multimirror.batch import Json, is_finished
from multimirror.cli.copies import Copy
from multimirror.cli.errors import CommandError
from multimirror.kube import ApiError, Informer
from multimirror.kube.errors import BadRequest, NotFound
from multimirror.kube.resources import JOBS, PODS

_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_AGAIN: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Which logs, and how much of them."""

    pod: str | None = None
    index: int | None = None
    container: str | None = None
    tail: int | None = None
    previous: bool = False

    def selects(self, pod: Json) -> bool:
        metadata = pod["metadata"]
        index = (metadata.get("annotations") or {}).get(_INDEX)
        return self.pod in (None, metadata["name"]) and (self.index is None or index == str(self.index))

    def container_of(self, pod: Json) -> str:
        """The container asked for, else the pod's own choice, else its first."""
        chosen = self.container or (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
        return str(chosen or pod["spec"]["containers"][0]["name"])


class Printer:
    """Whole lines, each with its pod's name where there are several pods."""

    def __init__(self, write: Callable[[str], None], *, prefixed: bool) -> None:
        self._write, self._prefixed = write, prefixed
        self._pending: dict[str, bytes] = {}

    def feed(self, pod: str, chunk: bytes) -> None:
        *lines, rest = (self._pending.pop(pod, b"") + chunk).split(b"\n")
        for line in lines:
            self._line(pod, line)
        if rest:
            self._pending[pod] = rest

    def end(self, pod: str) -> None:
        """A last line without an end is a line too."""
        rest = self._pending.pop(pod, b"")
        if rest:
            self._line(pod, rest)

    def _line(self, pod: str, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        self._write(f"[{pod}] {text}" if self._prefixed else text)


async def read(copy: Copy, options: LogOptions, write: Callable[[str], None], note: Callable[[str], None]) -> None:
    """What there is now, pod by pod."""
    pods = [pod for pod in copy.pods if options.selects(pod)]
    if not pods:
        names = ", ".join(pod["metadata"]["name"] for pod in copy.pods[:5])
        problem = "there is no such pod" if copy.pods else "the Job has no pods (yet)"
        raise CommandError(problem, f"There are: {names}." if names else "")
    printer = Printer(write, prefixed=len(pods) > 1)
    for pod in pods:
        name = pod["metadata"]["name"]
        try:
            async with aclosing(copy.client.stream(_path(copy, name), _params(pod, options))) as chunks:
                async for chunk in chunks:
                    printer.feed(name, chunk)
        except (BadRequest, NotFound) as error:
            note(f"{name}: {error.message}")  # not started yet, or just gone
        printer.end(name)


async def follow(copy: Copy, options: LogOptions, write: Callable[[str], None], note: Callable[[str], None]) -> None:
    """Until the Job has ended and everything is read."""
    assert copy.job is not None
    job = copy.job["metadata"]
    news = asyncio.Event()
    several = (copy.job["spec"].get("parallelism") or 1) > 1 or (copy.job["spec"].get("backoffLimit", 6) or 0) > 0
    printer = Printer(write, prefixed=several and options.pod is None)
    reading: dict[str, asyncio.Task[None]] = {}
    async with (
        Informer(copy.client, PODS, copy.namespace, label_selector=copy.pod_selector) as pods,
        Informer(copy.client, JOBS, copy.namespace, field_selector=f"metadata.name={job['name']}") as jobs,
        asyncio.TaskGroup() as group,
    ):
        for informer in (pods, jobs):
            informer.add_handler(lambda _change: news.set())
            await informer.synced()
        follower = _Follower(copy, options, printer, pods, note)
        while True:
            news.clear()
            for pod in pods.list():
                uid = pod["metadata"]["uid"]
                if uid not in reading and options.selects(pod) and _started(pod, options.container_of(pod)):
                    reading[uid] = group.create_task(follower.run(pod))
                    reading[uid].add_done_callback(lambda _task: news.set())
            now = next((each for each in jobs.list() if each["metadata"]["uid"] == job["uid"]), None)
            over = now is None or is_finished(now.get("status") or {})
            if over and all(task.done() for task in reading.values()):
                break
            await news.wait()


class _Follower:
    """Reads one pod's log to its end."""

    def __init__(
        self, copy: Copy, options: LogOptions, printer: Printer, pods: Informer, note: Callable[[str], None]
    ) -> None:
        self._copy, self._options, self._printer, self._pods, self._note = copy, options, printer, pods, note

    async def run(self, pod: Json) -> None:
        name, container = pod["metadata"]["name"], self._options.container_of(pod)
        params = _params(pod, self._options) | {"follow": True}
        while True:
            last = datetime.now(UTC)
            try:
                async with aclosing(self._copy.client.stream(_path(self._copy, name), params)) as chunks:
                    async for chunk in chunks:
                        last = datetime.now(UTC)
                        self._printer.feed(name, chunk)
            except (NotFound, BadRequest) as error:
                self._note(f"{name}: {error.message}")
                return
            except ApiError as error:
                self._note(f"{name}: {error.message}; trying again")
            now = self._pods.get(f"{self._copy.namespace}/{name}")
            if now is None or _ended(now, container):
                self._printer.end(name)
                return
            await asyncio.sleep(_AGAIN)
            since = last.isoformat(timespec="seconds").replace("+00:00", "Z")
            params |= {"tailLines": None, "sinceTime": since}


def _path(copy: Copy, pod: str) -> str:
    return PODS.path(copy.namespace, pod, "log")


def _params(pod: Json, options: LogOptions) -> dict[str, str | int | bool | None]:
    return {
        "container": options.container_of(pod),
        "tailLines": options.tail,
        "previous": options.previous or None,
    }


def _state(pod: Json, container: str) -> Json:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    found: Json = next((each.get("state") or {} for each in statuses if each.get("name") == container), {})
    return found


def _started(pod: Json, container: str) -> bool:
    state = _state(pod, container)
    return "running" in state or "terminated" in state


def _ended(pod: Json, container: str) -> bool:
    return "terminated" in _state(pod, container) or (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}

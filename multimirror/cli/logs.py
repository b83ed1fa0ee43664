"""Which logs are asked for, and what there is of them now, read straight from the worker's API server."""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from multimirror.batch import Json
from multimirror.cli.copies import Copy
from multimirror.cli.errors import CommandError
from multimirror.cli.log_lines import LineBuffer, Printer
from multimirror.kube.errors import BadRequest, NotFound
from multimirror.kube.resources import PODS

_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Which logs, and how much of them."""

    pod: str | None = None
    index: int | None = None
    container: str | None = None
    tail: int | None = None
    previous: bool = False
    prefix: bool | None = None
    """Whether lines begin with their pod's name; None: where there are several pods."""

    def selects(self, pod: Json) -> bool:
        metadata = pod["metadata"]
        index = (metadata.get("annotations") or {}).get(_INDEX)
        return self.pod in (None, metadata["name"]) and (self.index is None or index == str(self.index))

    def container_of(self, pod: Json) -> str:
        """The container asked for, else the pod's own choice, else its first."""
        chosen = self.container or (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
        return str(chosen or pod["spec"]["containers"][0]["name"])


async def read(copy: Copy, options: LogOptions, write: Say, note: Say) -> None:
    """What there is now, pod by pod."""
    pods = [pod for pod in copy.pods if options.selects(pod)]
    if not pods:
        names = ", ".join(pod["metadata"]["name"] for pod in copy.pods[:5])
        problem = "there is no such pod" if copy.pods else "the Job has no pods (yet)"
        raise CommandError(problem, f"There are: {names}." if names else "")
    printer = Printer(write, prefix=options.prefix)
    printer.expect(*(pod["metadata"]["name"] for pod in pods))
    for pod in pods:
        name, lines = pod["metadata"]["name"], LineBuffer()
        params = {
            "container": options.container_of(pod),
            "tailLines": options.tail,
            "previous": options.previous or None,
        }
        try:
            path = PODS.path(copy.namespace, name, "log")
            async with aclosing(copy.client.stream(path, params)) as chunks:
                async for chunk in chunks:
                    for line in lines.feed(chunk):
                        printer.line(name, line)
        except (BadRequest, NotFound) as error:
            note(f"{name}: {error.message}")  # not started yet, or just gone
        for line in lines.end():
            printer.line(name, line)

"""How a simulated pod behaves, read from its annotations, all of them `node.multimirror.dev/...`:

    duration: 5s            how long its containers run (a Go duration, or seconds); the node has a default
    exit-code: "3"          what they end with; `main=3,setup=1` names containers, the others end with 0
    fail-first: "2"         only the first 2 tries fail (exit code 1 unless given), later ones succeed
    never-finish: "true"    runs until it is deleted (the default for restartPolicy Always), or until told to finish
    finish: "true"          ends now, with its exit code; for pods that run already: `kubectl annotate pod ...`
    start-after: 2s         stays Pending that long after it was bound
    ready-after: 2s         becomes Ready that long after it started
    ignore-sigterm: 10s     goes on for that long after SIGTERM; killed when the grace period ends
    sigterm-exit-code: "0"  what it answers SIGTERM with (default 143)
    evict: "true"           instead of exiting, it is evicted by its node
    crash-node: 30s         instead of exiting, it takes its node down, for that long (`true`: for good)
    log: text               what its containers print

A try is a pod of the same owner (for Indexed Jobs: and index), or a restart of its containers. An annotation that
cannot be read fails the pod with a message that says which one and what it should look like.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from multimirror.batch.durations import DurationError, parse_duration

PREFIX: Final = "node.multimirror.dev/"
_FINISH: Final = f"{PREFIX}finish"
_FOREVER: Final = float("inf")


class BehaviourError(ValueError):
    """An annotation says something that cannot be simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The annotations, read. Times in seconds."""

    duration: float = 0.0
    exit_codes: Mapping[str, int] = field(default_factory=dict)
    """By container; the key `""` stands for every container that is not named."""
    fail_first: int | None = None
    start_after: float = 0.0
    ready_after: float = 0.0
    ignore_sigterm: float = 0.0
    sigterm_exit_code: int = 143
    evict: bool = False
    crash_node: float | None = None
    log: str | None = None

    def fails(self, tries: int) -> bool:
        """Whether the try after that many earlier ones is to fail."""
        return self.fail_first is None or tries < self.fail_first

    def exit_code(self, container: str, tries: int, *, init: bool = False) -> int:
        """What the container ends with, in the try after that many earlier ones. Init containers must be named."""
        if not self.fails(tries):
            return 0
        if init:
            return self.exit_codes.get(container, 0)
        if not self.exit_codes and self.fail_first is not None:
            return 1
        return self.exit_codes.get(container, self.exit_codes.get("", 0))


def read(pod: Mapping[str, Any], default_duration: float = 0.0) -> Behaviour:
    """The pod's behaviour; raises `BehaviourError`."""
    annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    given = {key.removeprefix(PREFIX): text for key, text in annotations.items() if key.startswith(PREFIX)}
    if not given:
        return (
            _PLAIN
            if default_duration == 0.0 and not _is_service(pod)
            else Behaviour(duration=_FOREVER if _is_service(pod) else default_duration)
        )
    unknown = given.keys() - _READERS.keys()
    if unknown:
        raise BehaviourError(
            f"unknown annotation {PREFIX}{min(unknown)}: the simulated node knows {', '.join(sorted(_READERS))}"
        )
    values: dict[str, Any] = {}
    for name, text in given.items():
        attribute, reader = _READERS[name]
        try:
            values[attribute] = reader(text)
        except ValueError as error:
            raise BehaviourError(f"annotation {PREFIX}{name}: {error}") from error
    never = values.pop("never_finish", None)
    if values.pop("finish", False):
        values["duration"] = 0.0
    elif never or (_is_service(pod) and "duration" not in values and never is None):
        values["duration"] = _FOREVER
    values.setdefault("duration", default_duration)
    return Behaviour(**values)


def is_told_to_finish(pod: Mapping[str, Any]) -> bool:
    """Whether somebody wants it to end now. Of all annotations, this one may come while the pod runs."""
    return (pod["metadata"].get("annotations") or {}).get(_FINISH) == "true"


def _is_service(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("restartPolicy", "Always") == "Always")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parse_duration(text).total_seconds()
        except DurationError as error:
            raise ValueError(f"{text!r} is no duration; write for example 5s, 250ms or 1h30m") from error
    if not 0 <= seconds < _FOREVER:
        raise ValueError(f"{text!r} is no duration; it must be finite and not negative")
    return seconds


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is no number; write for example 2")
    return int(text)


def _code(text: str) -> int:
    code = _count(text)
    if code > 255:
        raise ValueError(f"{text!r} is no exit code; they go from 0 to 255")
    return code


def _codes(text: str) -> dict[str, int]:
    codes: dict[str, int] = {}
    for part in text.split(","):
        name, _, code = part.rpartition("=")
        codes[name.strip()] = _code(code.strip())
    return codes


def _down_time(text: str) -> float | None:
    if text in ("true", "false"):
        return _FOREVER if text == "true" else None
    return _seconds(text)


_PLAIN: Final = Behaviour()
_READERS: Final[dict[str, tuple[str, Any]]] = {
    "duration": ("duration", _seconds),
    "exit-code": ("exit_codes", _codes),
    "fail-first": ("fail_first", _count),
    "never-finish": ("never_finish", _flag),
    "finish": ("finish", _flag),
    "start-after": ("start_after", _seconds),
    "ready-after": ("ready_after", _seconds),
    "ignore-sigterm": ("ignore_sigterm", _seconds),
    "sigterm-exit-code": ("sigterm_exit_code", _code),
    "evict": ("evict", _flag),
    "crash-node": ("crash_node", _down_time),
    "log": ("log", str),
}

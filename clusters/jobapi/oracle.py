"""Recorded answers of a real kube-apiserver, replayed against the rules of this package.

    python -m clusters.jobapi.oracle FILE...

A file is gzip-compressed JSON lines. A line with `steps` is a walk: a stored Job and the writes to its spec or status,
each with the server's answer; every write starts from what the accepted ones before it left. Other lines are single
creates. Record the same questions on a newer Kubernetes, and the disagreements are the list of what changed there.

Compared are accept or reject, the set of (reason, field) of the causes, the stored object after an accepted write, and
the messages, as far as they do not print a whole template, a uid, or more than the recording kept.
"""

import argparse
import gzip
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from clusters.jobapi.defaults import prepare_job_create, prepare_job_status_update, prepare_job_update
from clusters.jobapi.job_rules import validate_job_create, validate_job_status_update, validate_job_update
from clusters.jobapi.storage import stored_job, stored_spec
from multimirror.batch.errors import FieldError
from multimirror.batch.status_rules import stored_status
from multimirror.batch.types import Json

_LINE_LIMIT: Final = 2000
_CUT: Final = " … "
_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GENERATED: Final = ("uid", "creationTimestamp", "resourceVersion")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One answer that differs from the server's: what was asked of what, what the server said, what we say."""

    where: str
    what: str
    put: Any
    stored: Any = None
    server: list[str] = field(default_factory=list)
    ours: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}", f"  put:    {_line(self.put)}"]
        if self.stored is not None:
            lines.append(f"  stored: {_line(self.stored)}")
        lines += [f"  server: {cause}" for cause in self.server] + [f"  ours:   {cause}" for cause in self.ours]
        return "\n".join(lines)


def read_recording(path: Path) -> Iterator[Json]:
    """The lines of a recording, walks and creates as they come."""
    with gzip.open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            recorded = orjson.loads(line)
            if not isinstance(recorded, dict) or not ({"job", "steps"} <= recorded.keys() or "put" in recorded):
                raise ValueError(f"line {number} is neither a walk (job, steps) nor a create (put)")
            yield recorded


def replay(path: Path) -> Iterator[Disagreement | None]:
    """For each recorded answer a disagreement, or None where we say the same."""
    for number, recorded in enumerate(read_recording(path), start=1):
        where = f"{path.name}:{number}"
        if "steps" in recorded:
            yield from _replay_walk(recorded, where)
        else:
            yield _replay_create(recorded, where)


def _replay_walk(walk: Json, where: str) -> Iterator[Disagreement | None]:
    job = walk["job"]
    if "stored" in walk:
        job = {**job, "status": walk["stored"]}
    for number, step in enumerate(walk["steps"], start=1):
        part, put = step["part"], step["put"]
        sent = {**job, part: put}
        if part == "status":
            prepared = prepare_job_status_update(sent, job)
            errors = validate_job_status_update(prepared, job)
            ours = stored_status(prepared["status"])
        else:
            prepared = prepare_job_update(sent, job)
            errors = validate_job_update(prepared, job)
            ours = stored_spec(prepared["spec"])
        at = f"{where} step {number} ({part})"
        theirs = step.get("got", put)
        yield _compare(at, step, errors) or _compare_stored(at, step, ours, theirs)
        if step["ok"]:
            job = {**job, part: theirs}


def _replay_create(recorded: Json, where: str) -> Disagreement | None:
    got = recorded.get("got") or {}
    generated = {key: value for key, value in (got.get("metadata") or {}).items() if key in _GENERATED}
    put = recorded["put"]
    uid = generated.get("uid", "00000000-0000-4000-8000-000000000000")
    job = prepare_job_create({**put, "metadata": {**put["metadata"], **generated, "uid": uid}})
    return _compare(where, recorded, validate_job_create(job)) or _compare_stored(where, recorded, stored_job(job), got)


def _compare(where: str, answer: Json, errors: Sequence[FieldError]) -> Disagreement | None:
    causes = [(cause["reason"], cause["field"], cause["message"]) for cause in answer.get("causes") or ()]
    own = [(error.reason, error.field, error.message) for error in errors]
    what = None
    if answer["ok"] == bool(errors):
        what = "the server accepts, we reject" if answer["ok"] else "the server rejects, we accept"
    elif {cause[:2] for cause in causes} != {cause[:2] for cause in own}:
        what = "rejected for other reasons"
    elif not _same_messages(_by_field(causes), _by_field(own)):
        what = "rejected in other words"
    if what is None:
        return None
    # What both say needs no reader.
    server = [" ".join(cause) for cause in causes if cause not in own]
    ours = [" ".join(cause) for cause in own if cause not in causes]
    return Disagreement(where, what, answer["put"], server=server, ours=ours)


def _compare_stored(where: str, answer: Json, ours: Any, theirs: Any) -> Disagreement | None:
    if not answer["ok"] or ours == theirs:
        return None
    differences = list(_differences(theirs, ours, ""))
    return Disagreement(where, "accepted, but stored in another form", answer["put"], theirs, ours=differences)


def _by_field(causes: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Causes without their repetitions, those of one field in the order in which they were said."""
    return sorted(dict.fromkeys(causes), key=lambda cause: cause[:2])


def _same_messages(server: list[tuple[str, str, str]], ours: list[tuple[str, str, str]]) -> bool:
    return len(server) == len(ours) and all(
        same_message(theirs[2], mine[2]) for theirs, mine in zip(server, ours, strict=True)
    )


def same_message(server: str, ours: str) -> bool:
    """Whether a recorded message, perhaps shortened, and another are the same but for the values that they print."""
    # The uid of a Job that was refused is not recorded.
    server, ours = _UID.sub("uid", server), _UID.sub("uid", ours)
    if server == ours:
        return True
    if _CUT in server:
        # Shortened in the middle: what is left of it must still begin and end alike.
        head, _, tail = server.partition(_CUT)
        return ours.endswith(_ending(tail)) and ours.startswith(head[: len("Invalid value: ")])
    # The fixed text of a message follows the last brace of a printed object.
    return "}" in server and "}" in ours and _ending(server) == _ending(ours)


def _ending(message: str) -> str:
    return message.rpartition("}")[2]


def _differences(theirs: Any, ours: Any, path: str) -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            yield from _differences(theirs.get(key, _ABSENT), ours.get(key, _ABSENT), f"{path}.{key}")
    elif theirs != ours:
        yield f"at {path or '.'}: the server has {_line(theirs)}, we have {_line(ours)}"


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


_ABSENT: Final = _Absent()


def _line(value: Any) -> str:
    text = repr(value) if isinstance(value, _Absent) else orjson.dumps(value).decode()
    return text if len(text) <= _LINE_LIMIT else f"{text[:_LINE_LIMIT]} ... ({len(text)} characters)"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m clusters.jobapi.oracle",
        description="Replay recorded answers of a kube-apiserver against multimirror's rules for Jobs.",
        epilog="Exit code: 0 if all answers agree, 1 if any does not, 2 if a file cannot be read.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="recording, gzip-compressed JSON lines")
    parser.add_argument(
        "--show", type=int, default=10, metavar="N", help="print the first N disagreements (default 10)"
    )
    options = parser.parse_args(arguments)
    answers = disagreements = 0
    for path in options.files:
        try:
            for disagreement in replay(path):
                answers += 1
                if disagreement is not None:
                    disagreements += 1
                    if disagreements <= options.show:
                        sys.stdout.write(f"{disagreement}\n\n")
        except (OSError, EOFError, zlib.error, ValueError) as error:
            sys.stderr.write(f"{path}: not a readable recording: {error}\n")
            return 2
    sys.stdout.write(f"{answers} answers, {disagreements} disagreements\n")
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())

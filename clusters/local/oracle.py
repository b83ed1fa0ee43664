"""Recorded answers of a kube-apiserver, asked again of a live one: what a newer version does differently is a list.

    python -m clusters.local.oracle FILE... [--sample 2000] [--seed 1] [--version 1.36.4]

The recordings are those of `clusters.jobapi.oracle`. The live server runs alone, with no controllers, so that
nobody else touches the objects. A sample takes the same number of answers from each file, walk by walk (a
step means something only after those before it). Walks that begin with a status that the API would refuse get it the
way it was recorded: written straight into etcd. Uids differ from run to run and are translated; everything else that
the server answers (accepted or not, code, causes and their words, the stored object) is compared.
"""

import argparse
import asyncio
import base64
import random
import sys
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from clusters.jobapi.oracle import read_recording, same_message
from clusters.local import probe
from clusters.local.binaries import BinariesMissingError
from clusters.local.cluster import LocalCluster, StartError
from clusters.local.fleet import LocalFleet
from clusters.local.options import LocalOptions
from multimirror.kube import ApiError, Client, Connection
from multimirror.kube.resources import JOBS

Json = dict[str, Any]

_NAMESPACE: Final = "default"
_GENERATED_LABELS: Final = (
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One answer of the live server that is not the recorded one."""

    where: str
    what: str
    put: Any
    recorded: str
    live: str

    def __str__(self) -> str:
        put = orjson.dumps(self.put).decode()
        return "\n".join(
            [
                f"{self.where}: {self.what}",
                f"  put:      {put[:1000]}",
                f"  recorded: {self.recorded}",
                f"  live:     {self.live}",
            ]
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What the live server said, in the words of the recordings."""

    code: int
    body: Json
    causes: tuple[tuple[str, str, str], ...] = ()


def sample(files: Sequence[Path], count: int | None, seed: int) -> Iterator[tuple[str, Json]]:
    """(place, line) for lines with `count` answers in all, the same number from each file; None means everything.

    The last walk of a file is cut short where that makes the number come out."""
    dice = random.Random(seed)  # noqa: S311 - a sample, not a secret
    for position, path in enumerate(files):
        lines = list(enumerate(read_recording(path), start=1))
        wanted: float = float("inf") if count is None else count // len(files) + (position < count % len(files))
        if count is not None:
            dice.shuffle(lines)
        for number, line in lines:
            if wanted <= 0:
                break
            steps = line.get("steps")
            if steps is None:
                wanted -= 1
                yield f"{path.name}:{number}", line
            else:
                steps = steps if len(steps) <= wanted else steps[: int(wanted)]
                wanted -= len(steps)
                yield f"{path.name}:{number}", {**line, "steps": steps}


class Replay:
    def __init__(self, client: Client, cluster: LocalCluster) -> None:
        self._client = client
        self._cluster = cluster

    async def line(self, where: str, line: Json) -> AsyncIterator[Difference | None]:
        """For each answer a difference, or None."""
        if "steps" not in line:
            yield await self._create(where, line)
            return
        job, old_uid, new_uid = await self._begin(line)
        for number, recorded in enumerate(line["steps"], start=1):
            step = _translated(recorded, old_uid, new_uid)
            part = step["part"]
            target = JOBS.path(_NAMESPACE, job["metadata"]["name"], "status" if part == "status" else None)
            answer = await self._ask("PUT", target, {**job, part: step["put"]})
            stored: Json = step["got" if "got" in step else "put"]
            yield compare(f"{where} step {number} ({part})", step, answer, stored, answer.body.get(part) or {})
            if step["ok"]:
                job = {**job, part: stored}

    async def _create(self, where: str, recorded: Json) -> Difference | None:
        answer = await self._ask("POST", f"{JOBS.path(_NAMESPACE)}?dryRun=All", recorded["put"])
        got, live = recorded.get("got") or {}, answer.body
        if got and "uid" in live.get("metadata", {}):
            recorded = _translated(recorded, got["metadata"]["uid"], live["metadata"]["uid"])
            got = recorded["got"]
        return compare(where, recorded, answer, _timeless(got), _timeless(live))

    async def _begin(self, walk: Json) -> tuple[Json, str, str]:
        """The walk's Job on the live server, as it was when the walk began."""
        recorded = walk["job"]
        old_uid = recorded["metadata"]["uid"]
        answer = await self._ask("POST", JOBS.path(_NAMESPACE), as_sent(recorded))
        if answer.code != 201:
            raise ReplayError(f"Job {recorded['metadata']['name']} was refused: {answer.code} {answer.causes}")
        new_uid = answer.body["metadata"]["uid"]
        job = _translated(recorded, old_uid, new_uid)
        job["metadata"] = {key: value for key, value in job["metadata"].items() if key != "resourceVersion"}
        if "stored" in walk:
            job["status"] = walk["stored"]
            await self._write_past_the_api({**answer.body, "status": walk["stored"]})
        return job, old_uid, new_uid

    async def _ask(self, method: str, target: str, body: Json) -> Answer:
        try:
            response = await self._client.request(method, target, body=body)
        except ApiError as error:
            # To the last word: `error.causes` are cut, for people.
            told = error.details.get("causes") or ()
            causes = tuple((each["reason"], each["field"], each["message"]) for each in told)
            return Answer(error.status, {}, causes)
        live = orjson.loads(response.body)
        live.get("metadata", {}).pop("managedFields", None)
        return Answer(response.status, live)

    async def _write_past_the_api(self, job: Json) -> None:
        pki = self._cluster.layout.pki
        key = f"/registry/jobs/{_NAMESPACE}/{job['metadata']['name']}"
        put = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(orjson.dumps(job)).decode()}
        context = probe.tls(str(pki.etcd_ca), pki.pair("etcd-client"))
        answer = await probe.ask(self._cluster.ports.etcd, "/v3/kv/put", context, body=orjson.dumps(put))
        if answer.status != 200:
            raise ReplayError(f"etcd answers {answer.status}: {answer.body[:300]!r}")


class ReplayError(Exception):
    """The replay cannot go on: the server does not even come to the state in which the question was asked."""


def as_sent(job: Json) -> Json:
    """A stored Job as its user may have sent it: without what the server adds by itself."""
    spec = job["spec"]
    metadata = {"name": job["metadata"]["name"], "namespace": _NAMESPACE}
    for key in ("labels", "annotations"):
        if kept := _without_generated(job["metadata"].get(key) or {}):
            metadata[key] = kept
    if spec.get("manualSelector"):
        return {**job, "metadata": {**metadata, "labels": job["metadata"].get("labels") or {}}, "status": {}}
    template = dict(spec["template"])
    template["metadata"] = {
        **(template.get("metadata") or {}),
        "labels": _without_generated((template.get("metadata") or {}).get("labels") or {}),
    }
    spec = {key: value for key, value in spec.items() if key != "selector"} | {"template": template}
    return {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": metadata, "spec": spec}


def compare(where: str, recorded: Json, answer: Answer, expected: Json, stored: Json) -> Difference | None:
    """Pure: the recorded answer against the live one."""
    accepted = answer.code < 300
    causes = [(cause["reason"], cause["field"], cause["message"]) for cause in recorded.get("causes") or ()]

    def differs(what: str, told: object, live: object) -> Difference:
        return Difference(where, what, recorded["put"], str(told), str(live))

    if recorded["ok"] != accepted or (not accepted and recorded["code"] != answer.code):
        told = "accepted" if recorded["ok"] else f"{recorded['code']} {causes}"
        return differs("answered otherwise", told, f"{answer.code} {list(answer.causes)}")
    if accepted:
        return None if stored == expected else differs("stored in another form", _text(expected), _text(stored))
    if {cause[:2] for cause in causes} != {cause[:2] for cause in answer.causes}:
        return differs("rejected for other reasons", causes, list(answer.causes))
    ours, theirs = sorted(set(answer.causes)), sorted(set(causes))
    unlike = len(ours) != len(theirs) or any(
        not same_message(told[2], live[2]) for told, live in zip(theirs, ours, strict=True)
    )
    return differs("rejected in other words", theirs, ours) if unlike else None


def _without_generated(labels: Json) -> Json:
    return {key: value for key, value in labels.items() if key not in _GENERATED_LABELS}


def _translated(value: Json, old_uid: str, new_uid: str) -> Json:
    translated: Json = orjson.loads(orjson.dumps(value).replace(old_uid.encode(), new_uid.encode()))
    return translated


def _timeless(job: Json) -> Json:
    metadata = {
        k: v for k, v in (job.get("metadata") or {}).items() if k not in ("creationTimestamp", "resourceVersion")
    }
    return {**job, "metadata": metadata}


def _text(value: Json) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


async def replay(
    files: Sequence[Path], *, count: int | None, seed: int, version: str | None = None
) -> tuple[int, list[Difference], str]:
    """How many answers were compared, which differ, and the live server's version."""
    answers, differences = 0, []
    async with LocalFleet(LocalOptions(workers=0, nodes=False, controllers=(), version=version)) as fleet:
        cluster = fleet.management
        async with Client(Connection.from_kubeconfig(cluster.kubeconfig)) as client:
            asker = Replay(client, cluster)
            for where, line in sample(files, count, seed):
                async for difference in asker.line(where, line):
                    answers += 1
                    if difference is not None:
                        differences.append(difference)
        live = (await cluster.get("/version"))["gitVersion"]
    return answers, differences, live


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m clusters.local.oracle",
        description="Ask a live kube-apiserver what was recorded from another, and list what it answers differently.",
        epilog="Exit code: 0 if all answers agree, 1 if any does not, 2 if nothing could be compared.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="recording, gzip-compressed JSON lines")
    parser.add_argument("--sample", type=int, metavar="N", help="so many answers, chosen at random (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="of the random choice (default 1)")
    parser.add_argument("--version", help="of the live server (default: whatever is installed)")
    parser.add_argument("--show", type=int, default=20, metavar="N", help="print the first N differences (default 20)")
    options = parser.parse_args(arguments)
    try:
        answers, differences, live = asyncio.run(
            replay(options.files, count=options.sample, seed=options.seed, version=options.version)
        )
    except (OSError, EOFError, zlib.error, ValueError, BinariesMissingError, StartError, ReplayError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for difference in differences[: options.show]:
        sys.stdout.write(f"{difference}\n\n")
    sys.stdout.write(f"{answers} answers, {len(differences)} differences between the recording and {live}\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())

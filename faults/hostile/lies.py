"""What a hostile worker says in the place of the truth. Pure, but for the chance that it is given.

Lies are about Jobs (`about_job`), nodes and rights; `instead` are whole bodies that no API server sends.
"""

import copy
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from multimirror.api import ATTEMPT_LABEL, ORIGIN_LABEL, ORIGIN_UID_LABEL, SIGNATURE_LABEL

Json = dict[str, Any]
_LONG_AGO: Final = "1971-01-01T00:00:00Z"
_IN_AN_AGE: Final = "2971-01-01T00:00:00Z"
_NOW: Final = "2027-01-15T08:00:30Z"
_FOREIGN: Final = ("Trusted", "multimirror.dev/Admin", "Complete ", "kubernetes.io/x", "", "complete")
_ODD_VERSIONS: Final = ("", "0", "-1", "abc", "18446744073709551616", "9" * 400, "\u202e7", " 1 ")
WRONG_KINDS: Final = (
    b"[]",
    b"null",
    b"17",
    b'"text"',
    b"{}",
    b'{"kind":"Status","apiVersion":"v1","status":"Success"}',
    b'{"kind":"JobList","items":{}}',
    b'{"kind":"JobList","metadata":{"resourceVersion":"1"},"items":[1,null,"x",[],{}]}',
    b'{"metadata":7,"items":[{"metadata":[]}]}',
    b'{"metadata":{"resourceVersion":{},"uid":["a"]},"items":[]}',
    b'{"metadata":null,"items":null,"status":null}',
    b'{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"x","resourceVersion":"1"}}]}',
    b'{"gitVersion":["v1"],"metadata":{"uid":17}}',
    b'{"gitVersion":{"a":1},"status":{"allowed":"perhaps"}}',
)
BAD_HTTP: Final = (
    b"\x00\xff\xfe no HTTP at all\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" + b"x" * 65536,
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
    b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %b\r\n" % (n, b"y" * 1000) for n in range(1000)) + b"\r\n",
    b"HTTP/1.1 200 " + b"O" * 500_000,
    b"HTTP/1.1 100 Continue\r\n\r\n" * 2000,
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nPRI * HTTP/2.0",
    b'HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n{"a":1}',
    b"HTTP/1.1 999 Whatever\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/3.7 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]" * 50,
)
HTML: Final = b"<html><body><h1>Sign in to the network</h1></body></html>"


def garbage(chance: random.Random) -> bytes:
    """Bytes that are no text."""
    return chance.randbytes(chance.randint(1, 5000))


def deep(chance: random.Random) -> bytes:
    """A parser that recurses needs a deep stack for it."""
    return chance.choice([b"[", b'{"metadata":', b'{"items":[']) * chance.choice([500, 5_000, 200_000])


def about_job(job: Json, kind: str, chance: random.Random) -> Json | None:
    """The Job with a lie in it; None: it is not there."""
    if kind == "hidden":
        return None
    told = copy.deepcopy(job)
    _ABOUT[kind](told, chance)
    return told


def forged(
    chance: random.Random, originals: Sequence[Json], stolen: Sequence[Mapping[str, str]], size: int = 0
) -> Json:
    """A copy that nobody made, of some Job of the management cluster; with labels that were seen on copies."""
    labels = dict(chance.choice(stolen)) if stolen else {ORIGIN_LABEL: "origin"}
    original = chance.choice(originals)["metadata"] if originals else {"uid": "u", "namespace": "team", "name": "x"}
    labels |= {ORIGIN_UID_LABEL: original["uid"], ATTEMPT_LABEL: str(chance.choice([0, 1, 1, 1, 2, 3, 999]))}
    if chance.random() < 0.5:
        labels[SIGNATURE_LABEL] = chance.randbytes(31).hex()
    near = chance.random() < 0.6
    name = original["name"] if near else f"{original['name']}-{chance.getrandbits(32):x}"
    metadata: Json = {
        "name": name,
        "namespace": original["namespace"] if chance.random() < 0.7 else chance.choice(["elsewhere", "kube-system"]),
        "uid": f"forged-{chance.getrandbits(64):x}",
        "resourceVersion": str(chance.randint(1, 10**6)),
        "creationTimestamp": chance.choice([_LONG_AGO, _NOW, _IN_AN_AGE]),
        "labels": labels,
        "generation": 1,
    }
    if chance.random() < 0.3:
        metadata |= {"deletionTimestamp": _NOW, "finalizers": ["example.com/for-ever"]}
    job: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "suspend": chance.random() < 0.2,
            "template": {"spec": {"containers": [{"name": "main", "image": "x" * size}], "restartPolicy": "Never"}},
        },
        "status": {},
    }
    _ABOUT[chance.choice(["finished", "failed", "counters"])](job, chance)
    return job


def _finished(job: Json, chance: random.Random) -> None:
    count = job["spec"].get("completions") or 1
    job["status"] = {
        "startTime": _NOW,
        "completionTime": _NOW,
        "succeeded": count,
        "conditions": [_condition("SuccessCriteriaMet", "CompletionsReached"), _condition("Complete")],
        "ready": 0,
        "terminating": 0,
    }
    if job["spec"].get("completionMode") == "Indexed":
        job["status"]["completedIndexes"] = f"0-{count - 1}" if count > 1 else "0"


def _failed(job: Json, chance: random.Random) -> None:
    conditions = [_condition("FailureTarget", "BackoffLimitExceeded"), _condition("Failed", "BackoffLimitExceeded")]
    job["status"] = {"startTime": _NOW, "failed": chance.choice([1, 7]), "conditions": conditions}


def _counters(job: Json, chance: random.Random) -> None:
    numbers = [0, 1, 3, -1, 2**31, 2**63, -(2**40)]
    job["status"] = {
        **(job.get("status") or {}),
        **{name: chance.choice(numbers) for name in ("active", "ready", "succeeded", "failed", "terminating")},
    }


def _flips(job: Json, chance: random.Random) -> None:
    chance.choice([_finished, _failed, _counters])(job, chance)
    if chance.random() < 0.5:
        for condition in job["status"].get("conditions") or ():
            condition["status"] = chance.choice(["False", "Unknown", "True"])


def _long_texts(job: Json, chance: random.Random) -> None:
    text = chance.choice(["x", "\x1b]52;c;AAAA\x07", "\u202e", "\ud83d\ude00"]) * chance.choice([1000, 32 * 1024])
    conditions = [{**_condition("Suspended", text[:70000]), "message": text}]
    job["status"] = {**(job.get("status") or {}), "conditions": conditions, "startTime": _NOW}


def _foreign_conditions(job: Json, chance: random.Random) -> None:
    conditions = [{**_condition(name), "message": f"{chance.random()}" * 50} for name in _FOREIGN]
    conditions *= chance.choice([1, 300])
    job["status"] = {**(job.get("status") or {}), "conditions": conditions}


def _indexes(job: Json, chance: random.Random) -> None:
    sets = ["0-2147483647", "5,4,3", "0-0,0-0", "-1", "1-", "x", ",".join(str(n * 2) for n in range(5000)), "9" * 100]
    job["status"] = {
        **(job.get("status") or {}),
        "completedIndexes": chance.choice(sets),
        "failedIndexes": chance.choice(sets),
        "succeeded": chance.choice([0, 3, 2**31]),
        "uncountedTerminatedPods": {"succeeded": [f"{n}" for n in range(chance.choice([0, 1000]))]},
    }


def _odd_types(job: Json, chance: random.Random) -> None:
    odd: list[Any] = [None, [], {}, "text", 1.5, True, [None], {"a": {"b": []}}, float(2**70)]
    fields = ("active", "ready", "succeeded", "failed", "conditions", "startTime", "completionTime", "completedIndexes")
    match chance.randrange(5):
        case 0:
            job["status"] = chance.choice(odd)
        case 1:
            job["spec"] = chance.choice(odd)
        case 2:
            job["metadata"]["labels"] = {**job["metadata"].get("labels", {}), ATTEMPT_LABEL: chance.choice(odd)}
        case 3:
            job["metadata"]["deletionTimestamp"] = chance.choice(odd)
        case _:
            job["status"] = {name: chance.choice(odd) for name in fields}


def _no_uid(job: Json, chance: random.Random) -> None:
    if chance.random() < 0.7:
        job["metadata"].pop("uid", None)
    else:
        job["metadata"]["uid"] = chance.choice([None, 7, "", [], "x" * 5000])


def _no_namespace(job: Json, chance: random.Random) -> None:
    if chance.random() < 0.7:
        job["metadata"].pop("namespace", None)
    else:
        job["metadata"]["namespace"] = chance.choice(["", "../../secrets", "other", "a/b"])


def _odd_version(job: Json, chance: random.Random) -> None:
    job["metadata"]["resourceVersion"] = chance.choice(_ODD_VERSIONS)


def _condition(kind: str, reason: str = "") -> Json:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": "as far as we are concerned",
        "lastProbeTime": _NOW,
        "lastTransitionTime": _NOW,
    }


_ABOUT: Final[Mapping[str, Callable[[Json, random.Random], None]]] = {
    "finished": _finished,
    "failed": _failed,
    "counters": _counters,
    "flips": _flips,
    "long_texts": _long_texts,
    "foreign_conditions": _foreign_conditions,
    "indexes": _indexes,
    "odd_types": _odd_types,
    "no_uid": _no_uid,
    "no_namespace": _no_namespace,
    "odd_version": _odd_version,
}


def absurd_nodes(chance: random.Random) -> Json:
    """What no cluster has to give."""
    amounts = ["1e30", "9" * 300, "-5", "abc", "1Ei", "0", "NaN", "1e999999999", 17, None, {"a": 1}, ""]
    items = []
    for number in range(chance.choice([1, 3, 300])):
        allocatable = {name: chance.choice(amounts) for name in ("cpu", "memory", "pods", f"example.com/r{number}")}
        status: Any = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {"name": f"node-{number}", "uid": f"node-{number}", "resourceVersion": "1"}
        if chance.random() < 0.1:
            status = chance.choice([None, [], "text", {"allocatable": [1, 2], "conditions": [None, 7]}])
        items.append({"metadata": metadata, "spec": {}, "status": status})
    return {"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "7"}, "items": items}


def a_review(kind: str, chance: random.Random) -> Json:
    """The answer to a question about rights."""
    if kind == "no_rights":
        return {"kind": "SelfSubjectAccessReview", "status": {"allowed": False, "reason": "no" * 2000}}
    return {"kind": "Odd", "status": chance.choice([None, 7, [], {"allowed": "yes"}, {"allowed": {}}, {}])}


def encoded(value: Any) -> bytes:
    """As JSON; what cannot be (a lone surrogate) is replaced."""
    return json.dumps(value).encode()

"""An API server that knows its answers by heart, in a process of its own: what is measured is the client.

python -m bench._canned DIRECTORY   serves TLS with DIRECTORY/{cert,ca}.pem, and prints its port
"""

import asyncio
import ssl
import sys
from pathlib import Path
from typing import Any

import orjson

JOBS = 5_000
EVENTS = 10_000
_PIECE = 256 * 1024


def a_job(number: int, version: int | None = None) -> dict[str, Any]:
    """A Job like thousands of others: about 3.2 KB of JSON as the API serves it, managedFields included."""
    name = f"train-{number:05}"
    uid = f"{number:08x}-5bd4-4c11-9c6e-{number:012x}"
    labels = {"app": "train", "team": f"team-{number % 20}", "multimirror.dev/queue": "default"}
    selector = {"batch.kubernetes.io/controller-uid": uid}
    now = "2026-11-16T12:00:00Z"
    fields: dict[str, Any] = {
        f"f:{part}": {f"f:{leaf}": {} for leaf in ("a", "b", "c", "resources", "limits", "image", "command", "name")}
        for part in ("metadata", "spec", "template", "containers", "status", "conditions")
    }
    container = {
        "name": "main",
        "image": "registry.example.com/team/train:v1.27.3",
        "command": ["python", "-m", "train", "--epochs", "20", "--shard", str(number)],
        "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(8)],
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": f"team-{number % 20}",
            "uid": uid,
            "resourceVersion": str(version or 1000 + number),
            "generation": 1,
            "creationTimestamp": now,
            "labels": labels | selector | {"batch.kubernetes.io/job-name": name},
            "annotations": {"multimirror.dev/cluster": f"worker-{number % 4}", "multimirror.dev/attempt": "1"},
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "apiVersion": "batch/v1",
                    "time": now,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": fields,
                }
                for manager in ("kubectl-create", "multimirror")
            ],
        },
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "suspend": False,
            "managedBy": "multimirror.dev/dispatcher",
            "podReplacementPolicy": "Failed",
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": labels | selector},
                "spec": {
                    "containers": [container],
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 30,
                    "dnsPolicy": "ClusterFirst",
                    "securityContext": {},
                    "schedulerName": "default-scheduler",
                },
            },
        },
        "status": {"startTime": now, "active": 1, "ready": 1, "terminating": 0, "uncountedTerminatedPods": {}},
    }


def _answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(kind: str, obj: dict[str, Any]) -> bytes:
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


class Canned:
    """All answers, made once."""

    def __init__(self) -> None:
        self.one = _answer(orjson.dumps(a_job(1)))
        jobs = [a_job(number) for number in range(JOBS)]
        metadata = {"resourceVersion": "9000"}
        self.list = _answer(
            orjson.dumps({"kind": "JobList", "apiVersion": "batch/v1", "metadata": metadata, "items": jobs})
        )
        mark = {**metadata, "annotations": {"k8s.io/initial-events-end": "true"}}
        streamed = b"".join(_event("ADDED", job) for job in jobs)
        end = _event("BOOKMARK", {"kind": "Job", "apiVersion": "batch/v1", "metadata": mark})
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        self.opened = head
        self.streamed = head + _chunk(streamed) + _chunk(end)
        self.changes = b"".join(
            _chunk(_event("MODIFIED", a_job(number % JOBS, 10_000 + number))) for number in range(EVENTS)
        )


class Protocol(asyncio.Protocol):
    """Just enough HTTP for a client that is known."""

    def __init__(self, canned: Canned) -> None:
        self._canned = canned
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        length = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if len(rest) < length:
            return
        self._data = rest[length:]
        target = head.split(b" ", 2)[1]
        reply = self._reply(target)
        # In pieces: asyncio's TLS copies what is left of a write after each record.
        self._transport.writelines([reply[at : at + _PIECE] for at in range(0, len(reply), _PIECE)])

    def _reply(self, target: bytes) -> bytes:
        if b"sendInitialEvents" in target:
            return self._canned.streamed
        if b"watch=true" in target:
            return self._canned.opened + (self._canned.changes if b"flood" in target else b"")
        return self._canned.list if target.partition(b"?")[0].endswith(b"/jobs") else self._canned.one


async def serve(directory: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(directory / "cert.pem")
    canned = Canned()
    server = await asyncio.get_running_loop().create_server(lambda: Protocol(canned), "127.0.0.1", 0, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until whoever started us is gone


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))

"""Commands and controllers as processes, with an account's rights; and what the API server says about both."""

import asyncio
import contextlib
import io
import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from clusters.local import LocalCluster
from clusters.local.ports import free_ports
from multimirror.cli import main
from multimirror.kube import Client
from multimirror.kube.resources import SERVICE_ACCOUNTS
from tests.waiting import DEADLINE

Json = dict[str, Any]
SYSTEM = "multimirror-system"
# A container with a read-only root: whoever opens a file to write to it fails.
READ_ONLY = """
import os, runpy, sys
def hook(event, arguments):
    if event in ("tempfile.mkstemp", "tempfile.mkdtemp", "os.mkdir", "os.rename"):
        raise OSError(30, f"read-only file system: {event} {arguments}")
    if event == "open" and isinstance(arguments[0], str) and isinstance(arguments[2], int):
        if arguments[2] & (os.O_WRONLY | os.O_RDWR) and not arguments[0].startswith(("/dev/", "/proc/")):
            raise OSError(30, "read-only file system", arguments[0])
sys.dont_write_bytecode = True
sys.addaudithook(hook)
module, sys.argv = sys.argv[1], sys.argv[1:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@dataclass
class Command:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


async def multimirror(*arguments: str, kubeconfig: Path) -> Command:
    """The command, as a user runs it; in this process, which saves the second that each start takes."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = await asyncio.to_thread(main, [*arguments, "--kubeconfig", str(kubeconfig)])
    return Command(code, out.getvalue(), err.getvalue())


async def token_of(admin: Client, account: str, namespace: str = SYSTEM) -> str:
    """As the kubelet would get it for a pod of that account; its rights are in force."""
    await in_force(admin, account, namespace)
    return await token(admin, account, namespace)


async def token(admin: Client, account: str, namespace: str) -> str:
    """From the API; whatever the account may do."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await admin.request("POST", SERVICE_ACCOUNTS.path(namespace, account, "token"), body=body)
    return str(json.loads(answer.body)["status"]["token"])


async def in_force(admin: Client, account: str, namespace: str = SYSTEM) -> None:
    """Until the API server has heard of the account's roles: one right of a Role, one of a ClusterRole."""
    rights: list[Json] = [
        {"group": "coordination.k8s.io", "resource": "leases", "verb": "create", "namespace": namespace},
        {"group": "", "resource": "events", "verb": "create", "namespace": "default"},
    ]
    if account == "multimirror-admission":
        rights = [
            {"resource": "secrets", "name": "multimirror-admission-ca", "verb": "list", "namespace": namespace},
            {"group": "multimirror.dev", "resource": "mirrorqueues", "verb": "list"},
        ]
    for right in rights:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{namespace}:{account}",
                "resourceAttributes": right,
            },
        }
        async with asyncio.timeout(DEADLINE):
            while True:
                answer = await admin.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=review)
                if json.loads(answer.body)["status"]["allowed"]:
                    break
                await asyncio.sleep(0.05)


@dataclass
class Replica:
    """A controller's process with an account's rights and no disk to write to."""

    process: asyncio.subprocess.Process
    port: int
    log: Path

    async def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    async def ready(self) -> None:
        async with asyncio.timeout(DEADLINE):
            while True:
                assert self.process.returncode is None, self.log.read_text()
                with contextlib.suppress(aiohttp.ClientError):
                    if (await self.get("/readyz"))[0] == 200:
                        return
                await asyncio.sleep(0.05)

    async def leads(self) -> bool:
        _, text = await self.get("/metrics")
        return any(
            line.startswith("leader_election_master_status") and line.endswith(" 1.0") for line in text.split("\n")
        )

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE):
            return await self.process.wait()


async def by_rank(replicas: Sequence[Replica]) -> tuple[Replica, Replica]:
    """The one that leads, and the one that stands by."""
    first, second = replicas
    assert await first.leads() != await second.leads()
    return (first, second) if await first.leads() else (second, first)


@contextlib.asynccontextmanager
async def a_service(ports: Sequence[int]) -> AsyncIterator[int]:
    """A port that leads to whichever of these answers."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in ports:
            with contextlib.suppress(OSError):
                there, back = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(pump(reader, back), pump(there, writer))
                return
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@dataclass
class Pods:
    """Runs what a Deployment says, outside of the cluster."""

    cluster: LocalCluster
    directory: Path
    started: list[Replica] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def run(
        self, deployment: Json, token: str, changes: Mapping[str, str], *, port_flag: str
    ) -> AsyncIterator[Replica]:
        """One replica. `changes` replace flags that only make sense inside of the cluster."""
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        (port,) = free_ports(1)
        number = len(self.started)
        kubeconfig = self.directory / f"kubeconfig-{number}"
        kubeconfig.write_text(yaml.safe_dump(self.cluster.kubeconfig_with_token(token)))
        module, *rest = container["command"]
        flags = [changes.get(flag.split("=")[0], flag) for flag in container["args"]]
        flags = [flag for flag in flags if flag and not flag.startswith(port_flag)]
        log = self.directory / f"replica-{number}.log"
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-c",
                    READ_ONLY,
                    {"multimirror": "multimirror.cli"}.get(module, "builtin_controller"),
                ),
                *(*rest, *flags, f"{port_flag}=127.0.0.1:{port}", "--kubeconfig", str(kubeconfig)),
                stdout=out,
                stderr=out,
                cwd="/",
            )
        replica = Replica(process, port, log)
        self.started.append(replica)
        try:
            yield replica
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


Right = tuple[str, str, str]
"""Group, resource, verb."""


def granted(objects: Sequence[Json], account: str) -> set[Right]:
    """What the roles that are bound to an account say."""
    roles = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects if obj["kind"] in {"Role", "ClusterRole"}}
    bound = [
        roles[obj["roleRef"]["kind"], obj["roleRef"]["name"]]
        for obj in objects
        if obj["kind"] in {"RoleBinding", "ClusterRoleBinding"} and obj["subjects"][0]["name"] == account
    ]
    return {
        (group, resource, verb)
        for role in bound
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@dataclass
class Audit:
    """What an account asked for, as the API server wrote it down."""

    used: set[Right]
    refused: list[str]


def audit(cluster: LocalCluster, account: str, namespace: str = SYSTEM) -> Audit:
    found = Audit(set(), [])
    for line in cluster.audit_log.read_text().splitlines():
        entry = json.loads(line)
        if entry["user"]["username"] != f"system:serviceaccount:{namespace}:{account}":
            continue
        target = entry.get("objectRef")
        if entry.get("responseStatus", {}).get("code") in {401, 403}:
            found.refused.append(f"{entry['verb']} {entry['requestURI']}")
        elif target is not None:
            resource = target["resource"] + (f"/{target['subresource']}" if "subresource" in target else "")
            found.used.add((target.get("apiGroup", ""), resource, entry["verb"]))
    return found

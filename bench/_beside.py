"""The Job controller beside kube-controller-manager's, on one real control plane, turn by turn in one run.

Both have the same chances: each has a service account and the rights of a Job controller, has run a Job before the
clock starts, and finds the cluster as empty as the other did. Who goes first changes from round to round. Requests are
counted until the last event is written: events are told behind the work, by both. The machine does little besides, so
the CPU time of the API server and etcd is told, too: where that is what limits both, it decides.
"""

import asyncio
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from bench._jobs import cpu_seconds, processed, run_controller, run_jobs
from bench.frame.meters import entries
from clusters.local import LocalFleet, LocalOptions
from clusters.local.cluster import APISERVER, CONTROLLER_MANAGER, ETCD, LocalCluster
from multimirror.batch import Json
from multimirror.kube import Client, Connection, Resource
from multimirror.kube.resources import JOBS

_ROUNDS: Final = int(os.environ.get("BENCH_ROUNDS", "4"))
_QUIET: Final = 1.0  # seconds without a request: everything has been told
_ACCOUNT: Final = "builtin-controller"
THEIRS: Final = "kube-controller-manager"
OURS: Final = "builtin-controller"
_AGENTS: Final = {THEIRS: "kube-controller-manager", OURS: "job-controller"}
_CLEARED: Final = (
    JOBS,
    Resource("", "v1", "pods", "Pod"),
    Resource("", "v1", "events", "Event"),
)
_RBAC: Final = "rbac.authorization.k8s.io"
_RIGHTS: Final = (
    ("batch", ("jobs",), ("get", "list", "watch")),
    ("batch", ("jobs/status", "jobs/finalizers"), ("update",)),
    ("", ("pods",), ("list", "watch", "create", "delete", "patch")),
    ("", ("events",), ("create", "patch")),
)

_SAY: Final = partial(print, flush=True)

Turn = Callable[[], AbstractAsyncContextManager[int]]


@dataclass
class Figures:
    """What one controller did in its turns."""

    rates: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    """Milliseconds of its own CPU time a pod."""
    server: list[float] = field(default_factory=list)
    """Milliseconds of CPU time a pod, of the API server and etcd."""


async def side_by_side(
    workloads: dict[str, list[Json]], rounds: int = _ROUNDS, say: Callable[[str], None] = _SAY
) -> dict[str, dict[str, Figures]]:
    """Measure, and tell every turn and the ratios; gives the figures of each workload, by contender."""
    found: dict[str, dict[str, Figures]] = {}
    options = LocalOptions(
        workers=0,
        controllers=("job-controller",),
        controller_manager_qps=5000,
        audit_log=True,
        disable_admission_plugins=("ServiceAccount",),
        extra_args={APISERVER: ("--audit-log-maxsize=100000",)},  # one file, to be counted in
    )
    async with LocalFleet(options) as fleet:
        cluster = fleet.management
        await cluster.processes[CONTROLLER_MANAGER].stop()
        with tempfile.TemporaryDirectory() as directory:
            kubeconfig = Path(directory, "kubeconfig")
            _write(kubeconfig, await _account(cluster))
            turns: dict[str, Turn] = {
                THEIRS: lambda: _manager(cluster),
                OURS: lambda: run_controller(kubeconfig),
            }
            for name, specs in workloads.items():
                figures = found[name] = {contender: Figures() for contender in turns}
                for number in range(rounds):
                    order = list(turns) if number % 2 == 0 else list(reversed(turns))
                    for contender in order:
                        async with turns[contender]() as pid:
                            namespace = await _measure(cluster, specs, figures[contender], contender, pid)
                        await _clear(cluster, namespace)
                        say(f"{name}, round {number + 1}: {contender} {_last(figures[contender])}")
                _report(name, figures, say)
    return found


async def _measure(cluster: LocalCluster, specs: list[Json], figures: Figures, contender: str, pid: int) -> str:
    """One turn; gives the namespace that it was in."""
    pods = processed(specs)
    agent = _AGENTS[contender]
    async with Client(Connection.from_kubeconfig(cluster.kubeconfig), user_agent="bench") as client:
        namespace, _ = await run_jobs(client, [{}])
        await _told(cluster.audit_log, agent)
        servers = [cluster.processes[component].pid or 0 for component in (APISERVER, ETCD)]
        offset = _size(cluster.audit_log)
        own, server = cpu_seconds(pid), sum(map(cpu_seconds, servers))
        _, seconds = await run_jobs(client, specs, namespace)
    figures.rates.append(pods / seconds)
    figures.own.append((cpu_seconds(pid) - own) / pods * 1000)
    figures.server.append((sum(map(cpu_seconds, servers)) - server) / pods * 1000)
    await _told(cluster.audit_log, agent)
    figures.requests.append(_requests(cluster.audit_log, offset, agent) / pods)
    return namespace


async def _told(audit_log: Path, agent: str) -> None:
    """Until the controller asks for nothing more: its events are written."""
    offset, since = _size(audit_log), time.monotonic()
    while time.monotonic() - since < _QUIET:
        await asyncio.sleep(_QUIET / 4)
        size = _size(audit_log)
        if size > offset and _requests(audit_log, offset, agent):
            since = time.monotonic()
        offset = size


async def _clear(cluster: LocalCluster, namespace: str) -> None:
    """The next turn finds what this one found."""
    async with Client(Connection.from_kubeconfig(cluster.kubeconfig), user_agent="bench") as client:
        for resource in _CLEARED:
            path = f"{resource.path(namespace)}?propagationPolicy=Background&gracePeriodSeconds=0"
            await client.request("DELETE", path, timeout=120)


async def _account(cluster: LocalCluster) -> Json:
    """A kubeconfig for our controller, with the rights it needs: as it would have in a pod."""
    where = f"/api/v1/namespaces/kube-system/serviceaccounts/{_ACCOUNT}"
    rules = [
        {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
        for group, resources, verbs in _RIGHTS
    ]
    subject = {"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": "kube-system"}
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _ACCOUNT}
    about = {"metadata": {"name": _ACCOUNT}}
    async with Client(Connection.from_kubeconfig(cluster.kubeconfig), user_agent="bench") as client:
        await client.create(Resource("", "v1", "serviceaccounts", "ServiceAccount"), about, "kube-system")
        roles = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
        await client.create(roles, {**about, "rules": rules})
        bindings = Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
        await client.create(bindings, {**about, "roleRef": role, "subjects": [subject]})
        answer = await client.request("POST", f"{where}/token", body={"spec": {"expirationSeconds": 7200}})
    return cluster.kubeconfig_with_token(json.loads(answer.body)["status"]["token"])


def _requests(audit_log: Path, offset: int, agent: str) -> int:
    """What the controller asked of the server since then: everything but watches, lists and its own lease."""
    count = 0
    for entry in entries(audit_log, offset):
        if not entry.get("userAgent", "").startswith(agent) or entry["verb"] in ("watch", "list"):
            continue
        count += (entry.get("objectRef") or {}).get("resource") in ("jobs", "pods", "events")
    return count


def _write(file: Path, kubeconfig: Json) -> None:
    file.write_text(yaml.safe_dump(kubeconfig))


def _size(audit_log: Path) -> int:
    return audit_log.stat().st_size


def _last(figures: Figures) -> str:
    return (
        f"{figures.rates[-1]:.0f} pods/s, {figures.requests[-1]:.2f} requests a pod; "
        f"ms of CPU a pod: {figures.own[-1]:.1f} its own, {figures.server[-1]:.1f} the server's"
    )


def _report(name: str, figures: dict[str, Figures], say: Callable[[str], None]) -> None:
    theirs, ours = figures[THEIRS], figures[OURS]
    ratio = statistics.median(ours.rates) / statistics.median(theirs.rates)
    share = statistics.mean(ours.requests) / statistics.mean(theirs.requests)
    server = statistics.median(ours.server) / statistics.median(theirs.server)
    say(f"{name}: {ratio:.2f} times its pods/s (goal: >= 1), {share:.3f} times its requests a pod (goal: <= 1)")
    say(f"{name}: {server:.2f} times the server's CPU time a pod (medians of {len(ours.rates)} rounds)")


@contextlib.asynccontextmanager
async def _manager(cluster: LocalCluster) -> AsyncIterator[int]:
    process = cluster.processes[CONTROLLER_MANAGER]
    await cluster.start_again(CONTROLLER_MANAGER)
    try:
        yield process.pid or 0
    finally:
        await process.stop()

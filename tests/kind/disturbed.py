"""What a test does to the clusters of its stage, with a note in the record for as long as it is felt.

Each context ends when what was broken is whole again and has been found so: no test begins in another's ruins.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from clusters.kind import faults
from faults.record import MANAGEMENT, holder_of
from faults.stage import DISPATCHER
from multimirror.api import CONNECTED, READY, WORKER_CLUSTERS
from multimirror.batch import find_condition
from multimirror.cli.dispatcher_lease import LEASE
from multimirror.kube import ApiError
from multimirror.kube.resources import JOBS, LEASES
from tests.kind.installation import SYSTEM, Installation, Stage
from tests.waiting import eventually

Json = dict[str, Any]
_START_SECONDS: Final = 600.0
"""For a control plane. Its kubelet waits for longer after each start that failed, up to five minutes: an API server
that came before its etcd on a busy machine is not tried again at once."""


async def lost(stage: Stage, worker: str) -> None:
    """Until the dispatcher says so."""
    await _says(stage, worker, CONNECTED, "False")


async def usable(stage: Stage, worker: str) -> None:
    """The same for the opposite."""
    await _says(stage, worker, READY, "True")


async def _says(stage: Stage, worker: str, kind: str, wanted: str) -> None:
    async def said() -> str:
        with contextlib.suppress(ApiError):
            found = await stage.management.get(WORKER_CLUSTERS, worker)
            conditions = (found.get("status") or {}).get("conditions") or ()
            return str((find_condition(conditions, kind) or {}).get("status"))
        return "nothing"

    await eventually(said, lambda status: status == wanted)


async def answers(stage: Stage, cluster: str) -> None:
    """Until its API server does."""

    async def asked() -> bool:
        with contextlib.suppress(ApiError):
            await stage.clients[cluster].list(JOBS, stage.namespace)
            return True
        return False

    await eventually(asked, within=_START_SECONDS)


async def leader(stage: Stage) -> str:
    """Who holds the lease; empty while nobody does, or nobody can say."""
    with contextlib.suppress(ApiError):
        lease = await stage.management.get(LEASES, LEASE, SYSTEM)
        return str(lease["spec"].get("holderIdentity") or "")
    return ""


def pod_of(identity: str) -> str:
    """Where a leader lives."""
    return holder_of({"spec": {"holderIdentity": identity}})


async def another_leads(stage: Stage, than: str) -> None:
    """Until somebody else holds the lease, and every replica is there."""
    await eventually(lambda: leader(stage), lambda found: found and found != than)
    await rolled_out(stage.installation)


async def rolled_out(installation: Installation) -> None:
    """All replicas are ready, and there is nobody else."""
    told = await installation.kubectl("rollout", "status", "deployment/multimirror", "-n", SYSTEM, "--timeout=150s")
    assert told.code == 0, told


@contextlib.asynccontextmanager
async def cut_off(stage: Stage, worker: str) -> AsyncIterator[None]:
    """The dispatcher and a worker are on two sides of a partition. Everything in the worker goes on."""
    installation = stage.installation
    with stage.history.without(f"{DISPATCHER}/{worker}", "blackhole"):
        async with faults.partition(installation.cluster(MANAGEMENT), installation.cluster(worker)):
            yield
        await usable(stage, worker)


@contextlib.asynccontextmanager
async def frozen(stage: Stage, worker: str) -> AsyncIterator[None]:
    """Nothing in the worker moves."""
    with stage.history.without(worker):
        async with faults.paused(stage.installation.cluster(worker)):
            yield
        await answers(stage, worker)
        await usable(stage, worker)


@contextlib.asynccontextmanager
async def switched_off(stage: Stage, worker: str) -> AsyncIterator[None]:
    """The worker's only node has no power."""
    with stage.history.without(worker):
        async with faults.stopped(stage.installation.cluster(worker)):
            yield
        await answers(stage, worker)
        await usable(stage, worker)


async def restarted(stage: Stage, cluster: str, component: str) -> None:
    """One of its control plane's parts is killed, and starts again."""
    with stage.history.without(cluster):
        await faults.restart(stage.installation.cluster(cluster), component)
        await answers(stage, cluster)
        for worker in stage.installation.workers:
            await usable(stage, worker)

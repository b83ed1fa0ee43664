"""What is done to the fleet, and when. Every step waits for what the clusters say, not for a time."""

import asyncio
import contextlib
import functools
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import structlog
from rich.console import Console

from clusters.demonstration import workload
from clusters.demonstration.counting import Ledger, recorded
from clusters.demonstration.ending import commands, summary
from clusters.demonstration.scene import Phase, Scene
from clusters.demonstration.showing import showing
from clusters.fleet import Fleet, FleetError, FleetOptions, open_fleet
from clusters.fleet_directory import FleetDirectory
from clusters.foreground import until_told
from clusters.installed import TEAM, InstallOptions, installed
from clusters.kind import KindCluster
from clusters.tcp_proxy import TcpProxy
from multimirror.api import MIRROR_QUEUES, WORKER_CLUSTERS
from multimirror.batch import Json
from multimirror.kube import Client, Connection, Informer
from multimirror.kube.resources import CRON_JOBS, JOBS, PODS
from multimirror.workers import Heartbeat

_LOST: Final = "worker-2"
_PATIENCE: Final = 150.0
_PATIENCE_WITH_KUBELETS: Final = 300.0
_PAUSE: Final = 2.0  # how long a user keeps a Job suspended
_QUIET: Final = 3.0  # so long a worker without power may take to tell what has ended there
_HEARTBEAT: Final = Heartbeat(period=0.5, timeout=1.0, failure_threshold=2)
_HEARTBEAT_WITH_KUBELETS: Final = Heartbeat(period=0.5, timeout=5.0, failure_threshold=2)
"""Real containers take what this machine has: an API server that needs seconds for an answer is not lost."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A fleet with multimirror on it, a proxy before each worker, and somebody who watches."""

    fleet: Fleet
    proxies: dict[str, TcpProxy]
    client: Client
    scene: Scene
    ledger: Ledger


async def demo(kind: str, options: FleetOptions, directory: FleetDirectory, *, keep: bool) -> int:
    """0 when every Job ended and none ran twice."""
    # As Ctrl-C: in order.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, signal.raise_signal, signal.SIGINT)
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    console, began = Console(highlight=False), time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        if keep:
            stack.enter_context(directory.held())
        console.print(f"Starting a management cluster and {options.workers} workers ({kind}) ...", soft_wrap=True)
        stage = await stack.enter_async_context(_stage(kind, options, lambda text: console.print(f"  {text}")))
        seconds = time.monotonic() - began
        console.print(f"Up in {seconds:.1f} s. Two queues: batch (spread), train (packed, 4 Jobs at a time).")
        outage = await _play(stage, console)
        await stage.ledger.rest(_QUIET)
        counted = stage.ledger.count()
        summary(console, counted, outage, stage.scene, time.monotonic() - began)
        if keep:
            directory.announce(stage.fleet, kind)
            commands(console, directory)
            await until_told(asyncio.Event().wait())
    return 1 if counted.lost or counted.broken else 0


@contextlib.asynccontextmanager
async def _stage(kind: str, of_the_fleet: FleetOptions, tell: Callable[[str], None]) -> AsyncIterator[Stage]:
    async with contextlib.AsyncExitStack() as stack:
        fleet = open_fleet(kind, of_the_fleet)
        fleet.tell = tell
        await stack.enter_async_context(fleet)
        proxies = {
            name: await stack.enter_async_context(TcpProxy(cluster.kubeconfig))
            for name, cluster in fleet.workers.items()
        }
        ways = {name: proxy.kubeconfig for name, proxy in proxies.items()}
        heartbeat = _HEARTBEAT_WITH_KUBELETS if fleet.has_kubelets else _HEARTBEAT
        options = InstallOptions(queues=workload.QUEUES, heartbeat=heartbeat, ways=ways)
        client = await stack.enter_async_context(installed(fleet, options))
        scene, ledger = Scene(f"{kind} clusters", tuple(fleet.workers)), Ledger(workload.RULES)
        await stack.enter_async_context(recorded(fleet, TEAM, ledger))
        await stack.enter_async_context(_watched(fleet, client, scene))
        yield Stage(fleet, proxies, client, scene, ledger)


@contextlib.asynccontextmanager
async def _watched(fleet: Fleet, client: Client, scene: Scene) -> AsyncIterator[None]:
    """The scene follows all clusters, straight from their API servers and not through any proxy."""
    async with contextlib.AsyncExitStack() as stack:
        sources = [
            (Informer(client, WORKER_CLUSTERS), scene.cluster_changed),
            (Informer(client, MIRROR_QUEUES), scene.queue_changed),
            (Informer(client, JOBS, TEAM), scene.job_changed),
        ]
        for name, cluster in fleet.workers.items():
            connection = Connection.from_kubeconfig(cluster.kubeconfig, name=name)
            worker = await stack.enter_async_context(Client(connection, user_agent="demo"))
            sources.append((Informer(worker, JOBS, TEAM), functools.partial(scene.copy_changed, name)))
            sources.append((Informer(worker, PODS, TEAM), functools.partial(scene.pod_changed, name)))
        for informer, handler in sources:
            informer.add_handler(handler)
            await stack.enter_async_context(informer)
        for informer, _ in sources:
            await informer.synced()
        yield


async def _play(stage: Stage, console: Console) -> float:
    """Everything, until all Jobs have ended. Gives the seconds that a worker was cut off."""
    scene, outage = stage.scene, 0.0
    patience = _PATIENCE_WITH_KUBELETS if stage.fleet.has_kubelets else _PATIENCE
    try:
        async with showing(scene, console), asyncio.timeout(patience):
            await scene.until(lambda: all(scene.connected(name) for name in stage.proxies))
            created = await _submit(stage, workload.jobs(_LOST, len(stage.proxies)))
            await stage.client.create(CRON_JOBS, workload.cron_job(), TEAM)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pause_and_go(stage))
                cutting = group.create_task(_cut_off(stage, created))
            await scene.until(lambda: _over(scene, created))
            await stage.client.patch(CRON_JOBS, workload.CRON_JOB, {"spec": {"suspend": True}}, TEAM)
            await scene.until(lambda: all(job.over for job in scene.jobs.values()))
            outage = cutting.result()
    except TimeoutError:
        open_ones = sorted(job.name for job in scene.jobs.values() if not job.over)
        raise FleetError(f"not all Jobs ended within {patience:.0f} s: {', '.join(open_ones)}") from None
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return outage


async def _submit(stage: Stage, jobs: list[Json]) -> list[str]:
    stage.scene.tell("you", f"create {len(jobs)} Jobs on the management cluster")
    stage.ledger.expect(workload.ends(jobs))
    for job in jobs:
        await stage.client.create(JOBS, job, TEAM)
    names = [job["metadata"]["name"] for job in jobs]
    await stage.scene.until(lambda: all(name in stage.scene.jobs for name in names))
    return names


def _over(scene: Scene, names: list[str]) -> bool:
    return all(scene.jobs[name].over for name in names)


async def _pause_and_go(stage: Stage) -> None:
    """What a user does to a Job that runs: suspend it, look, and let it go on."""
    scene, name = stage.scene, workload.PAUSED
    await scene.until(lambda: scene.jobs[name].over or scene.jobs[name].active > 0)
    if scene.jobs[name].over:
        return
    await stage.client.patch(JOBS, name, {"spec": {"suspend": True}}, TEAM)
    await scene.until(lambda: scene.jobs[name].phase is Phase.SUSPENDED and scene.jobs[name].active == 0)
    await asyncio.sleep(_PAUSE)
    await stage.client.patch(JOBS, name, {"spec": {"suspend": False}}, TEAM)


async def _cut_off(stage: Stage, created: list[str]) -> float:
    """A worker loses power and network while it has work, and comes back when its Jobs have moved."""
    scene = stage.scene
    if len(stage.proxies) < 2:
        return 0.0

    def there() -> int:
        return sum(1 for job in scene.jobs.values() if job.cluster == _LOST and not job.over)

    def is_time() -> bool:
        over = sum(1 for name in created if scene.jobs[name].over)
        return over >= len(created) // 5 and there() >= 2

    await scene.until(lambda: is_time() or _over(scene, created))
    if not there():
        return 0.0
    began = asyncio.get_running_loop().time()
    scene.tell(_LOST, f"is cut off: no power, no network, {there()} Jobs on it")
    await _power_off(stage)
    await scene.until(lambda: not scene.connected(_LOST))
    await scene.until(lambda: not there() and all(job.cluster for job in scene.jobs.values() if job.attempt))
    scene.tell(_LOST, "gets its power and its network back")
    await _network_back(stage)
    await scene.until(lambda: scene.connected(_LOST))
    await scene.until(lambda: not scene.stale(_LOST))
    await _power_back(stage)
    stage.ledger.cut_off(_LOST, began)
    outage = asyncio.get_running_loop().time() - began
    await _submit(stage, workload.late_jobs())
    return outage


async def _power_off(stage: Stage) -> None:
    """What has ended on simulated nodes is told to the world first, so that no Job is run again that had ended."""
    cluster, nodes = stage.fleet.workers[_LOST], stage.fleet.nodes.get(_LOST)
    if nodes is not None:
        nodes.switch_off()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_QUIET):
                await stage.scene.until(lambda: stage.scene.is_quiet(_LOST))
    stage.proxies[_LOST].cut()
    if isinstance(cluster, KindCluster):
        await cluster.pause()


async def _network_back(stage: Stage) -> None:
    cluster = stage.fleet.workers[_LOST]
    if isinstance(cluster, KindCluster):
        await cluster.resume()
    stage.proxies[_LOST].restore()


async def _power_back(stage: Stage) -> None:
    """Simulated machines take longer to boot than a network: what they ran is gone by then, and is not begun again."""
    nodes = stage.fleet.nodes.get(_LOST)
    if nodes is not None:
        nodes.switch_on()

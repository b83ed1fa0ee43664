"""`multimirror join`: a cluster becomes a worker in one command."""

import asyncio
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from multimirror.api import READY, WORKER_CLUSTERS
from multimirror.batch import find_condition
from multimirror.cli.connection import Management, on_both, system_namespace
from multimirror.cli.dispatcher_lease import START, dispatcher_status
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.flags import Duration, pairs, worker_access, worker_client, worker_flags
from multimirror.cli.membership import JoinOptions, join
from multimirror.cli.progress import Progress, say, versions
from multimirror.kube import Client

EXAMPLES = """\b
Examples:
  multimirror join east --kubeconfig east.yaml --namespaces team-a,team-b=b
  multimirror join east --kubeconfig all.yaml --context east --all-namespaces
  multimirror join east --kubeconfig east.yaml --free-capacity
  multimirror join east --kubeconfig east.yaml --new-token
"""
_QUIET: Final = 8.0
"""So long without a word about a new WorkerCluster, and it is asked whether anybody is there to say one."""


@click.command(epilog=EXAMPLES)
@click.argument("name")
@worker_flags(required=True)
@click.option("--namespaces", multiple=True, metavar="A,B=C", help="Whose Jobs go there; B is called C there.")
@click.option("--all-namespaces", is_flag=True, help="All of them, but kube-* and our own.")
@click.option("--create-namespaces", is_flag=True, help="Make those that are missing there.")
@click.option("--label", multiple=True, metavar="KEY=VALUE", help="For the selectors of queues.")
@click.option("--weight", type=click.IntRange(1, 1000), metavar="N", help="Its share under the placement Weighted.")
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="The most Jobs at a time.")
@click.option(
    "--free-capacity",
    is_flag=True,
    help="Count what is left on its nodes; its account may then list all pods there, other tenants' too.",
)
@click.option(
    "--server", metavar="URL", help="Its address for the dispatcher, which tries it.  [default: the kubeconfig's]"
)
@click.option("--token-duration", type=Duration(), default="24h", show_default=True, help="Of its first token.")
@click.option("--new-token", is_flag=True, help="And revoke the one that is stored.")
@click.option("--lasting-token", is_flag=True, help="One that never ends. Nobody revokes it.")
@click.option("--same-cluster", is_flag=True, help="The management cluster as its own worker.")
@click.option(
    "--timeout",
    "time_limit",
    type=Duration(),
    default="60s",
    show_default=True,
    help="Wait so long until it is ready; 0s: do not.",
)
@system_namespace
@on_both
async def command(
    management: Management, name: str, *, kubeconfig: Path, context: str | None, time_limit: timedelta, **given: Any
) -> int:
    """Make a cluster a worker, and wait until it is ready.

    On the worker: an account with the least rights, whose token the dispatcher renews. On the management cluster: a
    Secret with it, and a WorkerCluster. The first join says whose Jobs may go there (--namespaces or --all-namespaces).
    Join again to repair or change; what is not given stays as it is.
    """
    options = _options(name, time_limit, **given)
    access = worker_access(kubeconfig, context)
    progress = Progress()
    async with management.client() as client, worker_client(kubeconfig, context, name) as worker:
        await join(client, worker, access, options, given["system_namespace"])
        if time_limit:
            await _ready(client, name, time_limit.total_seconds(), given["system_namespace"], progress)
        else:
            say(f"next: `kubectl wait --for=condition=Ready workercluster/{name}` waits for the dispatcher's answer")
    return Exit.OK


def _options(name: str, time_limit: timedelta, **given: Any) -> JoinOptions:
    if given["namespaces"] and given["all_namespaces"]:
        raise click.UsageError("--namespaces and --all-namespaces: give only one of them")
    return JoinOptions(
        name=name,
        namespaces=pairs(given["namespaces"], flag="--namespaces", alone=True) if given["namespaces"] else None,
        every_namespace=given["all_namespaces"],
        create_namespaces=given["create_namespaces"],
        labels=pairs(given["label"], flag="--label", alone=False) if given["label"] else {},
        weight=given["weight"],
        max_jobs=given["max_jobs"],
        free_capacity=given["free_capacity"],
        server=given["server"],
        token_duration=given["token_duration"],
        new_token=given["new_token"],
        lasting_token=given["lasting_token"],
        same_cluster=given["same_cluster"],
        patience=time_limit.total_seconds(),
    )


async def _ready(client: Client, name: str, seconds: float, system: str, progress: Progress) -> None:
    """Wait for the dispatcher's verdict on the WorkerCluster as it is now."""
    why = "nobody has looked at it yet"
    loop = asyncio.get_running_loop()
    doubt: float | None = loop.time() + _QUIET
    ends = loop.time() + seconds
    async with aclosing(versions(client, WORKER_CLUSTERS, name)) as seen:
        following = aiter(seen)
        coming = asyncio.ensure_future(anext(following))
        try:
            while loop.time() < ends:
                await asyncio.wait([coming], timeout=min(ends, doubt or ends) - loop.time())
                if not coming.done():
                    if doubt is not None and loop.time() >= doubt:
                        doubt = None
                        await _anybody_there(client, name, system)
                    continue
                cluster = coming.result()
                coming = asyncio.ensure_future(anext(following))
                if cluster is None:
                    raise CommandError(f"somebody deleted WorkerCluster {name}")
                ready = find_condition((cluster.get("status") or {}).get("conditions") or (), READY)
                if ready is None or ready.get("observedGeneration") != cluster["metadata"].get("generation"):
                    progress.say("waiting for the dispatcher")
                    continue
                doubt, why = None, f"{ready['reason']}: {ready['message']}"
                if ready["status"] == "True" or ready["reason"] == "Cordoned":
                    note = "" if ready["status"] == "True" else ", and cordoned as before"
                    progress.say(f"{name} is ready{note} ({progress.seconds:.1f} s)")
                    return
                progress.say(f"waiting: {why}")
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
    raise CommandError(f"{name} did not become ready in {seconds:g} s: {why}", "`multimirror doctor` looks closer.")


async def _anybody_there(client: Client, name: str, system: str) -> None:
    found = await dispatcher_status(client, system)
    if not found.alive:
        raise CommandError(f"{name} is joined, but no dispatcher looks at it: {found.message}", START)

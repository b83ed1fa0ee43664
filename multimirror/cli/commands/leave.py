"""`multimirror leave`: a worker is a worker no more, and nothing of ours stays behind."""

from datetime import timedelta
from pathlib import Path

import click

from multimirror.cli.completion import complete_clusters
from multimirror.cli.connection import Management, on_both, system_namespace
from multimirror.cli.copies import remove_copies
from multimirror.cli.drain import cordon, drain
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.flags import Duration, worker_access, worker_client, worker_flags
from multimirror.cli.membership import check_cleanup, forget
from multimirror.cli.progress import say
from multimirror.cli.worker_account import remove_account
from multimirror.cli.workers import worker_connection
from multimirror.kube import ApiError, Client

EXAMPLES = """\b
Examples:
  multimirror leave east
  multimirror leave east --cleanup --kubeconfig east.yaml
  multimirror leave east --force
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", shell_complete=complete_clusters)
@click.option("--evict", is_flag=True, help="Do not wait for Jobs that run: start them again on other workers.")
@click.option("--force", is_flag=True, help="Do not drain: for a worker that is gone for good.")
@click.option("--timeout", "time_limit", type=Duration(), help="Give up after so long.  [default: never]")
@click.option("--cleanup", is_flag=True, help="Remove on the worker what join made there; needs --kubeconfig.")
@worker_flags(required=False)
@system_namespace
@on_both
async def command(
    management: Management,
    name: str,
    *,
    evict: bool,
    force: bool,
    time_limit: timedelta | None,
    cleanup: bool,
    kubeconfig: Path | None,
    context: str | None,
    system_namespace: str,
) -> int:
    """Drain a worker, then take it out.

    Waits until no Job runs there, then removes the finished copies on it, its WorkerCluster and its Secret, and revokes
    its token. With --force, its Jobs count as lost: their queues say what becomes of them.
    """
    if cleanup != (kubeconfig is not None):
        message = "--cleanup and --kubeconfig (the worker's) go together; ours is --management-kubeconfig"
        raise click.UsageError(message)
    if kubeconfig is not None:
        worker_access(kubeconfig, context)
    async with management.client() as client:
        if kubeconfig is not None:
            async with worker_client(kubeconfig, context, name) as worker:
                await check_cleanup(client, worker, name, system_namespace)
        if not force:
            await _drain(client, name, time_limit, system_namespace, evict=evict)
        await forget(client, name, system_namespace)
        say(f"{name} is no worker any more")
        if kubeconfig is not None:
            async with worker_client(kubeconfig, context, name) as worker:
                await remove_account(worker)
            say("removed the account and its roles on the worker")
    return Exit.OK


async def _drain(client: Client, name: str, time_limit: timedelta | None, system: str, *, evict: bool) -> None:
    if await cordon(client, name, cordoned=True):
        say(f"{name} is cordoned")
    try:
        worker = await worker_connection(client, name, system)
        await drain(
            client, name, time_limit.total_seconds() if time_limit is not None else None, worker if evict else None
        )
        say(f"{name} is drained")
        count = await remove_copies(worker)
    except ApiError as error:
        if error.cluster != name:
            raise
        raise CommandError(
            f"worker {name} cannot be tidied up: {error.message}", "--force takes it out all the same."
        ) from error
    say(f"removed {count} finished cop{'y' if count == 1 else 'ies'} there" if count else "nothing was left there")

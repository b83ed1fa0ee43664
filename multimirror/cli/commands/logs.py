"""`multimirror logs`."""

from collections.abc import Callable

import click

from multimirror.cli.completion import complete_jobs
from multimirror.cli.connection import Management, in_namespace, on_management, system_namespace
from multimirror.cli.copies import copy_missing, find_copy, find_job, worker_of
from multimirror.cli.errors import Exit
from multimirror.cli.job_logs import follow
from multimirror.cli.logs import LogOptions, read
from multimirror.cli.output import echo
from multimirror.kube import Client

EXAMPLES = """\b
Examples:
  multimirror logs job/train
  multimirror logs job/train -f --index 3
  multimirror logs train -n team-a --tail 20 --previous
"""


@click.command(epilog=EXAMPLES)
@click.argument("job", metavar="job/NAME", shell_complete=complete_jobs)
@in_namespace
@click.option("-f", "--follow", "following", is_flag=True, help="Go on to the Job's end, wherever it is moved.")
@click.option("--index", type=click.IntRange(0), metavar="N", help="Of an Indexed Job: only this one.")
@click.option("--pod", metavar="NAME", help="Only this pod.")
@click.option("-c", "--container", metavar="NAME", help="Only this one.  [default: the pod's default, or its first]")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="The last lines of each pod only.")
@click.option("-p", "--previous", is_flag=True, help="Of the container before this one.")
@click.option("--prefix/--no-prefix", default=None, help="Lines begin with their pod's name.  [default: if several]")
@click.option("--raw", is_flag=True, help="As it was written, control characters and colours too.")
@system_namespace
@on_management
async def command(
    management: Management,
    job: str,
    *,
    namespace: str | None,
    following: bool,
    index: int | None,
    pod: str | None,
    container: str | None,
    tail: int | None,
    previous: bool,
    prefix: bool | None,
    raw: bool,
    system_namespace: str,
) -> int:
    """What the pods of a Job write, straight from the worker.

    It goes there with the credentials that multimirror has stored: you need the right to read Secrets in its
    namespace. Control characters, which a terminal would obey, are replaced.

    With -f the Job itself is followed: until it is placed, through retries, to another worker when it is moved, and to
    its end, whether it failed or not. What happens meanwhile is said on standard error.
    """
    write: Callable[[str], None] = click.echo if raw else _harmless
    options = LogOptions(pod=pod, index=index, container=container, tail=tail, previous=previous, prefix=prefix)
    async with management.client() as client:
        original = await find_job(client, job, namespace)
        if following and not previous:  # of one that has ended there is nothing to follow
            await follow(management.client, original, options, system=system_namespace, write=write, note=_note)
            return Exit.OK
        worker = await worker_of(client, original, system_namespace)
        there: Client = worker.client() if worker is not None else management.client()
    async with there:
        copy = await find_copy(there, original, worker)
        if copy.job is None:
            raise copy_missing(original, copy)
        await read(copy, options, write, _note)
    return Exit.OK


def _harmless(line: str) -> None:
    echo(line.removesuffix("\r"))  # the line ends of Windows are no harm, and no news


def _note(text: str) -> None:
    echo(f"note: {text}", err=True)

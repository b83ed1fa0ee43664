"""`multimirror ask`: puts a question to the dispatcher of this pod. Nobody calls it by hand."""

import asyncio

import click

from multimirror.cli.asking import fetch
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.output import echo
from multimirror.kube import ApiError


@click.command(hidden=True)
@click.argument("question")
@click.option(
    "--address", metavar="URL", default="http://127.0.0.1:8080", show_default=True, help="Of its health server."
)
def command(question: str, address: str) -> int:
    """What the dispatcher beside it answers, as it is.

    For `multimirror` itself, which starts it in a dispatcher's pod: there alone it is answered.
    """
    try:
        echo(asyncio.run(fetch(address, question)).decode("utf-8", "replace"))
    except ApiError as error:
        raise CommandError(error.message) from error
    return Exit.OK

"""How commands reach the management cluster: the flags that kubectl has, and what kubectl would do without them."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

import click

from multimirror.cli.errors import CommandError, Exit, told
from multimirror.kube import Client, Connection, KubeError

SYSTEM_NAMESPACE: Final = "multimirror-system"
_PATIENCE: Final = 15.0
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Management:
    """The management cluster, as the flags name it."""

    kubeconfig: Path | None
    context: str | None

    def connection(self) -> Connection:
        """Reads the kubeconfig; asks nobody yet."""
        if self.kubeconfig is not None and not self.kubeconfig.exists():
            raise CommandError(f"--kubeconfig: there is no file {self.kubeconfig}", code=Exit.USAGE)
        return Connection.from_kubeconfig(self.kubeconfig, self.context)

    def client(self, *, timeout: float = _PATIENCE) -> Client:
        """An open door, for `async with`."""
        return Client(self.connection(), user_agent="multimirror-cli", timeout=timeout)


def on_management(
    function: Callable[Concatenate[Management, _P], Coroutine[Any, Any, int | None]],
) -> Callable[..., int]:
    """A command that works on the management cluster: takes `--kubeconfig` and `--context`, may be a coroutine.

    What the clusters answer comes out as one sentence and an exit code.
    """

    @click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Of the management cluster.  [default: as kubectl]"
    )
    @click.option("--context", help="The kubeconfig's context.  [default: the current one]")
    @functools.wraps(function)
    def command(*args: Any, kubeconfig: Path | None, context: str | None, **kwargs: Any) -> int:
        management = Management(kubeconfig=kubeconfig, context=context)
        return finish(function(management, *args, **kwargs))

    return command


def finish(work: Coroutine[Any, Any, int | None]) -> int:
    """Run a command's work to its end; errors of clusters become errors of the command."""
    try:
        return asyncio.run(work) or Exit.OK
    except KubeError as error:
        raise told(error) from error
    except OSError as error:
        raise CommandError(str(error)) from error

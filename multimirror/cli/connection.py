"""How commands reach the management cluster: the flags that kubectl has, and what kubectl would do without them."""

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import structlog

from multimirror.cli.background import background
from multimirror.cli.errors import CommandError, Exit, command_error
from multimirror.kube import Client, Connection, KubeError

SYSTEM_NAMESPACE: Final = "multimirror-system"
_PATIENCE: Final = 15.0
_Work = Callable[..., Coroutine[Any, Any, int | None]]
"""What a command does, given the Management and its own flags."""
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Management:
    """The management cluster, as the flags name it."""

    kubeconfig: Path | None
    context: str | None
    flag: str = "--kubeconfig"

    def connection(self) -> Connection:
        """Reads the kubeconfig; asks nobody yet."""
        if self.kubeconfig is not None and not self.kubeconfig.exists():
            raise CommandError(f"{self.flag}: there is no file {self.kubeconfig}", code=Exit.USAGE)
        return Connection.as_kubectl(self.kubeconfig, self.context)

    def client(self, *, timeout: float = _PATIENCE) -> Client:
        """An open door, for `async with`."""
        return Client(self.connection(), user_agent="multimirror-cli", timeout=timeout)


def on_management(function: _Work) -> Callable[..., int]:
    """A command that works on the management cluster: takes `--kubeconfig` and `--context`, may be a coroutine.

    What the clusters answer comes out as one sentence and an exit code.
    """
    return _on_management(function, "")


def on_both(function: _Work) -> Callable[..., int]:
    """The same, for a command whose `--kubeconfig` is the worker's: ours is `--management-kubeconfig`."""
    return _on_management(function, "management-")


def _on_management(function: _Work, prefix: str) -> Callable[..., int]:
    @click.option(
        f"--{prefix}kubeconfig",
        "_kubeconfig",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Of the management cluster.  [default: as kubectl]",
    )
    @click.option(
        f"--{prefix}context", "_context", metavar="NAME", help="Its context there.  [default: the current one]"
    )
    @functools.wraps(function)
    def command(*args: Any, _kubeconfig: Path | None, _context: str | None, **kwargs: Any) -> int:
        _no_logs()
        management = Management(kubeconfig=_kubeconfig, context=_context, flag=f"--{prefix}kubeconfig")
        return finish(function(management, *args, **kwargs))

    return command


def _no_logs() -> None:
    """A command says what its user is to know, in its own words: what the libraries below it log is for nobody here.

    Set up once for the process; `multimirror run`, whose output are its logs, has done so itself before.
    """
    if not structlog.is_configured():
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        logging.getLogger().addHandler(logging.NullHandler())  # without any, warnings go to standard error


def in_namespace(function: _Command) -> _Command:
    """`-n`: the namespace of the Job."""
    return click.option("-n", "--namespace", metavar="NAME", help="The Job's namespace.  [default: the context's]")(
        function
    )


def system_namespace(function: _Command) -> _Command:
    """`--system-namespace`: where the Secrets of workers are."""
    return click.option(
        "--system-namespace",
        metavar="NAME",
        default=SYSTEM_NAMESPACE,
        show_default=True,
        help="multimirror's own namespace.",
    )(function)


def finish(work: Coroutine[Any, Any, int | None]) -> int:
    """Run a command's work to its end; errors of clusters become errors of the command."""
    try:
        return asyncio.run(_with_background(work)) or Exit.OK
    except KubeError as error:
        raise command_error(error) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(str(error)) from error


async def _with_background(work: Coroutine[Any, Any, int | None]) -> int | None:
    async with background():
        return await work

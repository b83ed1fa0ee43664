"""How a command fails: one sentence and a remedy on standard error, an exit code for scripts, no trace."""

import enum
from typing import IO, Any

import click

from multimirror.cli.output import echo
from multimirror.kube import ApiError, KubeError
from multimirror.kube.errors import ConfigError, Forbidden, NotFound, TimedOut, Unauthorized, Unreachable


class Exit(enum.IntEnum):
    OK = 0
    NOT_SO = 1
    """It ran, and what was asked for is not so: a check found a fault, a wait came to its end, leadership was lost."""
    USAGE = 2
    """Wrong flags, a file that is not there, a configuration that cannot be used. Nothing was done."""
    UNREACHABLE = 3
    """A cluster does not answer, or does not let us in."""
    REFUSED = 4
    """A cluster answered, and refused what was asked of it."""
    INTERRUPTED = 130


class CommandError(click.ClickException):
    """What went wrong, and what to do about it."""

    def __init__(self, message: str, remedy: str = "", *, code: Exit = Exit.NOT_SO) -> None:
        super().__init__(message)
        self.remedy, self.code = remedy, code

    def show(self, file: IO[Any] | None = None) -> None:
        """On standard error: the sentence, then the remedy."""
        echo(f"error: {' '.join(self.message.split())}", file=file, err=file is None)
        if self.remedy:
            echo(f"  {self.remedy}", file=file, err=file is None)


def command_error(error: KubeError) -> CommandError:
    """A cluster's answer in the words of the command line."""
    match error:
        case ConfigError():
            return CommandError(str(error), "Check the file, --kubeconfig and --context.", code=Exit.USAGE)
        case Unreachable() | TimedOut():
            remedy = "Is the cluster up, and its address right? `kubectl cluster-info` asks the same one."
            return CommandError(str(error), remedy, code=Exit.UNREACHABLE)
        case Unauthorized():
            remedy = "The credentials are wrong or have expired: get new ones, or choose another --context."
            return CommandError(str(error), remedy, code=Exit.UNREACHABLE)
        case Forbidden():
            remedy = "Ask for the right to do this, or use the --context of an account that has it."
            return CommandError(str(error), remedy, code=Exit.REFUSED)
        case NotFound() if not error.details.get("name"):
            remedy = "Is multimirror installed there? `multimirror install` brings its kinds."
            return CommandError(str(error), remedy, code=Exit.REFUSED)
        case ApiError():
            return CommandError(str(error), code=Exit.REFUSED)
        case _:
            return CommandError(str(error))

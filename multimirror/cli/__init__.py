"""The `multimirror` command."""

from multimirror.cli.main import main

__all__ = ["main"]

"""`multimirror` with a leader that does not ask whether it still leads: `python -m tests.faults.unguarded run ...`."""

import sys

from multimirror.cli import main
from multimirror.kube import LeaderElector


def ask_nobody(_: LeaderElector) -> None:
    """Instead of LeaderElector.check."""


if __name__ == "__main__":
    LeaderElector.check = ask_nobody  # type: ignore[method-assign, assignment] # broken on purpose
    sys.exit(main(sys.argv[1:]))

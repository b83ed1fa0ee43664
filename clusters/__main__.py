"""`python -m clusters` is `multimirror fleet`."""

import sys

from multimirror.cli import main

sys.exit(main(["fleet", *sys.argv[1:]]))

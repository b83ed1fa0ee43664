"""`python -m multimirror.cli` is `multimirror`."""

import sys

from multimirror.cli.main import main

sys.exit(main())

"""`python -m builtin_controller` is the `builtin-controller` command."""

import sys

from builtin_controller.command import main

sys.exit(main())

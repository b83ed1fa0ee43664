"""`make reference`: write docs/reference anew."""

import sys
from pathlib import Path

from docs.generator import write

write(Path(sys.argv[1]))

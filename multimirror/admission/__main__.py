"""`python -m multimirror.admission FILE` writes the admission policies there."""

import sys
from pathlib import Path

from multimirror.admission.policies import manifest

if len(sys.argv) != 2:
    sys.exit(str(__doc__))
Path(sys.argv[1]).write_text(manifest())

"""`python -m multimirror.api DIRECTORY` writes the CustomResourceDefinitions there, one file each."""

import sys
from pathlib import Path

from multimirror.api.crds import write_manifests

if len(sys.argv) != 2:
    sys.exit(str(__doc__))
write_manifests(Path(sys.argv[1]))

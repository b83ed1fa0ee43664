"""`python -m multimirror.admission DIRECTORY` writes the admission policies there."""

import sys
from pathlib import Path

from multimirror.admission import placement
from multimirror.admission.policies import manifest

if len(sys.argv) != 2:
    sys.exit(str(__doc__))
for version, name in (("v1", "policies.yaml"), ("v1beta1", "policies-v1beta1.yaml")):
    (Path(sys.argv[1]) / name).write_text(manifest(version))
(Path(sys.argv[1]) / "placement.yaml").write_text(placement.manifest())

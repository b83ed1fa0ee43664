"""`python -m multimirror.admission DIRECTORY [--managed-by NAME]` writes the admission policies there.

And the webhook's registration, without an authority.
DIRECTORY is deploy, or any other: `admission` is for the management cluster, `worker` for workers.
"""

import argparse
from pathlib import Path

from multimirror.admission import copy_labels, placement, registration
from multimirror.admission.policies import manifest
from multimirror.api import MANAGED_BY

parser = argparse.ArgumentParser(prog="python -m multimirror.admission", description=__doc__)
parser.add_argument("directory", type=Path)
parser.add_argument("--managed-by", default=MANAGED_BY, metavar="NAME", help="the dispatcher's mark on Jobs")
given = parser.parse_args()
for name, content in {
    "admission/policies.yaml": manifest("v1", given.managed_by),
    "admission/policies-v1beta1.yaml": manifest("v1beta1", given.managed_by),
    "admission/placement.yaml": placement.manifest(given.managed_by),
    "admission/webhook.yaml": registration.manifest(given.managed_by),
    "worker/policy.yaml": copy_labels.worker_manifest(),
}.items():
    path = given.directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)

"""The Job controller: runs the Jobs of a cluster whose own Job controller is switched off, as Kubernetes v1.36 would.

    observe -> decide -> act on pods -> write down -> release finalizers -> write down

Pure: `deciding`, `tracking` and what they stand on. The shell: `syncing`, `acting`, `triggers`, `orphans`. What is kept
between syncs: `ledger` (pods of each Job) and `memory` (what we did and have not seen yet).
"""

from builtin_controller.controller import JobController
from builtin_controller.options import Options

__all__ = ["JobController", "Options"]

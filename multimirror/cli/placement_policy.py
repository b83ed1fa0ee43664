"""Our admission policies on a cluster: put in place, taken away, and compared with what is there.

The management cluster has those that leave placement and the labels of copies to us (`guards`), whatever makes Jobs
ours there; a worker has the one about labels.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from multimirror.admission.copy_labels import WORKER_NAME, copy_labels_policy
from multimirror.admission.placement import LABELS_NAME, NAME, guards
from multimirror.admission.registration import covers
from multimirror.api import MANAGED_BY
from multimirror.batch import Json
from multimirror.cli.apply import FIELD_MANAGER, apply, find, remove_all
from multimirror.kube import Client
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import VALIDATING_POLICIES

MANIFEST: Final = "deploy/admission/placement.yaml"
WORKER_MANIFEST: Final = "deploy/worker/policy.yaml"
_MANAGER: Final = re.compile(r"object\.spec\.managedBy == '([^']+)'")


async def are_policies_served(client: Client) -> bool:
    """Kubernetes has ValidatingAdmissionPolicies since 1.30, unless somebody switched the API off."""
    try:
        await client.request("GET", VALIDATING_POLICIES.path(), {"limit": 1})
    except NotFound:
        return False
    return True


async def apply_placement_policy(client: Client, *, manager: str = FIELD_MANAGER, managed_by: str = MANAGED_BY) -> bool:
    """The management cluster's policies and bindings, by server-side apply; False where there are no such kinds."""
    return await _apply(client, guards(managed_by), manager)


async def apply_worker_policy(client: Client) -> bool:
    """The worker's; False where the API server has no such kinds."""
    return await _apply(client, copy_labels_policy(WORKER_NAME), FIELD_MANAGER)


async def _apply(client: Client, documents: Sequence[Json], manager: str) -> bool:
    if not await are_policies_served(client):
        return False
    for document in documents:
        await apply(client, document, manager=manager)
    return True


async def remove_worker_policy(client: Client) -> None:
    """Policy and binding, where they are there."""
    await remove_all(client, copy_labels_policy(WORKER_NAME))


@dataclass(frozen=True, slots=True)
class PolicyState:
    """Of a policy, or of its binding."""

    document: Json
    live: Json | None

    @property
    def name(self) -> str:
        return f"{self.document['kind']} {self.document['metadata']['name']}"

    @property
    def differing(self) -> list[str]:
        """The fields that say something else than ours; what the server added does not matter."""
        spec = (self.live or {}).get("spec") or {}
        return [f"spec.{key}" for key, value in self.document["spec"].items() if not covers(spec.get(key), value)]


async def placement_policy_state(client: Client) -> list[PolicyState]:
    """The management cluster's, for the manager that they name. Raises Forbidden where one may not read them."""
    live = [await find(client, document) for document in guards()]
    manager = guarded_manager(live[0]) or MANAGED_BY
    return [PolicyState(document, found) for document, found in zip(guards(manager), live, strict=True)]


async def worker_policy_state(client: Client) -> list[PolicyState]:
    """The worker's, or those that it has as a management cluster. Raises Forbidden where one may not read them."""
    found = []
    for name in (LABELS_NAME, WORKER_NAME):
        found = [PolicyState(document, await find(client, document)) for document in copy_labels_policy(name)]
        if all(state.live is not None for state in found):
            break
    return found


def guarded_manager(policy: Json | None) -> str | None:
    """Whose Jobs the placement policy guards: the name in its condition."""
    if policy is None or policy["metadata"]["name"] != NAME:
        return None
    conditions = (policy.get("spec") or {}).get("matchConditions") or ()
    found = next((match for each in conditions if (match := _MANAGER.search(each.get("expression") or ""))), None)
    return found[1] if found else None

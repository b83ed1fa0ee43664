"""The admission policy that leaves placement to the dispatcher: put in place, and compared with what is there."""

from dataclasses import dataclass
from typing import Final

from multimirror.admission.placement import placement_policy
from multimirror.admission.registration import covers
from multimirror.batch import Json
from multimirror.cli.apply import FIELD_MANAGER, apply, find
from multimirror.kube import Client
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import VALIDATING_POLICIES

MANIFEST: Final = "deploy/admission/placement.yaml"


async def are_policies_served(client: Client) -> bool:
    """Kubernetes has ValidatingAdmissionPolicies since 1.30, unless somebody switched the API off."""
    try:
        await client.request("GET", VALIDATING_POLICIES.path(), {"limit": 1})
    except NotFound:
        return False
    return True


async def apply_placement_policy(client: Client, *, manager: str = FIELD_MANAGER) -> bool:
    """Policy and binding, by server-side apply; False where the API server has no such kinds."""
    if not await are_policies_served(client):
        return False
    for document in placement_policy():
        await apply(client, document, manager=manager)
    return True


@dataclass(frozen=True, slots=True)
class PolicyState:
    """Of the policy, or of its binding."""

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
    """Raises Forbidden where the account may not read them."""
    return [PolicyState(document, await find(client, document)) for document in placement_policy()]

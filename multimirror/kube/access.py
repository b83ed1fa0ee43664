"""What an account may do, asked of the API server itself (SelfSubjectAccessReview)."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from .client import Client
from .resources import SELF_SUBJECT_ACCESS_REVIEWS


@dataclass(frozen=True, slots=True)
class Permission:
    """`resource` may have a subresource (`jobs/status`); without a namespace: in all of them."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {kind}{where}"


async def is_allowed(client: Client, permission: Permission) -> bool:
    """Whether the account behind `client` may do this."""
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    review = {
        "apiVersion": SELF_SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": SELF_SUBJECT_ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = await client.create(SELF_SUBJECT_ACCESS_REVIEWS, review, limit=client.limits.small)
    status = answer.get("status")
    return isinstance(status, dict) and status.get("allowed") is True


async def denied(client: Client, permissions: Iterable[Permission]) -> list[Permission]:
    """Those that the account lacks, all asked for at once."""
    asked = list(permissions)
    answers = await asyncio.gather(*(is_allowed(client, permission) for permission in asked))
    return [permission for permission, allowed in zip(asked, answers, strict=True) if not allowed]

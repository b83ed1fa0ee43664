"""What an account may do, asked of the API server itself (SelfSubjectAccessReview)."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .client import Client
from .resources import SELF_SUBJECT_ACCESS_REVIEWS

_AT_ONCE: Final = 16


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
    review = {"spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}}}
    answer = await client.ask(SELF_SUBJECT_ACCESS_REVIEWS, review)
    status = answer.get("status")
    return isinstance(status, dict) and status.get("allowed") is True


async def denied(client: Client, permissions: Iterable[Permission]) -> list[Permission]:
    """Those that the account lacks. A few are asked for at a time: the time of one does not begin before it is sent."""
    asked = list(permissions)
    questions = iter(asked)
    lacking: set[Permission] = set()

    async def ask() -> None:
        for permission in questions:
            if not await is_allowed(client, permission):
                lacking.add(permission)

    askers = [asyncio.ensure_future(ask()) for _ in range(min(_AT_ONCE, len(asked)))]
    try:
        await asyncio.gather(*askers)
    finally:
        for asker in askers:
            asker.cancel()
    return [permission for permission in asked if permission in lacking]

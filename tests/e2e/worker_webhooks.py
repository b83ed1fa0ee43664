"""A cluster with an admission webhook of its own, which refuses or changes the Jobs that come in."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, Final

from multimirror.kube import Client, Resource
from multimirror.kube.errors import Forbidden
from multimirror.kube.resources import JOBS
from tests.contract.test_webhooks import listening
from tests.e2e.dispatching import Stage, a_job
from tests.waiting import DEADLINE

Json = dict[str, Any]
REFUSAL: Final[Json] = {
    "allowed": False,
    "status": {"message": "images must come from our own registry", "code": 403},
}


def changed(*operations: Json) -> Json:
    """The answer that changes every Job in this way (RFC 6902)."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


@contextlib.asynccontextmanager
async def admitting(stage: Stage, worker: str, answer: Json) -> AsyncIterator[None]:
    """The worker answers so to every new Job of our namespace; inside, the webhook is known to be in force."""
    client = stage.workers[worker]

    async def probe() -> None:
        await client.create(JOBS, a_job("probe", queue="unused"), stage.namespace, dry_run=True)

    async with _asked(client, stage.namespace, answer, ("CREATE", "jobs"), probe):
        yield


@contextlib.asynccontextmanager
async def refusing(stage: Stage, job: str, resource: str) -> AsyncIterator[None]:
    """The management cluster refuses every change of our namespace's `jobs` (or `jobs/status`), this one's first."""
    subresource = resource.partition("/")[2] or None

    async def probe() -> None:
        body = {"metadata": {"labels": {"probe": "yes"}}}
        await stage.management.patch(JOBS, job, body, stage.namespace, subresource=subresource, dry_run=True)

    async with _asked(stage.management, stage.namespace, REFUSAL, ("UPDATE", resource), probe):
        yield


@contextlib.asynccontextmanager
async def _asked(
    client: Client, namespace: str, answer: Json, what: tuple[str, str], probe: Any
) -> AsyncIterator[None]:
    operation, resources = what
    kind = "ValidatingWebhookConfiguration" if "patch" not in answer else "MutatingWebhookConfiguration"
    resource = Resource("admissionregistration.k8s.io", "v1", f"{kind.lower()}s", kind, namespaced=False)
    async with listening(lambda _: answer) as hook:
        rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": [operation], "resources": [resources]}
        webhook = {
            "name": f"{namespace}.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": hook.url, "caBundle": hook.authority},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        }
        header = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": namespace}}
        await client.create(resource, {**header, "webhooks": [webhook]})
        try:
            async with asyncio.timeout(DEADLINE):
                while not hook.asked:
                    with contextlib.suppress(Forbidden):
                        await probe()
                    await asyncio.sleep(0.05)
            yield
        finally:
            await client.delete(resource, namespace)

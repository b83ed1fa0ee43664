"""A worker cluster with an admission webhook of its own, which refuses or changes the Jobs that come in."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, Final

from multimirror.kube import Forbidden, Resource
from tests.contract.test_webhooks import listening
from tests.e2e.dispatching import JOBS, Stage, a_job

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
    kind = "ValidatingWebhookConfiguration" if "patch" not in answer else "MutatingWebhookConfiguration"
    resource = Resource("admissionregistration.k8s.io", "v1", f"{kind.lower()}s", kind, namespaced=False)
    client = stage.workers[worker]
    async with listening(lambda _: answer) as hook:
        webhook = {
            "name": f"{stage.namespace}.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": hook.url, "caBundle": hook.authority},
            "rules": [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}},
        }
        header = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": stage.namespace}}
        await client.create(resource, {**header, "webhooks": [webhook]})
        try:
            probe = a_job("probe", queue="unused")
            async with asyncio.timeout(30):
                while not hook.asked:
                    with contextlib.suppress(Forbidden):
                        await client.create(JOBS, probe, stage.namespace, dry_run=True)
                    await asyncio.sleep(0.05)
            yield
        finally:
            await client.delete(resource, stage.namespace)

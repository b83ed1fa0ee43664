"""The dispatcher's account on a worker: what deploy/worker says, its rights in namespaces, and its token.

Every step may be repeated, and repairs what an earlier one left. Nothing is taken away but by `remove_account`.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson

from multimirror.batch import Json
from multimirror.cli import credentials
from multimirror.cli.apply import apply, apply_all, remove, remove_all
from multimirror.cli.manifests import manifest
from multimirror.cli.placement_policy import apply_worker_policy, remove_worker_policy
from multimirror.cli.progress import say
from multimirror.kube import ApiError, Client, resources
from multimirror.kube.errors import Forbidden, NotFound

_NAMESPACE: Final = "multimirror-system"
_ACCOUNT: Final = "multimirror"
_BINDING: Final = "worker/namespace.yaml"
_EVERYWHERE: Final = "worker/all-namespaces.yaml"
_ENOUGH: Final = 0.9
"""A server may give a token less time than was asked for; this share of it will do."""
_FILLED_IN_SECONDS: Final = 5.0
_TOKEN_SECRET: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "type": "kubernetes.io/service-account-token",
    "metadata": {
        "name": "multimirror-token",
        "namespace": _NAMESPACE,
        "labels": {"app.kubernetes.io/part-of": "multimirror"},
        "annotations": {"kubernetes.io/service-account.name": _ACCOUNT},
    },
}


async def has_account(worker: Client) -> bool:
    try:
        await worker.get(resources.SERVICE_ACCOUNTS, _ACCOUNT, _NAMESPACE)
    except NotFound:
        return False
    return True


async def grant(worker: Client, namespaces: Mapping[str, str] | None, *, account: bool) -> None:
    """Make the account (unless it is there for something else: `account`) and bind its roles, where they are needed."""
    documents = manifest("worker/worker.yaml")
    await apply_all(worker, [each for each in documents if account or each["kind"] != "ServiceAccount"])
    await _leave_labels_to_the_account(worker)
    if namespaces is None:
        await apply_all(worker, manifest(_EVERYWHERE))
        say("made the account multimirror there; it may run Jobs in every namespace")
        return
    granted = sorted(set(namespaces.values()))
    for name in granted:
        await apply_all(worker, manifest(_BINDING), name)
    say(f"made the account multimirror there; it may run Jobs in {', '.join(granted)}")
    for where in await _granted_before(worker, set(granted)):
        say(f"note: an earlier join granted {where}; `kubectl delete` on the worker takes that away")


async def _leave_labels_to_the_account(worker: Client) -> None:
    """After its role, which names the verb that the policy asks for."""
    try:
        served = await apply_worker_policy(worker)
    except Forbidden:
        say("note: you may not write ValidatingAdmissionPolicies there; its administrator applies worker/policy.yaml,")
        say("  without which whoever may write Jobs there can label them as our copies (they would not count as such)")
        return
    if not served:
        say("note: it has no ValidatingAdmissionPolicies (Kubernetes 1.30): anybody's Jobs can carry our labels there")


async def _granted_before(worker: Client, granted: set[str]) -> list[str]:
    name = manifest(_BINDING)[0]["metadata"]["name"]
    try:
        everywhere = await worker.list(resources.CLUSTER_ROLE_BINDINGS, field_selector=f"metadata.name={name}")
        bindings = await worker.list(resources.ROLE_BINDINGS, field_selector=f"metadata.name={name}")
    except Forbidden:
        return []  # who joins may bind roles, and need not be able to list them
    found = [f"every namespace (clusterrolebinding {name})"] if everywhere.items else []
    others = sorted({each["metadata"]["namespace"] for each in bindings.items} - granted)
    return found + [f"namespace {other} (rolebinding {name})" for other in others]


async def request_token(worker: Client, duration: timedelta) -> str:
    """From the API, with an end. A server that gives much less time than asked for gives one without an end instead."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": int(duration.total_seconds())},
    }
    path, kind = resources.SERVICE_ACCOUNTS.path(_NAMESPACE, _ACCOUNT, "token"), {"Content-Type": "application/json"}
    status = orjson.loads((await worker.request("POST", path, body=body, headers=kind)).body)["status"]
    left = datetime.fromisoformat(status["expirationTimestamp"]) - datetime.now(UTC)
    if left < duration * _ENOUGH:
        lasting = await _lasting_token(worker)
        if lasting is not None:
            return lasting
        say(f"note: this cluster gives tokens no more than {_in_words(left)}; join again before it ends")
    return str(status["token"])


async def _lasting_token(worker: Client) -> str | None:
    """A token in a Secret of the worker, valid as long as the Secret is there; None where nobody fills it in."""
    name = _TOKEN_SECRET["metadata"]["name"]
    try:
        await apply(worker, _TOKEN_SECRET)
        async with asyncio.timeout(_FILLED_IN_SECONDS):
            while True:
                found = credentials.kubeconfig_in(await worker.get(resources.SECRETS, name, _NAMESPACE), "token")
                if found:
                    return found.decode()
                await asyncio.sleep(0.1)
    except (TimeoutError, ApiError):
        return None


async def remove_account(worker: Client) -> None:
    """With its token, its roles, every binding of them and the policy. Their namespace stays: others may use it."""
    binding = manifest(_BINDING)
    name = binding[0]["metadata"]["name"]
    for each in (await worker.list(resources.ROLE_BINDINGS, field_selector=f"metadata.name={name}")).items:
        await remove_all(worker, binding, each["metadata"]["namespace"])
    await remove_all(worker, manifest(_EVERYWHERE))
    await remove_worker_policy(worker)
    await remove_all(worker, [each for each in manifest("worker/worker.yaml") if each["kind"] != "Namespace"])
    await remove(worker, _TOKEN_SECRET)


def _in_words(duration: timedelta) -> str:
    hours = duration.total_seconds() / 3600
    return f"{hours / 24:.0f} days" if hours > 48 else f"{hours:.0f} hours"

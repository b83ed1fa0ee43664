"""The dispatcher's account on a worker: what deploy/worker says, its rights in namespaces, and its token.

Every step may be repeated, and repairs what an earlier one left. Nothing is taken away but by `remove_account`.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson

from multimirror.api import WORKER_SYSTEM_NAMESPACE
from multimirror.batch import Json
from multimirror.cli import credentials
from multimirror.cli.apply import FIELD_MANAGER, apply, apply_all, remove, remove_all
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.manifests import manifest
from multimirror.cli.placement_policy import apply_worker_policy, are_policies_served, remove_worker_policy
from multimirror.cli.progress import say
from multimirror.kube import Client, resources
from multimirror.kube.errors import Forbidden, NotFound
from multimirror.workers.tokens import ACCOUNT, PREFIX, Slots, slot_secret, token_request

_BINDING: Final = "worker/namespace.yaml"
_EVERYWHERE: Final = "worker/all-namespaces.yaml"
_LIMITS: Final = "worker/account.yaml"
_PODS: Final = "worker/free-capacity.yaml"
_SLOTS: Final = "worker/tokens.yaml"
_KEY: Final = "SLOTS"
_PART_OF: Final = "app.kubernetes.io/part-of=multimirror"
_ENOUGH: Final = 0.9
"""A server may give a token less time than was asked for; from this share of it on nobody is told."""
_FILLED_IN_SECONDS: Final = 10.0
_LASTING: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "type": "kubernetes.io/service-account-token",
    "metadata": {
        "name": "multimirror-token",
        "namespace": WORKER_SYSTEM_NAMESPACE,
        "labels": {"app.kubernetes.io/part-of": "multimirror"},
        "annotations": {"kubernetes.io/service-account.name": ACCOUNT},
    },
}


async def has_account(worker: Client) -> bool:
    try:
        await worker.get(resources.SERVICE_ACCOUNTS, ACCOUNT, WORKER_SYSTEM_NAMESPACE)
    except NotFound:
        return False
    return True


async def grant(worker: Client, namespaces: Mapping[str, str] | None, slots: Slots, *, account: bool) -> None:
    """Make the account (unless it is there for something else: `account`) and bind its roles, where they are needed.

    `slots`: the Secrets to which its tokens are bound. The limits come first.
    """
    documents = manifest("worker/worker.yaml")
    await apply(worker, documents[0])
    limited = await _limit(worker)
    await apply_all(worker, [each for each in documents[1:] if account or each["kind"] != "ServiceAccount"])
    await apply_all(worker, token_roles(slots))
    if account:  # else it is a management cluster, which has such a policy of its own
        await _leave_labels_to_the_account(worker)
    if namespaces is None:
        await apply_all(worker, manifest(_EVERYWHERE))
        but = f" but kube-* and {WORKER_SYSTEM_NAMESPACE}" if limited else ", kube-system among them"
        say(f"made the account multimirror there; it may run Jobs in every namespace{but}")
        return
    granted = sorted(set(namespaces.values()))
    for name in granted:
        await apply_all(worker, manifest(_BINDING), name)
    say(f"made the account multimirror there; it may run Jobs in {', '.join(granted)}")
    for where in await _granted_before(worker, set(granted)):
        say(f"note: an earlier join granted {where}; `kubectl delete` on the worker takes that away")


async def grant_pods(worker: Client) -> None:
    """Let the account see what is left on each node: the pods of all namespaces."""
    await apply_all(worker, manifest(_PODS))
    say("the account may list the pods of all namespaces there, other tenants' among them: its room is what is left")


async def _limit(worker: Client) -> bool:
    """What the account may never do, whatever its roles say; False where the API server cannot be told."""
    if not await are_policies_served(worker):
        say("note: this cluster has no ValidatingAdmissionPolicies (Kubernetes 1.30): roles alone limit the account")
        return False
    try:
        await apply_all(worker, limits())
    except Forbidden:
        say("note: you may not write ValidatingAdmissionPolicies there; its administrator applies worker/account.yaml,")
        say("  without which roles alone limit the account")
        return False
    return True


def limits() -> list[Json]:
    """The policies on what the account may never do, and their bindings."""
    return manifest(_LIMITS)


def token_roles(slots: Slots) -> list[Json]:
    """What lets the account delete the Secrets of its tokens."""
    text = orjson.dumps(manifest(_SLOTS)).replace(_KEY.encode(), slots.key.encode())
    documents: list[Json] = orjson.loads(text)
    return documents


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


async def request_token(worker: Client, slots: Slots, duration: timedelta, *, before: str | None) -> str:
    """One with an end, which dies with a Secret on the worker. `before`: the Secret of the last one, which stays."""
    slot = slot_secret(slots.beside(before))
    await remove(worker, slot)  # one that nobody uses: what was bound to it dies
    made = await worker.create(resources.SECRETS, slot, WORKER_SYSTEM_NAMESPACE, field_manager=FIELD_MANAGER)
    metadata = made["metadata"]
    body = token_request(duration.total_seconds(), metadata["name"], metadata["uid"])
    path = resources.SERVICE_ACCOUNTS.path(WORKER_SYSTEM_NAMESPACE, ACCOUNT, "token")
    answer = await worker.request("POST", path, body=body, headers={"Content-Type": "application/json"})
    status = orjson.loads(answer.body)["status"]
    left = datetime.fromisoformat(status["expirationTimestamp"]) - datetime.now(UTC)
    if left < duration * _ENOUGH:
        say(f"note: this cluster gives tokens no more than {_in_words(left)}")
    return str(status["token"])


async def lasting_token(worker: Client) -> str:
    """A token in a Secret of the worker, valid as long as the Secret is there: for those who asked for it."""
    name = _LASTING["metadata"]["name"]
    await apply(worker, _LASTING)
    try:
        async with asyncio.timeout(_FILLED_IN_SECONDS):
            while True:
                secret = await worker.get(resources.SECRETS, name, WORKER_SYSTEM_NAMESPACE)
                found = credentials.kubeconfig_in(secret, "token")
                if found:
                    return found.decode()
                await asyncio.sleep(0.1)
    except TimeoutError:
        problem = f"nobody fills Secret {WORKER_SYSTEM_NAMESPACE}/{name} in on the worker"
        raise CommandError(problem, "Join without --lasting-token.", code=Exit.REFUSED) from None


async def revoke(worker: Client, names: Iterable[str]) -> None:
    """Delete Secrets to which tokens are bound; with the account's own token, its own has to be the last."""
    for name in names:
        with contextlib.suppress(NotFound):
            await worker.delete(resources.SECRETS, name, WORKER_SYSTEM_NAMESPACE)


async def remove_account(worker: Client) -> None:
    """With its tokens, its roles, every binding of them and the policies. Their namespace stays: others may use it."""
    binding = manifest(_BINDING)
    name = binding[0]["metadata"]["name"]
    for each in (await worker.list(resources.ROLE_BINDINGS, field_selector=f"metadata.name={name}")).items:
        await remove_all(worker, binding, each["metadata"]["namespace"])
    await remove_all(worker, manifest(_EVERYWHERE))
    await remove_all(worker, manifest(_PODS))
    await remove_worker_policy(worker)
    await remove_all(worker, [each for each in manifest("worker/worker.yaml") if each["kind"] != "Namespace"])
    await remove(worker, _LASTING)
    for resource, prefix in (
        (resources.ROLE_BINDINGS, "multimirror-tokens-"),
        (resources.ROLES, "multimirror-tokens-"),
        (resources.SECRETS, PREFIX),
    ):
        for each in (await worker.list(resource, WORKER_SYSTEM_NAMESPACE, label_selector=_PART_OF)).items:
            if each["metadata"]["name"].startswith(prefix):
                with contextlib.suppress(NotFound):
                    await worker.delete(resource, each["metadata"]["name"], WORKER_SYSTEM_NAMESPACE)
    await remove_all(worker, limits())


def _in_words(duration: timedelta) -> str:
    hours = duration.total_seconds() / 3600
    return f"{hours / 24:.0f} days" if hours > 48 else f"{hours:.0f} hours"

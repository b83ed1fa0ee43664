"""Somebody has the token of the dispatcher, or of the webhook: what he cannot do with it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from clusters.local import LocalCluster
from multimirror.kube import Client, Connection, Resource
from multimirror.kube.access import Permission, denied
from multimirror.kube.errors import Forbidden
from multimirror.kube.resources import (
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
)
from tests.e2e.installation.processes import token_of
from tests.security.installation import SYSTEM, Installation
from tests.security.webhook import ACCOUNT, a_webhook, grant
from tests.waiting import eventually

_VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
_AT_ADMISSION = (
    MUTATING_WEBHOOKS,
    _VALIDATING_WEBHOOKS,
    MUTATING_POLICIES,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
)
_WRITES = ("create", "update", "patch", "delete", "deletecollection")
SPY = {
    "name": "all.secrets.example.com",
    "clientConfig": {"url": "https://127.0.0.1:9/spy"},
    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}],
    "failurePolicy": "Ignore",
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
}


@pytest_asyncio.fixture(loop_scope="session", params=["multimirror", ACCOUNT])
async def thief(installation: Installation, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """Whoever has that account's token."""
    bearer = await (grant(installation) if request.param == ACCOUNT else token_of(installation.admin, request.param))
    management = installation.fleet.management
    assert isinstance(management, LocalCluster)
    async with Client(Connection.from_kubeconfig(management.kubeconfig_with_token(bearer))) as client:
        yield client


async def test_no_token_of_ours_changes_what_api_servers_do_at_admission(thief: Client) -> None:
    wishes = [Permission(verb, each.plural, each.group) for each in _AT_ADMISSION for verb in _WRITES]
    wishes += [
        Permission(verb, each.plural, each.group, name="multimirror") for each in _AT_ADMISSION for verb in _WRITES
    ]
    assert await denied(thief, wishes) == wishes


async def test_no_token_of_ours_registers_a_webhook_that_sees_secrets(
    installation: Installation, thief: Client
) -> None:
    async with a_webhook(installation):
        live = await installation.admin.get(MUTATING_WEBHOOKS, "multimirror")
        for patch_type in ("merge", "apply"):
            body: dict[str, Any] = {
                "apiVersion": MUTATING_WEBHOOKS.api_version,
                "kind": MUTATING_WEBHOOKS.kind,
                "metadata": {"name": "multimirror"},
                "webhooks": [*live["webhooks"], SPY] if patch_type == "merge" else [SPY],
            }
            with pytest.raises(Forbidden):
                await thief.patch(
                    MUTATING_WEBHOOKS,
                    "multimirror",
                    body,
                    patch_type=patch_type,
                    field_manager="multimirror-admission",
                )
        with pytest.raises(Forbidden):
            await thief.replace(MUTATING_WEBHOOKS, {**live, "webhooks": [SPY]})
        with pytest.raises(Forbidden):
            await thief.delete(MUTATING_WEBHOOKS, "multimirror")
        with pytest.raises(Forbidden):
            await thief.create(MUTATING_WEBHOOKS, {"metadata": {"name": "spy"}, "webhooks": [SPY]})
        assert (await installation.admin.get(MUTATING_WEBHOOKS, "multimirror"))["webhooks"] == live["webhooks"]


async def test_no_token_of_ours_reads_the_secrets_of_a_team(installation: Installation, thief: Client) -> None:
    tenant = await installation.tenant("private")
    await installation.admin.create(SECRETS, {"metadata": {"name": "theirs"}}, tenant.namespace)
    for attempt in (
        lambda: thief.get(SECRETS, "theirs", tenant.namespace),
        lambda: thief.list(SECRETS, tenant.namespace),
        lambda: thief.list(SECRETS),
    ):
        with pytest.raises(Forbidden):
            await attempt()


async def test_the_dispatchers_token_begets_none_that_lasts_of_any_account(installation: Installation) -> None:
    """It may create Secrets, and list them: Kubernetes would fill one in with the token of any account beside it."""
    bearer, management = await token_of(installation.admin, "multimirror"), installation.fleet.management
    assert isinstance(management, LocalCluster)
    async with Client(Connection.from_kubeconfig(management.kubeconfig_with_token(bearer))) as thief:
        for account in ("default", "multimirror"):
            metadata = {"name": f"for-good-{account}", "annotations": {"kubernetes.io/service-account.name": account}}
            secret = {"metadata": metadata, "type": "kubernetes.io/service-account-token"}
            with pytest.raises(Forbidden, match="tokens which never end"):
                await thief.create(SECRETS, secret, SYSTEM)


async def test_the_webhooks_token_reads_one_secret_of_our_own_namespace(installation: Installation) -> None:
    bearer, management = await grant(installation), installation.fleet.management
    assert isinstance(management, LocalCluster)
    async with Client(Connection.from_kubeconfig(management.kubeconfig_with_token(bearer))) as thief:
        with pytest.raises(Forbidden):
            await thief.list(SECRETS, SYSTEM)
        with pytest.raises(Forbidden):
            await thief.get(SECRETS, next(iter(installation.workers)), SYSTEM)


async def test_somebody_elses_entry_in_our_registration_is_an_alarm(installation: Installation) -> None:
    async with a_webhook(installation) as webhook:
        assert await webhook.metric("multimirror_admission_registration_foreign") == 0
        live = await installation.admin.get(MUTATING_WEBHOOKS, "multimirror")
        await installation.admin.replace(MUTATING_WEBHOOKS, {**live, "webhooks": [*live["webhooks"], SPY]})
        await eventually(lambda: webhook.metric("multimirror_admission_registration_foreign"))
        assert "the webhook all.secrets.example.com is not ours" in webhook.log.read_text()
        _, out, err = await installation.command("doctor")
        assert "all.secrets.example.com is not ours" in out + err

"""The webhook as a process of the installation's account, called by the API server, for as long as a test needs it."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

import yaml

from clusters.local import LocalCluster
from clusters.local.ports import free_ports
from multimirror.admission import PATH
from multimirror.cli.apply import apply
from multimirror.cli.installation.authority import with_authority
from multimirror.cli.installation.objects import InstallOptions, objects
from multimirror.kube import ApiError
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import JOBS, MUTATING_WEBHOOKS
from tests.e2e.installation.processes import token_of
from tests.security.installation import SYSTEM, DispatcherProcess, Installation, a_job
from tests.waiting import eventually

_OF_THE_WEBHOOK = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
ACCOUNT = "multimirror-admission"
_numbers = count(1)


@dataclass
class WebhookProcess(DispatcherProcess):
    """`multimirror admission` with the rights of the installation."""

    webhook_port: int


async def grant(installation: Installation) -> str:
    """The account of the webhook, as it is installed where that is the way of admission; its token."""
    for obj in objects(InstallOptions(admission="webhook")):
        if obj["kind"] in _OF_THE_WEBHOOK and obj["metadata"]["name"] == ACCOUNT:
            await apply(installation.admin, obj)
    return await token_of(installation.admin, ACCOUNT)


@contextlib.asynccontextmanager
async def a_webhook(installation: Installation, *flags: str) -> AsyncIterator[WebhookProcess]:
    """It answers, and is registered by the operator."""
    bearer, (port, health) = await grant(installation), free_ports(2)
    url = f"https://127.0.0.1:{port}{PATH}"
    management = installation.fleet.management
    assert isinstance(management, LocalCluster)
    name = f"webhook-{next(_numbers)}"
    kubeconfig, log = installation.directory / f"{name}.kubeconfig", installation.directory / f"{name}.log"
    kubeconfig.write_text(yaml.safe_dump(management.kubeconfig_with_token(bearer)))
    kubeconfig.chmod(0o600)
    wanted = objects(InstallOptions(component="registration", admission_url=url))
    whole = await with_authority(installation.admin, wanted, SYSTEM, datetime.now(UTC))
    registration = whole.pop()
    for obj in whole:
        await apply(installation.admin, obj)
    arguments = (
        *(sys.executable, "-m", "multimirror.cli", "admission", "--kubeconfig", str(kubeconfig), "--url", url),
        *("--namespace", SYSTEM, "--address", f"127.0.0.1:{port}", "--health-address", f"127.0.0.1:{health}", *flags),
    )
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*arguments, stdout=out, stderr=out)
    webhook = WebhookProcess(process, health, log, arguments, port)
    try:
        await webhook.ready()
        await apply(installation.admin, registration)
        await eventually(lambda: _is_called(installation, webhook))
        yield webhook
    finally:
        with contextlib.suppress(NotFound):
            await installation.admin.delete(MUTATING_WEBHOOKS, "multimirror")
        await webhook.stop()


async def _is_called(installation: Installation, webhook: WebhookProcess) -> bool:
    """The API server hears of a registration a moment after it was written; being refused by it is an answer too."""
    with contextlib.suppress(ApiError):
        await installation.admin.create(JOBS, a_job("probe", "no-such-queue"), "default", dry_run=True)
    return await webhook.metric("multimirror_admission_reviews_total") > 0

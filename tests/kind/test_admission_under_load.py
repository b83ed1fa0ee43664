"""Rollouts of the webhook, and changes from one kind of admission to another, while people create Jobs all the time.

Nobody's Job is refused, and none slips through. MULTIMIRROR_LOAD says how many creations each test sees at least, from
the first change to the last (10,000 take some minutes).
"""

import os
from collections.abc import Callable, Coroutine
from typing import Final, Protocol

import pytest

from clusters.local.helm import find_helm
from tests.kind.installation import SYSTEM, Answer, Installation, typed
from tests.kind.load import Load, under_load
from tests.kind.test_installing import CHART
from tests.waiting import eventually

CREATIONS: Final = int(os.environ.get("MULTIMIRROR_LOAD", "2000"))
ROLLOUTS: Final = 5
WEBHOOK: Final = "multimirror-admission"
BOTH_WAYS: Final = ("webhook", "policies")
Tell = Callable[[str], None]


class Helm(Protocol):
    def __call__(self, verb: str, *arguments: str, **values: str) -> Coroutine[None, None, Answer]: ...


def nobody_noticed(load: Load) -> None:
    assert not load.failed + load.unmanaged, f"{load}: {(load.failed + load.unmanaged)[:5]}"


async def change(installation: Installation, admission: str) -> None:
    await installation.done("install", "--image", installation.image, "--admission", admission, "--wait")


async def admissions(installation: Installation) -> set[str]:
    """What is in force."""
    kinds = {"mutatingadmissionpolicies": "policies", "mutatingwebhookconfigurations": "webhook"}
    shown = await installation.kubectl_done("get", ",".join(kinds), "-o", "name")
    return {kinds[each] for line in shown.out.split() for each in kinds if line.startswith(each[:-3])}


async def test_rollouts_of_the_webhook_refuse_nobody(installation: Installation, tell: Tell) -> None:
    await change(installation, "webhook")
    try:
        async with under_load(installation.cluster().kubeconfig) as load:
            for number in range(1, ROLLOUTS + 1):
                await installation.kubectl_done("-n", SYSTEM, "rollout", "restart", f"deployment/{WEBHOOK}")
                await installation.rolled_out(WEBHOOK)
                await load.reach(CREATIONS * number // ROLLOUTS)
                nobody_noticed(load)
        tell(f"{ROLLOUTS} rollouts of the webhook: {load}")
    finally:
        await change(installation, "policies")


async def test_admission_changes_by_command_and_nobody_notices(installation: Installation, tell: Tell) -> None:
    async with under_load(installation.cluster().kubeconfig) as load:
        for number, admission in enumerate(BOTH_WAYS, 1):
            await change(installation, admission)
            assert await admissions(installation) == {admission}
            await load.reach(CREATIONS * number // len(BOTH_WAYS))
            nobody_noticed(load)
    tell(f"admission by policies, webhook, policies, with the command: {load}")


@pytest.fixture
def helm(installation: Installation) -> Helm:
    """`helm` about the release."""
    return helm_of(installation)


def helm_of(installation: Installation) -> Helm:
    repository, _, tag = installation.image.partition(":")
    values = {"image.repository": repository, "image.tag": tag, "crds.install": "false"}

    async def helm(verb: str, *arguments: str, **more: str) -> Answer:
        where = () if verb == "uninstall" else (str(CHART),)
        settings = [part for key, value in {**values, **more}.items() for part in ("--set", f"{key}={value}")]
        answer = await typed(
            *(str(find_helm()), verb, "multimirror", *where, "--kubeconfig", str(installation.kubeconfig())),
            *("--namespace", SYSTEM, *arguments, *(settings if where else ())),
        )
        assert answer.code == 0, f"{answer.out}\n{answer.err}"
        return answer

    return helm


async def done_as_told(installation: Installation, told: str) -> None:
    """What the notes say to ask the cluster."""
    commands = [line.split()[1:] for line in told.partition("NOTES:")[2].splitlines() if line.startswith("  kubectl ")]
    assert commands
    for command in commands:
        await installation.kubectl_done(*command)


async def test_admission_changes_by_helm_and_nobody_notices(installation: Installation, helm: Helm, tell: Tell) -> None:
    await installation.done("uninstall", "--force")
    try:
        told = await helm("install", "--wait", admission="policies")
        await done_as_told(installation, told.out)
        async with under_load(installation.cluster().kubeconfig) as load:
            for number, admission in enumerate(BOTH_WAYS, 1):
                told = await helm("upgrade", "--wait", "--timeout", "5m", admission=admission)
                assert "half done" in told.out
                await done_as_told(installation, told.out)
                assert await admissions(installation) == {"policies", "webhook"}

                async def upgraded(admission: str = admission) -> bool:
                    return "half done" not in (await helm("upgrade", "--wait", admission=admission)).out

                await eventually(upgraded)
                assert await admissions(installation) == {admission}
                await load.reach(CREATIONS * number // len(BOTH_WAYS))
                nobody_noticed(load)
        tell(f"admission by policies, webhook, policies, with Helm: {load}")
    finally:
        await helm("uninstall", "--wait", "--ignore-not-found")
        await installation.install()

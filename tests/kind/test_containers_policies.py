"""Every policy of the Job API, with real containers: of a Job that was sent to a worker, a user sees what he would see
of it on plain Kubernetes. So it is whoever runs the worker's Jobs, Kubernetes' own Job controller or ours.

The same Jobs are run three times side by side: without us, through the dispatcher, and through the dispatcher on a
worker whose own Job controller is switched off and ours is installed. Their statuses are compared as wholes; what may
differ is in docs/concepts/mirror.md.
"""

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from multimirror.api import QUEUE_LABEL
from multimirror.batch import is_finished
from multimirror.kube import Client
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import JOBS, NAMESPACES, PODS, SERVICE_ACCOUNTS
from tests.kind.installation import Installation, a_stage
from tests.kind.policies import POLICIES, Policy
from tests.waiting import DEADLINE, eventually

Json = dict[str, Any]
PLAIN: Final = "worker-1"
BUILTIN: Final = "worker-2"
_MANIFEST: Final = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
_LOOK: Final = 0.25  # one list a leg: cheaper than a question a Job
_LONGEST: Final = 3 * DEADLINE  # 80 Jobs at once are much for a busy machine


@dataclass
class Leg:
    """All of the Jobs, once, and what their user saw of them."""

    client: Client
    namespace: str
    labels: Json = field(default_factory=dict)
    seen: dict[str, Json] = field(default_factory=dict)
    """The last status of each."""
    acted: dict[str, list[Json]] = field(default_factory=dict)
    """The statuses on which its user acted."""

    async def run(self) -> None:
        """Until all have ended, or time is up: what is missing then is missed by the test of that policy."""
        await eventually(self._account)
        for policy in POLICIES:
            await self.client.create(JOBS, policy.job(self.namespace, self.labels))
            self.acted[policy.name] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST):
                while not await self._looked():
                    await asyncio.sleep(_LOOK)

    async def _account(self) -> bool:
        """Pods need it, and a controller makes it."""
        try:
            await self.client.get(SERVICE_ACCOUNTS, "default", self.namespace)
        except NotFound:
            return False
        return True

    async def _looked(self) -> bool:
        there = {each["metadata"]["name"]: each for each in (await self.client.list(JOBS, self.namespace)).items}
        for policy in POLICIES:
            if policy.name in there:
                await self._act(policy, there[policy.name].get("status") or {})
        lived = POLICIES_THAT_GO & there.keys()
        return not lived and all(is_finished(self.seen.get(policy.name) or {}) for policy in POLICIES)

    async def _act(self, policy: Policy, status: Json) -> None:
        self.seen[policy.name] = status
        acted = self.acted[policy.name]
        if len(acted) < len(policy.acts) and (act := policy.acts[len(acted)]).once(status):
            acted.append(status)
            await self.client.patch(JOBS, policy.name, {"spec": act.change}, self.namespace)


POLICIES_THAT_GO: Final = {each.name for each in POLICIES if "ttlSecondsAfterFinished" in each.spec}


@dataclass(frozen=True)
class Legs:
    plain: Leg
    mirrored: Mapping[str, Leg]
    """By who runs the worker's Jobs."""
    broken: Mapping[str, str]
    """Promises that the record of a leg shows broken."""


@pytest.fixture(scope="module")
def legs(installation: Installation) -> Legs:
    """Side by side."""
    return asyncio.run(_all_legs(installation))


async def _all_legs(installation: Installation) -> Legs:
    mirrored: dict[str, Leg] = {}
    broken: dict[str, str] = {}

    async def through(worker: str, name: str) -> None:
        try:
            async with a_stage(installation, {"workers": {"names": [worker]}}) as stage:
                mirrored[name] = Leg(stage.management, stage.namespace, {QUEUE_LABEL: stage.queue})
                await mirrored[name].run()
        except AssertionError as error:
            broken[name] = str(error)

    ours = _our_job_controller(installation, BUILTIN)
    async with ours, _plain(installation) as plain, asyncio.TaskGroup() as together:
        together.create_task(plain.run())
        together.create_task(through(PLAIN, "kubernetes"))
        together.create_task(through(BUILTIN, "builtin-controller"))
    return Legs(plain, mirrored, broken)


@contextlib.asynccontextmanager
async def _plain(installation: Installation) -> AsyncIterator[Leg]:
    """A namespace on a worker that the dispatcher has nothing to do with."""
    namespace = f"plain-{secrets.token_hex(3)}"
    async with installation.client(PLAIN) as client:
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        try:
            yield Leg(client, namespace)
        finally:
            await client.delete(NAMESPACES, namespace)


@contextlib.asynccontextmanager
async def _our_job_controller(installation: Installation, worker: str) -> AsyncIterator[None]:
    """Kubernetes' own is switched off on that worker, and ours is installed; as before afterwards."""
    there = ("--kubeconfig", str(installation.kubeconfig(worker)))
    await installation.cluster(worker).load(installation.image)
    await _set_controllers(installation, worker, own=False)
    try:
        component = ("--component", "builtin-controller", "--replicas", "1")
        await installation.done("install", *component, "--image", installation.image, "--wait", *there)
        yield
    finally:
        await installation.done("uninstall", "--component", "builtin-controller", "--yes", *there)
        await _set_controllers(installation, worker, own=True)


async def _set_controllers(installation: Installation, worker: str, *, own: bool) -> None:
    """Which controllers kube-controller-manager runs is a flag in a file on the node: its kubelet sees it change."""
    off = ",-job-controller"
    edit = f"s/{off}//" if own else f"/--controllers=/s/{off}//; s/\\(--controllers=.*\\)/\\1{off}/"
    node = installation.node(worker)
    await installation.docker("exec", node, "sed", "-i", edit, _MANIFEST)

    async def follows() -> bool:
        pod = await client.get(PODS, f"kube-controller-manager-{node}", "kube-system")
        command = pod["spec"]["containers"][0]["command"]
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"])
        return ready and any(off in each for each in command) is not own

    async with installation.client(worker) as client:
        await eventually(lambda: _unless_missing(follows()))


async def _unless_missing(asked: Any) -> bool:
    try:
        return bool(await asked)
    except NotFound:
        return False


# --- compared


def comparable(name: str, status: Json) -> Json:
    """Without what cannot be equal: moments, uids, the names of pods."""
    result = {key: value for key, value in status.items() if key not in {"startTime", "completionTime", "conditions"}}
    result["times"] = sorted(key for key in ("startTime", "completionTime") if status.get(key))
    result["conditions"] = {
        each["type"]: (each["status"], each.get("reason"), _message(name, each))
        for each in status.get("conditions") or ()
    }
    return result


def _message(name: str, condition: Json) -> str:
    return re.sub(rf"[-a-z0-9]+/{name}-[-a-z0-9]+", "POD", condition.get("message") or "")


def _forgiven(mirrored: Json, plain: Json) -> Json:
    """Without what is documented: a Job that had to wait for its place says that it does so no longer."""
    waited = ("Suspended", ("False", "JobResumed", "Job resumed"))
    if "Suspended" in plain["conditions"]:
        return mirrored
    return {**mirrored, "conditions": dict(each for each in mirrored["conditions"].items() if each != waited)}


def _true(status: Json) -> set[str]:
    """What holds of it on the way; counters are a matter of the moment."""
    return {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}


RUN_BY: Final = ("kubernetes", "builtin-controller")


@pytest.mark.parametrize("run_by", RUN_BY)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_job_ends_as_on_plain_kubernetes(legs: Legs, policy: Policy, run_by: str) -> None:
    plain, mirrored = legs.plain, legs.mirrored[run_by]
    name = policy.name
    assert is_finished(plain.seen[name]), plain.seen[name]
    wanted, found = comparable(name, plain.seen[name]), comparable(name, mirrored.seen[name])
    assert _forgiven(found, wanted) == wanted
    assert [_true(each) for each in mirrored.acted[name]] == [_true(each) for each in plain.acted[name]]


@pytest.mark.parametrize("run_by", RUN_BY)
def test_all_promises_are_kept_on_the_way(legs: Legs, run_by: str) -> None:
    assert run_by not in legs.broken, legs.broken[run_by]

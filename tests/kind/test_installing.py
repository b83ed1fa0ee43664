"""Installed by command, by Helm and by plain manifests: from nothing to a Job that ran, another version, and nothing.

Nothing means nothing: every object of every kind on all clusters is counted before and after, by its name. What a way
of removing leaves behind because its document says so is removed as the document says.
"""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest_asyncio
import yaml

from clusters.background import BackgroundFleet
from clusters.local.helm import find_helm
from multimirror.api import MANAGED_BY
from tests.kind.installation import SYSTEM, Installation, a_stage, typed
from tests.waiting import eventually

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = DEPLOY / "helm" / "multimirror"
MANIFEST: Final = DEPLOY / "manifests" / "multimirror-policies.yaml"
RELEASED: Final = "multimirror:0.1.0"
"""The image that plain manifests name."""
NEXT: Final = "multimirror:next"
_NOT_COUNTED: Final = {"events", "events.events.k8s.io", "componentstatuses"}
"""They come and go by themselves, or are no objects."""


_STAYS: Final = (
    ("Namespace", "<none>", SYSTEM),
    ("ServiceAccount", SYSTEM, "default"),
    ("ConfigMap", SYSTEM, "kube-root-ca.crt"),
)


@dataclasses.dataclass
class Bare(Installation):
    """Clusters on which nothing of ours is installed, and an image under more than one name."""

    async def name_image(self, *names: str) -> None:
        """On the management cluster's node only: this host's Docker has one name for it."""
        for name in names:
            ctr = ("ctr", "--namespace=k8s.io", "images", "tag", "--force")
            there, wanted = (f"docker.io/library/{each}" for each in (self.image, name))
            await self.docker("exec", self.node("management"), *ctr, there, wanted)

    async def helm(self, *arguments: str) -> str:
        where = ("--kubeconfig", str(self.kubeconfig()), "--namespace", SYSTEM)
        answer = await typed(str(find_helm()), *where, *arguments)
        assert answer.code == 0, f"helm {' '.join(arguments)}: {answer.out}\n{answer.err}"
        return answer.out

    async def remove(self) -> None:
        """Whatever way it was installed: our command leaves a release of Helm's alone."""
        await self.helm("uninstall", "multimirror", "--ignore-not-found", "--wait")
        await super().remove()

    async def everything(self) -> set[str]:
        """All objects of all clusters: cluster, kind, namespace and name."""
        return {each for name in ("management", *self.workers) for each in await self._objects(name)}

    async def _objects(self, cluster: str) -> list[str]:
        kinds = (await self.kubectl_done("api-resources", "--verbs=list", "-o", "name", on=cluster)).out.split()
        counted = ",".join(sorted(set(kinds) - _NOT_COUNTED))
        columns = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"
        shown = await self.kubectl_done("get", counted, "-A", "--no-headers", "-o", columns, on=cluster)
        return [" ".join((cluster, *line.split())) for line in shown.out.splitlines() if line.strip()]

    async def nothing_but(self, before: set[str]) -> None:
        """What is deleted takes a moment to go; what was there before must still be there.

        The namespace on a worker stays, empty: others may have things in it."""
        stays = {" ".join((worker, *each)) for worker in self.workers for each in _STAYS}
        await eventually(self.everything, lambda now: not now - before - stays)
        assert not before - await self.everything()

    async def leave_all(self) -> None:
        for worker in self.workers:
            await self.done("leave", worker, "--cleanup", "--kubeconfig", str(self.kubeconfig(worker)))

    async def runs_jobs(self, image: str, replicas: int) -> None:
        """Replicas of that image, all ready; a Job runs on a worker, its log is seen, and the doctor is content."""
        form = "{.spec.template.spec.containers[0].image} {.status.readyReplicas} {.status.updatedReplicas}"
        shown = await self.kubectl_done("-n", SYSTEM, "get", "deployment/multimirror", "-o", f"jsonpath={form}")
        assert shown.out.split() == [image, str(replicas), str(replicas)]
        async with a_stage(self) as stage:
            await stage.create(stage.a_job("hello", "echo", "hello from a worker"))
            assert (await stage.ended("hello"))["succeeded"] == 1
            assert (await self.done("logs", "job/hello", "-n", stage.namespace)).out == "hello from a worker\n"
            examined = await self.done("doctor", "-o", "json")
            assert {each["level"] for each in examined.json} == {"ok"}, examined.out


@pytest_asyncio.fixture
async def bare(kind_fleet: BackgroundFleet, image: str) -> AsyncIterator[Bare]:
    made = Bare(kind_fleet, image)
    await made.name_image(RELEASED, NEXT)
    await made.remove()  # a fleet that was kept has it from the last run
    yield made
    await made.remove()


async def test_by_command_with_the_webhook(bare: Bare) -> None:
    before = await bare.everything()

    await bare.install("--replicas", "1", "--admission", "webhook")
    await bare.runs_jobs(bare.image, 1)
    await _webhook_speaks(bare)

    await bare.done("install", "--image", NEXT, "--replicas", "2", "--admission", "webhook", "--wait")
    await bare.runs_jobs(NEXT, 2)

    await bare.leave_all()
    await bare.done("uninstall", "--crds", "--delete-namespace")
    await bare.nothing_but(before)


async def _webhook_speaks(bare: Bare) -> None:
    """The API server asks it, by TLS, through its Service; nothing else has changed or refused the Job."""
    policies = await bare.kubectl_done("get", "mutatingadmissionpolicies", "-o", "name")
    assert policies.out == ""
    async with a_stage(bare) as stage:
        job = stage.a_job("asked", "true")
        made = await bare.kubectl_done("create", "--dry-run=server", "-o", "yaml", "-f", "-", given=yaml.safe_dump(job))
        spec = yaml.safe_load(made.out)["spec"]
        assert (spec["managedBy"], spec["suspend"]) == (MANAGED_BY, True)
        job["metadata"]["labels"]["multimirror.dev/queue"] = "nowhere"
        refused = await bare.kubectl("create", "-f", "-", given=yaml.safe_dump(job))
        assert refused.code == 1
        assert "there is no MirrorQueue 'nowhere'" in refused.err
        assert stage.queue in refused.err, "it says which queues would do"


async def test_by_helm(bare: Bare) -> None:
    before = await bare.everything()
    repository, _, tag = bare.image.partition(":")
    values = ("--set", f"image.repository={repository}", "--wait", "--timeout", "5m")

    image, replicas = f"image.tag={tag}", "dispatcher.replicas=1"
    await bare.helm(
        "install", "multimirror", str(CHART), "--create-namespace", *values, "--set", image, "--set", replicas
    )
    await bare.join_all()
    await bare.runs_jobs(bare.image, 1)

    await bare.helm("upgrade", "multimirror", str(CHART), *values, "--set", "image.tag=next")
    await bare.runs_jobs(NEXT, 2)

    await bare.leave_all()
    await bare.done("uninstall")
    await bare.helm("uninstall", "multimirror", "--wait")
    kinds = ("mirrorqueues.multimirror.dev", "workerclusters.multimirror.dev", "cohorts.multimirror.dev")
    await bare.kubectl_done("delete", "crd", *kinds)
    await bare.kubectl_done("delete", "namespace", SYSTEM)
    await bare.nothing_but(before)


async def test_by_plain_manifests(bare: Bare, tmp_path: Path) -> None:
    before = await bare.everything()

    await bare.kubectl_done("apply", "--server-side", "-f", str(MANIFEST))
    await bare.rolled_out()
    await bare.join_all()
    await bare.runs_jobs(RELEASED, 2)

    changed = tmp_path / "next.yaml"
    changed.write_text(MANIFEST.read_text().replace(RELEASED, NEXT).replace("replicas: 2", "replicas: 1"))
    await bare.kubectl_done("apply", "--server-side", "-f", str(changed))
    await bare.rolled_out()
    await bare.runs_jobs(NEXT, 1)

    await bare.leave_all()
    await bare.done("uninstall")
    await bare.kubectl_done("delete", "--ignore-not-found", "-f", str(MANIFEST))
    await bare.nothing_but(before)

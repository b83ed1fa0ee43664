"""`multimirror uninstall`: the controller goes, and no Job is left stuck.

The order is the point of it:

1. Jobs that are not finished stop everything, unless they are to be waited for (drain) or ended (force);
2. admission goes, so that nobody's Job is held up by a webhook that does not answer. No account of ours may register
   it again;
3. drain: wait for the Jobs, while the dispatcher still works;
4. the Deployments go, and with them whoever would write to Jobs and workers;
5. force: the Jobs are failed, with a reason that says why;
6. our copies on the workers go; what cannot be reached is told, with the command that does it later;
7. the rest goes; the CRDs (and all objects of our kinds) and the namespace only when that is asked for.

Every step may be repeated. Objects that are not ours are not touched; what belongs to a Helm release is left to helm.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from multimirror.api import ORIGIN_LABEL
from multimirror.batch import Json
from multimirror.cli.admission import SERVICE
from multimirror.cli.apply import ObjectChange, find, remove, removed
from multimirror.cli.copies import remove_copies
from multimirror.cli.dispatcher_lease import LEASE
from multimirror.cli.errors import CommandError
from multimirror.cli.installation import unfinished
from multimirror.cli.installation.authority import authority
from multimirror.cli.installation.install import helm_release, ours
from multimirror.cli.installation.objects import Component, display_name, everything
from multimirror.cli.workers import worker_connection, worker_names
from multimirror.kube import Client, KubeError, Resource
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import LEASES, SECRETS
from multimirror.workers import identity_of
from multimirror.workers.copy_key import COPY_KEY_NAME

_ADMISSION: Final = (
    "MutatingWebhookConfiguration",
    "MutatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
)
_EVERY: Final = 5.0  # seconds between two words about how many are left
_BUILTIN: Final = (None, "kubernetes.io/job-controller")
_MADE_AT_RUNTIME: Final = ((SECRETS, SERVICE), (SECRETS, COPY_KEY_NAME), (LEASES, LEASE))
"""The first Secret is of versions before there was an authority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UninstallOptions:
    component: Component
    namespace: str
    managed_by: str
    drain: bool = False
    force: bool = False
    crds: bool = False
    delete_namespace: bool = False
    dry_run: bool = False
    timeout: float = 600.0


@dataclass(slots=True)
class Uninstallation:
    client: Client
    options: UninstallOptions
    each: Callable[[ObjectChange], None]
    say: Callable[[str], None]
    warn: Callable[[str], None]

    async def run(self) -> None:
        if self.options.component == "registration":
            await self._registration()
            return
        await self._no_jobs()
        all_of_it = everything(self.options.component, self.options.namespace)
        everything_ours = [obj for obj in all_of_it if await self._is_ours(obj)]
        deployments = [obj for obj in everything_ours if obj["kind"] == "Deployment"]
        release = helm_release(await find(self.client, deployments[0])) if deployments else None
        for obj in everything_ours:
            if obj["kind"] in _ADMISSION:
                await self._remove(obj)
        if all(obj["kind"] == "Namespace" for obj in everything_ours):
            self.say(f"nothing of multimirror is in namespace {self.options.namespace}")
        if self.options.drain and not self.options.dry_run:
            await self._drain()
        await self._no_jobs()  # one may have come in while admission was still there
        for deployment in deployments if release is None else ():
            await self._remove(deployment, wait=True)
        if self.options.component == "dispatcher":
            if self.options.force:
                await self._end()
            await self._copies()
        if release is not None:
            self.say(f"next: `helm uninstall {release} --namespace {self.options.namespace}` removes the rest")
            return
        await self._rest(everything_ours)
        if self.options.component == "dispatcher" and (crons := await unfinished.cron_jobs(self.client)):
            self.warn(f"from now on the Jobs of these CronJobs run on this cluster: {', '.join(crons)}")

    async def _registration(self) -> None:
        """Of a webhook that runs elsewhere; there is nothing else of it."""
        for obj in everything("registration", self.options.namespace):
            if obj["kind"] in _ADMISSION and await self._is_ours(obj):
                await self._remove(obj)
        await self._remove_authority()

    async def _no_jobs(self) -> None:
        """Refuse when there are any that would be left alone."""
        if self.options.force or self.options.drain:
            return
        jobs = await unfinished.jobs(self.client, self._managers())
        if not jobs:
            return
        remedy = "Wait for them with --drain, or end them with --force; or delete them."
        if self.options.component == "builtin-controller":
            remedy = (
                "Wait for them with --drain; with --force they stay as they are until a Job controller serves them."
            )
        count = f"{len(jobs)} Jobs are" if len(jobs) > 1 else "1 Job is"
        raise CommandError(f"{count} not finished: {unfinished.summary(jobs)}", remedy)

    async def _is_ours(self, obj: Json) -> bool:
        found = await find(self.client, obj)
        return found is not None and (ours(found) or obj["kind"] == "Namespace")

    async def _remove(self, obj: Json, *, wait: bool = False) -> None:
        propagation: Literal["Background", "Foreground"] = "Foreground" if wait else "Background"
        change = await remove(self.client, obj, propagation=propagation, dry_run=self.options.dry_run)
        if change is None:
            return
        if wait and not self.options.dry_run:
            try:
                async with asyncio.timeout(self.options.timeout):
                    await removed(self.client, obj)
            except TimeoutError:
                remedy = "Something holds it: see its finalizers, or its pods. Then run this again."
                problem = f"{display_name(obj)} is still there after {self.options.timeout:g} s"
                raise CommandError(problem, remedy) from None
        self.each(change)

    async def _drain(self) -> None:
        said = -_EVERY

        def tell(left: int) -> None:
            nonlocal said
            if not left:
                self.say("all Jobs are finished")
            elif (now := time.monotonic()) >= said + _EVERY:
                said = now
                self.say(f"waiting: {left} Jobs are not finished")

        try:
            async with asyncio.timeout(self.options.timeout):
                await unfinished.all_finished(self.client, self._managers(), tell)
        except TimeoutError:
            raise CommandError(
                f"there are still unfinished Jobs after {self.options.timeout:g} s",
                "Admission is off, all else is as it was. Run this again, with more --timeout or with --force; "
                "or `multimirror install` to go back.",
            ) from None

    def _managers(self) -> tuple[str | None, ...]:
        return (self.options.managed_by,) if self.options.component == "dispatcher" else _BUILTIN

    async def _end(self) -> None:
        for job in await unfinished.jobs(self.client, self._managers()):
            name = f"job.batch/{job['metadata']['name']} in {job['metadata']['namespace']}"
            if self.options.dry_run:
                self.say(f"{name} would be failed")
            elif await unfinished.fail(self.client, job):
                self.say(f"{name} failed, since nobody looks after it any more")

    async def _copies(self) -> None:
        names = await worker_names(self.client)
        if not names or self.options.dry_run:
            return
        origin = await identity_of(self.client)
        for name in names:
            try:
                count = await remove_copies(await worker_connection(self.client, name, self.options.namespace))
            except (KubeError, CommandError) as error:
                why = error.message if isinstance(error, CommandError) else str(error)
                self.warn(f"worker {name} may still hold copies ({why}); see what they are, and remove them there:")
                self.warn(f"  kubectl delete jobs --all-namespaces -l {ORIGIN_LABEL}={origin}")
            else:
                if count:
                    self.say(f"{count} copies removed from worker {name}")

    async def _rest(self, objects: list[Json]) -> None:
        if self.options.component == "dispatcher":
            await self._remove_authority()
            for resource, name in _MADE_AT_RUNTIME:
                await self._remove_own(resource, name)
        for obj in objects:
            if obj["kind"] in {"Namespace", "CustomResourceDefinition", "Deployment", *_ADMISSION}:
                continue
            await self._remove(obj)
        for obj in objects:
            if obj["kind"] == "CustomResourceDefinition" and self.options.crds:
                await self._remove(obj, wait=True)
            if obj["kind"] == "Namespace" and self.options.delete_namespace:
                await self._remove(obj, wait=True)

    async def _remove_authority(self) -> None:
        """If it is ours: somebody may have brought his own."""
        if await self._is_ours(secret := authority(self.options.namespace)):
            await self._remove(secret)

    async def _remove_own(self, resource: Resource, name: str) -> None:
        if self.options.dry_run:
            return
        try:
            await self.client.delete(resource, name, self.options.namespace)
        except NotFound:
            return
        self.say(f"{resource.kind.lower()}/{name} deleted")

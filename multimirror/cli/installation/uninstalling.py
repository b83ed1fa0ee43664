"""`multimirror uninstall`: the controller goes, and no Job is left stuck.

The order is the point of it:

1. Jobs that are not finished stop everything, unless they are to be waited for (drain) or ended (force);
2. admission goes, so that nobody's Job is held up by a webhook that does not answer. The dispatcher has no right to
   register it again;
3. drain: wait for the Jobs, while the dispatcher still works;
4. the Deployment goes, and with it whoever would write to Jobs and workers;
5. force: the Jobs are failed, with a reason that says why;
6. our copies on the workers go; what cannot be reached is told, with the command that does it later;
7. the rest goes; the CRDs (and all WorkerClusters and MirrorQueues) and the namespace only when that is asked for.

Every step may be repeated. Objects that are not ours are not touched; what belongs to a Helm release is left to helm.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from multimirror.api import ORIGIN_LABEL
from multimirror.batch import Json
from multimirror.cli.admitting import SECRET
from multimirror.cli.dispatchers import LEASE
from multimirror.cli.errors import CommandError
from multimirror.cli.installation import leftovers
from multimirror.cli.installation.applying import Outcome, find, gone, remove
from multimirror.cli.installation.installing import helm_release, ours
from multimirror.cli.installation.wanting import Component, called, everything
from multimirror.kube import Client, KubeError, Resource
from multimirror.kube.errors import NotFound

_ADMISSION: Final = (
    "MutatingWebhookConfiguration",
    "MutatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
)
_EVERY: Final = 5.0  # seconds between two words about how many are left
_BUILTIN: Final = (None, "kubernetes.io/job-controller")
_MADE_BY_US: Final = (
    (Resource("", "v1", "secrets", "Secret"), SECRET),
    (Resource("coordination.k8s.io", "v1", "leases", "Lease"), LEASE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The flags."""

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
    """One run of it."""

    client: Client
    wish: Wish
    each: Callable[[Outcome], None]
    say: Callable[[str], None]
    warn: Callable[[str], None]

    async def run(self) -> None:
        """All steps."""
        await self._no_jobs()
        all_of_it = everything(self.wish.component, self.wish.namespace)
        everything_ours = [obj for obj in all_of_it if await self._is_ours(obj)]
        deployment = next((obj for obj in everything_ours if obj["kind"] == "Deployment"), None)
        release = helm_release(await find(self.client, deployment)) if deployment is not None else None
        for obj in everything_ours:
            if obj["kind"] in _ADMISSION:
                await self._remove(obj)
        if all(obj["kind"] == "Namespace" for obj in everything_ours):
            self.say(f"nothing of multimirror is in namespace {self.wish.namespace}")
        if self.wish.drain and not self.wish.dry_run:
            await self._drain()
        await self._no_jobs()  # one may have come in while admission was still there
        if deployment is not None and release is None:
            await self._remove(deployment, wait=True)
        if self.wish.component == "dispatcher":
            if self.wish.force:
                await self._end()
            await self._copies()
        if release is not None:
            self.say(f"next: `helm uninstall {release} --namespace {self.wish.namespace}` removes the rest")
            return
        await self._rest(everything_ours)
        if self.wish.component == "dispatcher" and (crons := await leftovers.cron_jobs(self.client)):
            self.warn(f"from now on the Jobs of these CronJobs run on this cluster: {', '.join(crons)}")

    async def _no_jobs(self) -> None:
        """Refuse when there are any that would be left alone."""
        if self.wish.force or self.wish.drain:
            return
        jobs = await leftovers.unfinished(self.client, self._managers())
        if not jobs:
            return
        remedy = "Wait for them with --drain, or end them with --force; or delete them."
        if self.wish.component == "builtin-controller":
            remedy = (
                "Wait for them with --drain; with --force they stay as they are until a Job controller serves them."
            )
        count = f"{len(jobs)} Jobs are" if len(jobs) > 1 else "1 Job is"
        raise CommandError(f"{count} not finished: {leftovers.described(jobs)}", remedy)

    async def _is_ours(self, obj: Json) -> bool:
        found = await find(self.client, obj)
        return found is not None and (ours(found) or obj["kind"] == "Namespace")

    async def _remove(self, obj: Json, *, wait: bool = False) -> None:
        outcome = await remove(self.client, obj, dry_run=self.wish.dry_run)
        if outcome is None:
            return
        if wait and not self.wish.dry_run:
            try:
                async with asyncio.timeout(self.wish.timeout):
                    await gone(self.client, obj)
            except TimeoutError:
                remedy = "Something holds it: see its finalizers, or its pods. Then run this again."
                raise CommandError(f"{called(obj)} is still there after {self.wish.timeout:g} s", remedy) from None
        self.each(outcome)

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
            async with asyncio.timeout(self.wish.timeout):
                await leftovers.drained(self.client, self._managers(), tell)
        except TimeoutError:
            raise CommandError(
                f"there are still unfinished Jobs after {self.wish.timeout:g} s",
                "Admission is off, all else is as it was. Run this again, with more --timeout or with --force; "
                "or `multimirror install` to go back.",
            ) from None

    def _managers(self) -> tuple[str | None, ...]:
        return (self.wish.managed_by,) if self.wish.component == "dispatcher" else _BUILTIN

    async def _end(self) -> None:
        for job in await leftovers.unfinished(self.client, self._managers()):
            name = f"job.batch/{job['metadata']['name']} in {job['metadata']['namespace']}"
            if self.wish.dry_run:
                self.say(f"{name} would be failed")
            elif await leftovers.end(self.client, job):
                self.say(f"{name} failed, since nobody looks after it any more")

    async def _copies(self) -> None:
        names = await leftovers.workers(self.client)
        if not names or self.wish.dry_run:
            return
        origin = await leftovers.origin_of(self.client)
        for name in names:
            try:
                count = await leftovers.remove_copies(self.client, name, origin, self.wish.namespace)
            except (KubeError, CommandError) as error:
                why = error.message if isinstance(error, CommandError) else str(error)
                self.warn(f"worker {name} may still hold copies ({why}); remove them there:")
                self.warn(f"  kubectl delete jobs --all-namespaces -l {ORIGIN_LABEL}={origin}")
            else:
                if count:
                    self.say(f"{count} copies removed from worker {name}")

    async def _rest(self, objects: list[Json]) -> None:
        for resource, name in _MADE_BY_US if self.wish.component == "dispatcher" else ():
            await self._remove_own(resource, name)
        for obj in objects:
            if obj["kind"] in {"Namespace", "CustomResourceDefinition", "Deployment", *_ADMISSION}:
                continue
            await self._remove(obj)
        for obj in objects:
            if obj["kind"] == "CustomResourceDefinition" and self.wish.crds:
                await self._remove(obj, wait=True)
            if obj["kind"] == "Namespace" and self.wish.delete_namespace:
                await self._remove(obj, wait=True)

    async def _remove_own(self, resource: Resource, name: str) -> None:
        if self.wish.dry_run:
            return
        try:
            await self.client.delete(resource, name, self.wish.namespace)
        except NotFound:
            return
        self.say(f"{resource.kind.lower()}/{name} deleted")

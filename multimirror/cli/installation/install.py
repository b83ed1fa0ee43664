"""`multimirror install`: everything in its place on a cluster, as often as you like.

Idempotent: what is right is left alone, what differs is put right, what other flags had installed and these do not is
removed. Only objects that carry our label are removed. Nothing is rolled back when it fails half-way: run it again.

How Jobs are admitted meanwhile is in admission_change.py: no Job is refused, or missed, because of an installation.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from multimirror.batch import Json
from multimirror.cli.admission import SERVICE
from multimirror.cli.apply import ObjectChange, Operation, apply_and_compare, find, remove
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.installation.admission_change import (
    ANSWERS_IN_A_ROW,
    SETTLE_SECONDS,
    Observed,
    Step,
    answers,
    failing_open,
    steps,
)
from multimirror.cli.installation.authority import authority, with_authority
from multimirror.cli.installation.objects import (
    KINDS,
    PART_OF,
    Admission,
    InstallOptions,
    display_name,
    identity,
    objects,
    superfluous,
)
from multimirror.kube import Client
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import MUTATING_POLICIES, MUTATING_WEBHOOKS

_POLL_SECONDS: Final = 0.25
_UNANSWERED_SECONDS: Final = 5.0
"""That a webhook which replaces nothing is waited for: it fails closed, as it will whenever it is away."""
_REGISTRATION: Final[Json] = {
    "apiVersion": MUTATING_WEBHOOKS.api_version,
    "kind": MUTATING_WEBHOOKS.kind,
    "metadata": {"name": "multimirror"},
}
"""For those who only look for it."""

Tell = Callable[[str], None]


@dataclass(slots=True)
class Report:
    each: Callable[[ObjectChange], None]
    """Hears of every object as it is done."""
    changes: list[ObjectChange] = field(default_factory=list)

    def add(self, change: ObjectChange) -> None:
        self.changes.append(change)
        self.each(change)

    @property
    def warnings(self) -> list[str]:
        """What the server had to say, with the object that it was about."""
        return [f"{display_name(each.obj)}: {text}" for each in self.changes for text in each.warnings]

    def count(self, operation: Operation) -> int:
        return sum(each.operation == operation for each in self.changes)


@dataclass(slots=True, kw_only=True)
class Installation:
    """One run of the command."""

    client: Client
    options: InstallOptions
    report: Report
    tell: Tell
    """Hears how far it is, whenever that changes."""
    warn: Tell
    seconds: float
    """The most that is waited for anything."""

    async def run(self, *, dry_run: bool) -> None:
        await _not_helms(self.client, self.options)
        wanted = await with_authority(self.client, objects(self.options), self.options.namespace, datetime.now(UTC))
        if dry_run or self.options.component != "dispatcher":
            for obj in wanted:
                await self._apply(obj, dry_run=dry_run)
            await self._remove(dry_run=dry_run)
            return
        before = await self._observe()
        registrations = [obj for obj in wanted if obj["kind"] == MUTATING_WEBHOOKS.kind]
        for step in steps(self.options.admission, before):
            if step == "apply":
                for obj in wanted:
                    if obj not in registrations:
                        await self._apply(obj)
            elif step in {"try", "register"}:
                for obj in registrations:
                    await self._apply(obj if step == "register" else failing_open(obj))
            else:
                await self._do(step, before)

    async def _do(self, step: Step, before: Observed) -> None:
        match step:
            case "wait":
                await ready(self.client, [self._webhook()], self.tell, self.seconds)
            case "ask":
                await self._ask(before)
            case "settle":
                self.tell(f"API servers are given {SETTLE_SECONDS:g} s to hear of it")
                await asyncio.sleep(SETTLE_SECONDS)
            case "unregister":
                await self._remove({MUTATING_WEBHOOKS.kind})
            case "remove":
                await self._remove()

    async def wait(self) -> None:
        """Until everything is ready."""
        await ready(self.client, objects(self.options), self.tell, self.seconds)

    async def _observe(self) -> Observed:
        unwanted = [obj for obj in superfluous(self.options) if "AdmissionPolicy" in obj["kind"]]
        return Observed(
            policies=any([await self._ours(obj) is not None for obj in unwanted]),
            registration=await self._ours(_REGISTRATION),
            webhook=await self._ours(self._webhook()) is not None,
        )

    def _webhook(self) -> Json:
        with_it = objects(InstallOptions(namespace=self.options.namespace, admission="webhook"))
        return next(obj for obj in with_it if identity(obj)[::2] == ("Deployment", SERVICE))

    async def _ours(self, obj: Json) -> Json | None:
        found = await find(self.client, obj)
        return found if found is not None and ours(found) else None

    async def _apply(self, obj: Json, *, dry_run: bool = False) -> None:
        if obj["kind"] == MUTATING_WEBHOOKS.kind and not dry_run:
            await _drop_foreign(self.client, obj)
        self.report.add(await apply_and_compare(self.client, obj, dry_run=dry_run))

    async def _remove(self, kinds: set[str] | None = None, *, dry_run: bool = False) -> None:
        """What other flags had installed, if it is ours."""
        unwanted = superfluous(self.options)
        if self.options.component == "dispatcher" and self.options.admission != "webhook":
            unwanted.append(authority(self.options.namespace))
        for obj in unwanted:
            if (kinds is None or obj["kind"] in kinds) and await self._ours(obj) is not None:
                change = await remove(self.client, obj, dry_run=dry_run)
                if change is not None:
                    self.report.add(change)

    async def _ask(self, before: Observed) -> None:
        """Until the webhook answers. Where policies are in force, they stay in charge until it does."""
        try:
            async with asyncio.timeout(self.seconds if before.policies else _UNANSWERED_SECONDS):
                seen = await self._answered()
        except TimeoutError:
            problem = "the webhook's replicas are ready, but the API server gets no answer from them"
            remedy = "Is the way from API servers to port 9443 of these pods open (firewall, networkPolicy)?"
            if not before.policies:
                self.warn(f"{problem}: Jobs that ask for a queue are refused until it does. {remedy}")
                return
            if before.registration is None:
                await remove(self.client, _REGISTRATION)
            raise CommandError(f"{problem}: the policies stay", f"{remedy} Then run this again.") from None
        if not seen:
            await asyncio.sleep(SETTLE_SECONDS)

    async def _answered(self) -> bool:
        """False: somebody else's rules are in the way, and nobody can tell."""
        in_a_row = 0
        while in_a_row < ANSWERS_IN_A_ROW:
            match await answers(self.client, self.options.namespace):
                case True:
                    in_a_row += 1
                case False:
                    in_a_row = 0
                    self.tell("the API server gets no answer from the webhook yet")
                case None:
                    return False
            await asyncio.sleep(_POLL_SECONDS)
        return True


async def choose(client: Client) -> Admission:
    """Policies where the server has them, which need nothing that could be away; else the webhook."""
    try:
        await client.request("GET", MUTATING_POLICIES.path(), {"limit": 1})
    except NotFound:
        return "webhook"
    return "policies"


async def _drop_foreign(client: Client, wanted: Json) -> None:
    """Applying leaves alone what others have put beside our webhooks; under our name that is nobody's place."""
    live = await find(client, wanted)
    ours = {webhook["name"] for webhook in wanted["webhooks"]}
    if live is not None and any(webhook["name"] not in ours for webhook in live.get("webhooks") or ()):
        await client.replace(MUTATING_WEBHOOKS, {**wanted, "metadata": live["metadata"]})


async def ready(client: Client, wanted: Sequence[Json], tell: Tell, seconds: float) -> None:
    """Wait until our kinds are served and every replica answers."""
    try:
        async with asyncio.timeout(seconds):
            for obj in wanted:
                while obj["kind"] in {"CustomResourceDefinition", "Deployment"}:
                    missing = why_not_ready(await find(client, obj))
                    if missing is None:
                        break
                    tell(f"{display_name(obj)}: {missing}")
                    await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        where = next(obj["metadata"]["namespace"] for obj in wanted if obj["kind"] == "Deployment")
        raise CommandError(
            f"not ready after {seconds:g} s",
            f"See `kubectl -n {where} describe pods`, or give it more time with --timeout.",
        ) from None


def why_not_ready(obj: Json | None) -> str | None:
    """What an object still lacks to be of use; None for nothing. Pure."""
    if obj is None:
        return "is not there"
    status = obj.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    if obj["kind"] == "CustomResourceDefinition":
        return None if conditions.get("Established", {}).get("status") == "True" else "is not served yet"
    if status.get("observedGeneration", 0) < obj["metadata"]["generation"]:
        return "has not been looked at yet"
    want, updated = obj["spec"].get("replicas", 1), status.get("updatedReplicas", 0)
    if updated < want:
        return f"{updated} of {want} replicas are new"
    if status.get("replicas", 0) > updated:
        return f"{status['replicas'] - updated} old replicas are on their way out"
    if (available := status.get("availableReplicas", 0)) < want:
        return f"{available} of {want} replicas are available"
    return None


def ours(obj: Json) -> bool:
    """Whether we, or Helm with our chart, made it."""
    return bool((obj["metadata"].get("labels") or {}).get(PART_OF) == "multimirror")


def helm_release(obj: Json | None) -> str | None:
    """The name of the release that an object belongs to."""
    if obj is None or (obj["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") != "Helm":
        return None
    return str((obj["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name", "multimirror"))


async def _not_helms(client: Client, options: InstallOptions) -> None:
    for obj in objects(options):
        if obj["kind"] in {"Deployment", "ClusterRole"}:
            found = await find(client, obj)
            if (release := helm_release(found)) is not None:
                raise CommandError(
                    f"{display_name(obj)} belongs to the Helm release {release}",
                    f"Upgrade it with `helm upgrade {release}`, or remove it with helm first.",
                    code=Exit.REFUSED,
                )
            if found is not None and not ours(found):
                raise CommandError(
                    f"there is a {KINDS[obj['kind']].kind} {obj['metadata']['name']} that is not multimirror's",
                    "Rename or remove it, or install into another --namespace.",
                    code=Exit.REFUSED,
                )

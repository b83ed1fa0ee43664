"""`multimirror install`: everything in its place on a cluster, as often as you like.

Idempotent: what is right is left alone, what differs is put right, what other flags had installed and these do not is
removed (a webhook's registration above all, since Jobs cannot be created while it points at nobody). Only objects that
carry our label are removed. Nothing is rolled back when it fails half-way: run it again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from multimirror.batch import Json
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.installation.applying import Outcome, apply, find, remove
from multimirror.cli.installation.wanting import KINDS, PART_OF, Wanted, called, objects, superfluous
from multimirror.kube import Client

Tell = Callable[[str], None]


@dataclass(slots=True)
class Report:
    """What became of every object."""

    each: Callable[[Outcome], None]
    """Hears of every object as it is done."""
    outcomes: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """One more is done."""
        self.outcomes.append(outcome)
        self.each(outcome)

    @property
    def warnings(self) -> list[str]:
        """What the server had to say, with the object that it was about."""
        return [f"{called(each.obj)}: {text}" for each in self.outcomes for text in each.warnings]

    def count(self, done: str) -> int:
        """How many objects."""
        return sum(each.done == done for each in self.outcomes)


async def install(client: Client, wanted: Wanted, report: Report, *, dry_run: bool) -> None:
    """Apply everything."""
    await _not_helms(client, wanted)
    for obj in objects(wanted):
        report.add(await apply(client, obj, dry_run=dry_run))


async def prune(client: Client, wanted: Wanted, report: Report, *, dry_run: bool) -> list[str]:
    """Remove what other flags had installed. Gives the names of what has to stay until the webhook is registered.

    Policies that were replaced by the webhook go only when it answers: no Job that asks for a queue may slip through.
    """
    kept = []
    for obj in superfluous(wanted):
        found = await find(client, obj)
        if found is None or not ours(found):
            continue
        if wanted.admission == "webhook" and "AdmissionPolicy" in obj["kind"] and not await _registered(client, wanted):
            kept.append(called(obj))
        elif outcome := await remove(client, obj, dry_run=dry_run):
            report.add(outcome)
    return kept


async def _registered(client: Client, wanted: Wanted) -> bool:
    webhook = next(obj for obj in objects(wanted) if obj["kind"] == "MutatingWebhookConfiguration")
    return bool((await find(client, webhook) or {}).get("webhooks"))


async def ready(client: Client, wanted: Wanted, tell: Tell) -> None:
    """Wait until our kinds are served and every replica answers; `tell` hears how far it is whenever that changes."""
    said = ""
    for obj in objects(wanted):
        if obj["kind"] not in {"CustomResourceDefinition", "Deployment"}:
            continue
        while (missing := lacking(await find(client, obj))) is not None:
            if missing != said:
                tell(f"{called(obj)}: {missing}")
                said = missing
            await asyncio.sleep(0.25)


def lacking(obj: Json | None) -> str | None:
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


async def _not_helms(client: Client, wanted: Wanted) -> None:
    for obj in objects(wanted):
        if obj["kind"] in {"Deployment", "ClusterRole"}:
            found = await find(client, obj)
            if (release := helm_release(found)) is not None:
                raise CommandError(
                    f"{called(obj)} belongs to the Helm release {release}",
                    f"Upgrade it with `helm upgrade {release}`, or remove it with helm first.",
                    code=Exit.REFUSED,
                )
            if found is not None and not ours(found):
                raise CommandError(
                    f"there is a {KINDS[obj['kind']].kind} {obj['metadata']['name']} that is not multimirror's",
                    "Rename or remove it, or install into another --namespace.",
                    code=Exit.REFUSED,
                )

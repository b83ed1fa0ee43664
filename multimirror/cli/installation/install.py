"""`multimirror install`: everything in its place on a cluster, as often as you like.

Idempotent: what is right is left alone, what differs is put right, what other flags had installed and these do not is
removed (a webhook's registration above all, since Jobs cannot be created while it points at nobody). Only objects that
carry our label are removed. Nothing is rolled back when it fails half-way: run it again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from multimirror.batch import Json
from multimirror.cli.admission import SERVICE
from multimirror.cli.apply import ObjectChange, Operation, apply_and_compare, find, remove
from multimirror.cli.errors import CommandError, Exit
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


async def install(client: Client, options: InstallOptions, report: Report, *, dry_run: bool) -> None:
    await _not_helms(client, options)
    for obj in await with_authority(client, objects(options), options.namespace, datetime.now(UTC)):
        if obj["kind"] == MUTATING_WEBHOOKS.kind and not dry_run:
            await _drop_foreign(client, obj)
        report.add(await apply_and_compare(client, obj, dry_run=dry_run))


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


async def prune(client: Client, options: InstallOptions, report: Report, *, dry_run: bool) -> list[str]:
    """Remove what other flags had installed. Gives the names of what has to stay until the webhook answers.

    Policies that were replaced by the webhook go only when it answers: no Job that asks for a queue may slip through.
    """
    kept = []
    more = [] if options.admission == "webhook" or options.component != "dispatcher" else [authority(options.namespace)]
    for obj in [*superfluous(options), *more]:
        found = await find(client, obj)
        if found is None or not ours(found):
            continue
        is_policy = "AdmissionPolicy" in obj["kind"]
        if options.admission == "webhook" and is_policy and not await _answers(client, options):
            kept.append(display_name(obj))
        elif change := await remove(client, obj, dry_run=dry_run):
            report.add(change)
    return kept


async def _answers(client: Client, options: InstallOptions) -> bool:
    deployment = next(obj for obj in objects(options) if identity(obj)[::2] == ("Deployment", SERVICE))
    return why_not_ready(await find(client, deployment)) is None


async def ready(client: Client, options: InstallOptions, tell: Tell) -> None:
    """Wait until our kinds are served and every replica answers; `tell` hears how far it is whenever that changes."""
    said = ""
    for obj in objects(options):
        if obj["kind"] not in {"CustomResourceDefinition", "Deployment"}:
            continue
        while (missing := why_not_ready(await find(client, obj))) is not None:
            if missing != said:
                tell(f"{display_name(obj)}: {missing}")
                said = missing
            await asyncio.sleep(0.25)


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

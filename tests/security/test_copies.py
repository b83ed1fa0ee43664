"""Whoever may write Jobs on a worker puts our labels on one of theirs: nothing comes of it (row 1, I5).

The policies of a worker refuse such labels (test_policies.py). Here somebody got past them, as on a worker where they
are not installed, and the dispatcher has to know by itself what it has made.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from multimirror.api import ATTEMPT_ANNOTATION, CLUSTER_ANNOTATION, COPY_UID_ANNOTATION, ORIGIN_UID_LABEL
from multimirror.batch import is_finished
from multimirror.kube import Client
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import EVENTS, JOBS, NAMESPACES
from tests.security.installation import DispatcherProcess, Installation, Tenant, a_job, unique
from tests.waiting import eventually

Json = dict[str, Any]
FINALIZER = "attacker.example/stays"
TIME = "2026-01-01T00:00:00Z"
MOMENT = 3.0
"""Seconds in which a dispatcher that fell for it would long have done what it was lured into."""
COMPLETE = {
    "startTime": TIME,
    "completionTime": TIME,
    "succeeded": 1,
    "ready": 0,
    "terminating": 0,
    "uncountedTerminatedPods": {},
    "conditions": [
        {"type": kind, "status": "True", "lastProbeTime": TIME, "lastTransitionTime": TIME, "reason": "Mine"}
        for kind in ("SuccessCriteriaMet", "Complete")
    ],
}


def annotations(job: Json) -> Json:
    found: Json = job["metadata"].get("annotations") or {}
    return found


async def running(installation: Installation, tenant: Tenant, queue: str) -> tuple[Json, str, Json]:
    """A victim's Job that runs: the Job, its worker and its copy."""
    name = unique("victim")
    await tenant.create(a_job(name, queue))
    job = await tenant.until(name, lambda found: (found.get("status") or {}).get("active"))
    worker, copy = await installation.copy_of(job)
    assert annotations(job)[COPY_UID_ANNOTATION] == copy["metadata"]["uid"], "written along with its first status"
    return job, worker, copy


async def forge(
    client: Client, labels: Mapping[str, str], name: str, namespace: str, *, status: Json | None = None
) -> Json:
    """A Job of the attacker's that says that it is a copy, has ended, and does not go when it is deleted.

    Its manager is somebody else, so that no Job controller gives it another status.
    """
    forged = a_job(name, None, managedBy="attacker.example/nobody")
    forged["metadata"] |= {"labels": dict(labels), "finalizers": [FINALIZER]}
    await client.create(JOBS, forged, namespace)
    return await client.patch(JOBS, name, {"status": status or COMPLETE}, namespace, subresource="status")


async def remove(client: Client, forged: Json) -> None:
    name, namespace = forged["metadata"]["name"], forged["metadata"]["namespace"]
    await client.patch(JOBS, name, {"metadata": {"finalizers": None}}, namespace)
    try:
        await client.delete(JOBS, name, namespace)
        await client.patch(JOBS, name, {"metadata": {"finalizers": None}}, namespace)
    except NotFound:
        pass


def same(found: Json, forged: Json) -> bool:
    return bool(found["metadata"]["resourceVersion"] == forged["metadata"]["resourceVersion"])


async def test_a_finished_job_with_the_labels_of_a_copy_ends_nobodys_job_and_deletes_nobodys_copy(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    queue, tenant = await installation.queue("copies"), await installation.tenant("copies")
    job, worker, copy = await running(installation, tenant, queue)
    name, namespace = job["metadata"]["name"], tenant.namespace
    elsewhere, labels = unique("attacker"), copy["metadata"]["labels"]
    forgeries = []
    for where in installation.workers:
        client = await installation.forger(where)
        with_namespace = installation.workers[where]
        await with_namespace.create(NAMESPACES, {"metadata": {"name": elsewhere}})
        for place, forged_name in ((elsewhere, name), (elsewhere, "innocent"), (namespace, "innocent")):
            forgeries.append((client, await forge(client, labels, forged_name, place)))
    await eventually(lambda: dispatcher.metric("multimirror_foreign_objects{"), lambda count: count >= 6)
    await asyncio.sleep(MOMENT)
    job = await tenant.job(name)
    assert not is_finished(job["status"])
    assert annotations(job)[ATTEMPT_ANNOTATION] == "1"
    there = await installation.workers[worker].get(JOBS, name, namespace)
    assert there["metadata"]["uid"] == copy["metadata"]["uid"]
    assert "deletionTimestamp" not in there["metadata"]
    for client, forged in forgeries:
        found = await client.get(JOBS, forged["metadata"]["name"], forged["metadata"]["namespace"])
        assert same(found, forged), "nobody touched it"
    code, out, err = await installation.command("doctor")
    assert f"{elsewhere}/innocent" in out + err, "named by doctor"
    assert code in {0, 1}
    for client, forged in forgeries:
        await remove(client, forged)
    await tenant.client.delete(JOBS, name, namespace, propagation="Background")


async def test_a_name_that_somebody_took_before_us_sends_the_job_elsewhere(
    installation: Installation, dispatcher: DispatcherProcess
) -> None:
    queue, tenant = await installation.queue("taken"), await installation.tenant("taken")
    victim, worker, copy = await running(installation, tenant, queue)
    labels = {**copy["metadata"]["labels"]}
    job = a_job("squatted", queue, suspend=True)
    job["metadata"]["annotations"] = {"multimirror.dev/hold": "true"}
    made = await tenant.create(job)
    labels[ORIGIN_UID_LABEL] = made["metadata"]["uid"]
    client = await installation.forger(worker)
    forged = await forge(client, labels, "squatted", tenant.namespace)
    await tenant.patch("squatted", metadata={"annotations": {"multimirror.dev/clusters": worker}})
    await tenant.patch("squatted", metadata={"annotations": {"multimirror.dev/hold": None}})

    async def words() -> str:
        events = await installation.admin.list(EVENTS, tenant.namespace)
        about = [each for each in events.items if each["involvedObject"]["name"] == "squatted"]
        return " ".join(str(each.get("message", "")) for each in about)

    await eventually(words, lambda text: "not ours is there" in text)
    found = await tenant.job("squatted")
    assert not is_finished(found.get("status") or {})
    other = next(each for each in installation.workers if each != worker)
    await tenant.patch("squatted", metadata={"annotations": {"multimirror.dev/clusters": f"{worker},{other}"}})
    found = await tenant.until("squatted", lambda each: (each.get("status") or {}).get("active"))
    assert annotations(found)[CLUSTER_ANNOTATION] == other
    assert same(await client.get(JOBS, "squatted", tenant.namespace), forged)
    assert dispatcher.alive
    await remove(client, forged)
    for name in ("squatted", victim["metadata"]["name"]):
        await tenant.client.delete(JOBS, name, tenant.namespace, propagation="Background")


async def test_what_takes_the_place_of_a_copy_is_not_taken_for_it_even_after_a_restart(
    installation: Installation,
) -> None:
    """Somebody deletes a copy of ours and makes a finished Job under its name, with all of its labels."""
    queue, tenant = await installation.queue("replaced"), await installation.tenant("replaced")
    async with installation.dispatcher():
        job, worker, copy = await running(installation, tenant, queue)
    name, client = job["metadata"]["name"], await installation.forger(worker)
    await client.delete(JOBS, name, tenant.namespace, propagation="Background")
    await eventually(lambda: _gone(client, name, tenant.namespace))
    forged = await forge(client, copy["metadata"]["labels"], name, tenant.namespace)
    async with installation.dispatcher() as dispatcher:
        other = next(each for each in installation.workers if each != worker)
        job = await tenant.until(
            name,
            lambda found: annotations(found).get(CLUSTER_ANNOTATION) == other and found["status"].get("active"),
        )
        assert not is_finished(job["status"])
        assert int(annotations(job)[ATTEMPT_ANNOTATION]) >= 2
        assert same(await client.get(JOBS, name, tenant.namespace), forged)
        assert await dispatcher.metric(f'multimirror_foreign_objects{{worker="{worker}"}}') >= 1
        await remove(client, forged)
        await tenant.client.delete(JOBS, name, tenant.namespace, propagation="Background")
        await eventually(lambda: _gone(installation.workers[other], name, tenant.namespace))


async def test_an_orphan_that_we_signed_goes_after_a_restart_and_a_forged_one_stays(
    installation: Installation,
) -> None:
    queue, tenant = await installation.queue("orphans"), await installation.tenant("orphans")
    async with installation.dispatcher():
        job, worker, copy = await running(installation, tenant, queue)
    name, client = job["metadata"]["name"], await installation.forger(worker)
    forged = await forge(client, copy["metadata"]["labels"], "innocent", tenant.namespace)
    await tenant.client.delete(JOBS, name, tenant.namespace, propagation="Background")
    async with installation.dispatcher():
        await eventually(lambda: _gone(client, name, tenant.namespace))
        await asyncio.sleep(MOMENT)
    assert same(await client.get(JOBS, "innocent", tenant.namespace), forged)
    await remove(client, forged)


async def _gone(client: Client, name: str, namespace: str) -> bool:
    try:
        await client.get(JOBS, name, namespace)
    except NotFound:
        return True
    return False

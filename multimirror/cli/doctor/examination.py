"""The whole examination, in the order in which it is told: management cluster, workers, queues, namespaces, Jobs."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

from multimirror.api import COHORTS, DEFAULT_QUEUE_LABEL, MIRROR_QUEUES, QUEUE_LABEL, WORKER_CLUSTERS
from multimirror.batch import Json
from multimirror.cli import rows
from multimirror.cli.doctor.checks import check_cohorts, check_namespaces, check_queues
from multimirror.cli.doctor.findings import Finding, warning
from multimirror.cli.doctor.jobs import check_jobs
from multimirror.cli.doctor.management import check_dispatcher, check_management, server_info
from multimirror.cli.doctor.workers import CheckContext, check_worker, same_clusters
from multimirror.kube import Client, Resource, resources
from multimirror.kube.errors import Forbidden, NotFound
from multimirror.workers import identity_of

_LEFT_LYING: Final = timedelta(seconds=30)
"""A Job controller that works starts a Job much sooner."""


async def examine(client: Client, system: str, stuck_after: timedelta) -> list[Finding]:
    """Look at everything. Raises when the management cluster itself cannot be asked."""
    server = await server_info(client)
    found = await check_management(client, system, server)
    seen: dict[Resource, list[Json]] = {}
    for resource in (WORKER_CLUSTERS, MIRROR_QUEUES, COHORTS, resources.JOBS, resources.NAMESPACES, resources.EVENTS):
        selector = rows.WAITING_EVENTS if resource is resources.EVENTS else None
        try:
            seen[resource] = (await client.list(resource, field_selector=selector, limit=500)).items
        except NotFound:
            seen[resource] = []  # the kind is not there; that was told
        except Forbidden as error:
            seen[resource] = []
            found.append(
                warning("Rights", "management", f"not checked: {error.message}", "Ask for the right to read it.")
            )
    clusters = {each["metadata"]["name"]: each for each in seen[WORKER_CLUSTERS]}
    queues = {each["metadata"]["name"]: each for each in seen[MIRROR_QUEUES]}
    now = datetime.now(UTC) + timedelta(seconds=server.clock_ahead or 0.0)
    found.append(await check_dispatcher(client, system, clusters.values(), now))
    if not clusters:
        found.append(warning("Workers", "workers", "there is no WorkerCluster", "`multimirror join` makes one."))
    context = CheckContext(
        client=client,
        system=system,
        identity=await identity_of(client),
        server=server,
        originals={each["metadata"]["uid"]: each for each in seen[resources.JOBS] if rows.is_ours(each)},
        patience=min(_LEFT_LYING, stuck_after),
        namespaces=_namespaces_in_use(seen[resources.JOBS], seen[resources.NAMESPACES]),
    )
    examined = await asyncio.gather(*(check_worker(context, cluster) for cluster in clusters.values()))
    for each in examined:
        found += each.findings
    found += same_clusters(examined, {context.identity: "management"})
    found += check_queues(queues.values(), clusters)
    found += check_cohorts(seen[COHORTS])
    found += check_namespaces(seen[resources.NAMESPACES], queues)
    job_context = rows.JobContext(rows.newest(seen[resources.EVENTS]), queues, clusters)
    return found + check_jobs(seen[resources.JOBS], job_context, now, stuck_after)


def _namespaces_in_use(jobs: list[Json], namespaces: list[Json]) -> list[str]:
    """Where Jobs with a queue are, or are to be."""
    used = {job["metadata"]["namespace"] for job in jobs if QUEUE_LABEL in (job["metadata"].get("labels") or {})}
    used |= {
        each["metadata"]["name"]
        for each in namespaces
        if (each["metadata"].get("labels") or {}).get(DEFAULT_QUEUE_LABEL)
    }
    return sorted(used)

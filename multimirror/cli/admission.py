"""The admission webhook as a process of its own (`multimirror admission`), or beside the dispatcher in one.

On its own neither can bring the other down, and it has an account that may do next to nothing. Either way every replica
serves it, and it has a client and caches of its own: a flood of Jobs, or of calls by somebody who is no API server,
takes nothing from the dispatcher's share of calls.

A rollout refuses nobody's Job: a replica is ready when it can answer; told to stop, it is unready at once, and goes on
answering until API servers have turned to others.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import structlog

from multimirror.admission import NAMESPACES, PATH, AdmissionServer, Registration, Service, Webhook
from multimirror.api import MIRROR_QUEUES
from multimirror.api.limits import MAX_JOB_BYTES
from multimirror.kube import Client, Connection
from multimirror.kube.health import HealthServer
from multimirror.kube.informers import Informers
from multimirror.kube.supervise import Supervisor

AUTHORITY: Final = "multimirror-admission-ca"
"""The Secret with the authority that the installation brings."""
SERVICE: Final = "multimirror-admission"
"""Of the Deployment that is installed."""
_QUIET_SECONDS: Final = 8.0
"""Without a question, until a replica that is to stop does: longer than it takes a Service to send nobody here."""
_QUIET_SECONDS_ALONE: Final = 0.5
"""The same where there is no Service that would send them to others."""
_DRAIN_SECONDS: Final = 20.0
"""At the most; then there is time left of what the process (kube/process.py) and the kubelet allow."""
_AGENT: Final = "multimirror-admission"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionOptions:
    """Where the webhook is served, and how API servers reach it."""

    host: str
    port: int
    registration: Registration
    namespace: str
    """Where the Secret is."""
    secret: str = AUTHORITY
    client_authority: Path | None = None
    """Who signs the certificates of API servers; None: they show none."""
    max_job_bytes: int = MAX_JOB_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionProcess:
    """What `multimirror admission` was told."""

    kubeconfig: Path | None
    context: str | None
    health_host: str
    health_port: int
    admission: AdmissionOptions


def registration(
    namespace: str, service: str | None, url: str | None, manager: str, *, flag: str = "--admission-url"
) -> Registration:
    """As the flags say it, which are checked here."""
    if url is not None and (not url.startswith("https://") or not url.endswith(PATH)):
        raise click.UsageError(f"{flag}: must be https://HOST:PORT{PATH}, not {url!r}")
    return Registration(service=Service(namespace, service) if service is not None else None, url=url, manager=manager)


async def serve_alone(options: AdmissionProcess, stop: asyncio.Event) -> None:
    """Until `stop`."""
    connection = Connection.own(options.kubeconfig, options.context, name="management")
    async with AsyncExitStack() as stack:
        health = await stack.enter_async_context(HealthServer(options.health_host, options.health_port))
        _log.info("serves metrics and health", host=health.host, port=health.port)
        process = await stack.enter_async_context(Supervisor())
        health.add_health_check("tasks", process.why_unhealthy)
        await stack.enter_async_context(serve_admission(options.admission, connection, health, stop))
        await stop.wait()


@asynccontextmanager
async def serve_admission(
    options: AdmissionOptions, connection: Connection, health: HealthServer, stop: asyncio.Event
) -> AsyncIterator[None]:
    """Served inside. Once `stop` is set the end waits until nobody asks any more; it does not when there was an error.

    That it is drained beside whatever else stops with the process is why it has to know of `stop`."""
    health.add_ready_check("admission", lambda: "not served yet")
    async with Client(connection, concurrency=8, user_agent=_AGENT) as client, Informers(client) as informers:
        server = AdmissionServer(
            client,
            informers.of(NAMESPACES),
            informers.of(MIRROR_QUEUES),
            host=options.host,
            port=options.port,
            manager=options.registration.manager,
            max_job_bytes=options.max_job_bytes,
            client_authority=options.client_authority,
        )
        async with server:
            _log.info("serves admission", host=server.host, port=server.port)
            secret = (options.namespace, options.secret)
            async with Webhook(client, server, options.registration, secret=secret) as webhook, Supervisor() as tasks:
                health.add_ready_check("admission", lambda: _why_not_ready(server, webhook, stop))
                draining = tasks.start("admission drain", _drain(server, options.registration, stop), may_return=True)
                yield
                if stop.is_set():
                    await asyncio.wait([draining])


def _why_not_ready(server: AdmissionServer, webhook: Webhook, stop: asyncio.Event) -> str | None:
    return "is about to stop" if stop.is_set() else webhook.ready() or server.ready()


async def _drain(server: AdmissionServer, registration: Registration, stop: asyncio.Event) -> None:
    await stop.wait()
    _log.info("answers until nobody asks", most_seconds=_DRAIN_SECONDS)
    await server.drain(_QUIET_SECONDS if registration.service is not None else _QUIET_SECONDS_ALONE, _DRAIN_SECONDS)

"""The admission webhook as a part of `multimirror run`: served by every replica, leader or not.

It has a client and caches of its own: a flood of Jobs, or of calls by somebody who is no API server, takes nothing from
the dispatcher's share of calls.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog

from multimirror.admission import NAMESPACES, AdmissionServer, Registration, Webhook
from multimirror.api import MIRROR_QUEUES
from multimirror.kube import Client, Connection
from multimirror.kube.health import HealthServer
from multimirror.kube.informers import Informers

SECRET: Final = "multimirror-admission"  # noqa: S105 - the name of a Secret, not what is in it
_AGENT: Final = "multimirror-admission"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionOptions:
    """Where the webhook is served, and how API servers reach it."""

    host: str
    port: int
    registration: Registration
    namespace: str
    """Where the Secret with the certificates is."""


@asynccontextmanager
async def serve_admission(
    options: AdmissionOptions, connection: Connection, health: HealthServer
) -> AsyncIterator[None]:
    async with Client(connection, concurrency=8, user_agent=_AGENT) as client, Informers(client) as informers:
        server = AdmissionServer(
            client,
            informers.of(NAMESPACES),
            informers.of(MIRROR_QUEUES),
            host=options.host,
            port=options.port,
            manager=options.registration.manager,
        )
        async with server:
            _log.info("serves admission", host=server.host, port=server.port)
            async with Webhook(client, server, options.registration, secret=(options.namespace, SECRET)) as webhook:
                health.add_ready_check("admission", webhook.ready)
                yield

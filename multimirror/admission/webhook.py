"""The webhook's certificates and registration, kept right for as long as it runs.

Every replica runs this; none needs to lead. The Secret is written with the resourceVersion that was read, so that one
replica makes a step and the others see it; the configuration is applied with our own field manager, only when it lacks
something that we want, and put right again when somebody changes it. What is served follows the Secret.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

import structlog

from multimirror.admission.certificates import Certificates, Schedule, due, plan
from multimirror.admission.registration import Registration, covers
from multimirror.admission.server import AdmissionServer
from multimirror.batch import Json
from multimirror.kube import Client, Controller, Informer, RequeueAfter
from multimirror.kube.errors import AlreadyExists, Conflict, NotFound
from multimirror.kube.resources import MUTATING_WEBHOOKS, SECRETS
from multimirror.kube.supervise import Supervisor

FIELD_MANAGER: Final = "multimirror-admission"
_KEY: Final = "webhook"
_LOOK_AGAIN: Final = 3600.0  # however far off the next renewal is: clocks are set, events are missed

_log = structlog.get_logger(__name__)


class Webhook:
    """Keeps an open server's certificates and its registration, while the context is open."""

    def __init__(
        self,
        client: Client,
        server: AdmissionServer,
        registration: Registration,
        *,
        secret: tuple[str, str],
        schedule: Schedule | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`secret` is the namespace and name of the Secret that keeps the certificates."""
        self._client = client
        self._server = server
        self._registration = registration
        self._namespace, self._secret_name = secret
        self._schedule = schedule or Schedule()
        self._clock = clock
        self._secrets = Informer(client, SECRETS, self._namespace, field_selector=f"metadata.name={self._secret_name}")
        self._configurations = Informer(client, MUTATING_WEBHOOKS, field_selector=f"metadata.name={registration.name}")
        self._controller = Controller("admission", self._reconcile, concurrency=1, timeout=30.0)
        self._served: Certificates | None = None
        self._registered = asyncio.Event()
        self._running = contextlib.AsyncExitStack()

    def ready(self) -> str | None:
        """Why Jobs cannot be admitted yet; None when they can. A check for the health server."""
        return None if self._registered.is_set() else "the webhook is not registered yet"

    async def registered(self) -> None:
        """Wait until Jobs can be admitted."""
        await self._registered.wait()

    def look(self) -> None:
        """Look at certificates and registration now."""
        self._controller.queue.add(_KEY)

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as opening:
            for informer in (self._secrets, self._configurations):
                await opening.enter_async_context(informer)
            tasks = await opening.enter_async_context(Supervisor())
            tasks.start("admission webhook", self._keep())
            self._running = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._running.aclose()

    async def _keep(self) -> None:
        for informer in (self._secrets, self._configurations):
            await informer.synced()
            informer.add_handler(lambda _: self.look())
        self.look()
        await self._controller.run()

    async def _reconcile(self, _: str) -> RequeueAfter:
        now = self._clock()
        secret = self._secrets.get(f"{self._namespace}/{self._secret_name}")
        stored = Certificates.read(secret.get("data")) if secret else None
        injected = stored is not None and self._is_registered(stored)
        wanted = plan(stored, self._registration.hosts(), now, self._schedule, injected=injected)
        if wanted != stored:
            try:
                await self._store(wanted, secret)
            except (AlreadyExists, Conflict, NotFound):
                return RequeueAfter(1.0)  # another replica was faster; its step arrives in the cache and wakes us
        if self._served != wanted:
            self._server.use(wanted.current)
            self._served = wanted
        if not self._is_registered(wanted):
            await self._register(wanted)
        self._registered.set()
        return RequeueAfter(min(_LOOK_AGAIN, due(wanted, now, self._schedule)))

    async def _store(self, certificates: Certificates, secret: Json | None) -> None:
        if secret is None:
            new = {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/tls",
                "metadata": {
                    "name": self._secret_name,
                    "namespace": self._namespace,
                    "labels": {"app.kubernetes.io/part-of": "multimirror"},
                },
                "data": certificates.data(),
            }
            await self._client.create(SECRETS, new, field_manager=FIELD_MANAGER)
        else:
            changed = {**secret, "data": certificates.data()}
            await self._client.replace(SECRETS, changed, field_manager=FIELD_MANAGER)
        _log.info("certificates stored", ends=str(certificates.current.ends), renewal=certificates.next is not None)

    def _is_registered(self, certificates: Certificates) -> bool:
        live = self._configurations.get(self._registration.name)
        return live is not None and covers(live, self._registration.configuration(certificates.trusted))

    async def _register(self, certificates: Certificates) -> None:
        await self._client.patch(
            MUTATING_WEBHOOKS,
            self._registration.name,
            self._registration.configuration(certificates.trusted),
            patch_type="apply",
            field_manager=FIELD_MANAGER,
            force=True,
        )
        _log.info("webhook registered", name=self._registration.name)

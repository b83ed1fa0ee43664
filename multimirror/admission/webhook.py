"""The webhook's certificate, kept valid for as long as it runs; and its registration, watched, never written.

Every replica does this for itself, and none writes anything: the authority comes from a Secret, the registration from
whoever installed us (certificates.py, registration.py). What differs from what it should be is told: as an error in the
log when it changes, and by two gauges for as long as it is so.

When the authority in the Secret is replaced, the new one is used as soon as the registration trusts it, so that the two
may be changed in either order. Until then the certificate that is shown stays.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

import structlog
from prometheus_client import Gauge

from multimirror.admission.certificates import KeyPair, due, serving
from multimirror.admission.registration import Registration, ca_bundle
from multimirror.admission.server import AdmissionServer
from multimirror.batch import Json
from multimirror.kube import Client, Controller, Informer, RequeueAfter
from multimirror.kube.resources import MUTATING_WEBHOOKS, SECRETS
from multimirror.kube.supervise import Supervisor

REGISTERED: Final = Gauge(
    "multimirror_admission_registered", "1 while API servers are told to call this webhook for all that is ours."
)
FOREIGN: Final = Gauge(
    "multimirror_admission_registration_foreign",
    "What is registered under our name and is not ours: webhooks, rules, selectors, addresses.",
)
_KEY: Final = "webhook"
_LOOK_AGAIN: Final = 3600.0  # however far off the next renewal is: clocks are set, events are missed

_log = structlog.get_logger(__name__)


class Webhook:
    """Keeps an open server's certificate, and watches its registration, while the context is open."""

    def __init__(
        self,
        client: Client,
        server: AdmissionServer,
        registration: Registration,
        *,
        secret: tuple[str, str],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`secret` is the namespace and name of the Secret with the authority, or with a certificate for us."""
        self._client = client
        self._server = server
        self._registration = registration
        self._namespace, self._secret_name = secret
        self._clock = clock
        self._secrets = Informer(client, SECRETS, self._namespace, field_selector=f"metadata.name={self._secret_name}")
        self._configurations = Informer(client, MUTATING_WEBHOOKS, field_selector=f"metadata.name={registration.name}")
        self._controller = Controller("admission", self._reconcile, concurrency=1, timeout=30.0)
        self._shown: KeyPair | None = None
        self._told: tuple[list[str], list[str]] = ([], [])
        self._registered = asyncio.Event()
        self._running = contextlib.AsyncExitStack()

    def ready(self) -> str | None:
        """Why Jobs cannot be admitted yet; None when they can. A check for the health server.

        A registration that is not right is no reason: the webhook answers whoever calls it, and would only be away.
        """
        if self._shown is None:
            return f"no certificate: Secret {self._namespace}/{self._secret_name} is not there, or holds none"
        if self._shown.ends <= self._clock():
            return f"the certificate ended at {self._shown.ends}"
        return None

    async def registered(self) -> None:
        """Wait until Jobs can be admitted."""
        await self._registered.wait()

    def look(self) -> None:
        """Look at certificate and registration now."""
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
        live = self._configurations.get(self._registration.name)
        secret = self._secrets.get(f"{self._namespace}/{self._secret_name}")
        stored = KeyPair.read(secret.get("data")) if secret else None
        if stored is None:
            _log.error("there is no certificate to show", secret=f"{self._namespace}/{self._secret_name}")
        elif self._shown is None or self._shown.ends <= now or _is_trusted(stored, live):
            certificate = serving(stored, self._shown, self._registration.hosts(), now)
            if certificate != self._shown:
                self._server.use(certificate)
                self._shown = certificate
                _log.info("shows a certificate", ends=str(certificate.ends), issued_here=stored.is_authority)
        self._tell(live)
        return RequeueAfter(min(_LOOK_AGAIN, due(self._shown, now)) if self._shown is not None else _LOOK_AGAIN)

    def _tell(self, live: Json | None) -> None:
        foreign, missing = self._registration.foreign(live), self._registration.missing(live, self._shown)
        FOREIGN.set(len(foreign))
        REGISTERED.set(not missing)
        if self._shown is not None and not missing:
            self._registered.set()
        else:
            self._registered.clear()
        if self._told != (foreign, missing):
            self._told = (foreign, missing)
            for each in foreign:
                _log.error("somebody else's entry is in our registration", name=self._registration.name, what=each)
            for each in missing:
                _log.warning("the webhook is not registered as it should be", name=self._registration.name, what=each)


def _is_trusted(stored: KeyPair, live: Json | None) -> bool:
    """By every webhook of the registration. Where there is none, nobody can mistrust it; and who brings certificates of
    his own sees to that himself."""
    return not stored.is_authority or all(
        stored.is_trusted_by(ca_bundle(webhook)) for webhook in (live or {}).get("webhooks") or ()
    )

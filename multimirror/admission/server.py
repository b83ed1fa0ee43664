"""The webhook's HTTPS server: an AdmissionReview in, `decide`'s verdict out.

Reads come from caches. Only when a verdict could be due to a cache that is behind (`may_be_stale`), and before the
caches are filled, are the namespace and the queues read from the API server itself: a user who makes a queue and then a
Job must not be told that there is no such queue.

New certificates are used for new connections as soon as `use` is called; connections that are open stay open.
"""

import asyncio
import base64
import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Self

import orjson
import structlog
from aiohttp import web
from prometheus_client import Counter, Histogram

from multimirror.admission.certificates import Generation
from multimirror.admission.deciding import Patch, Queues, Refusal, Verdict, decide, may_be_stale
from multimirror.admission.registration import PATH
from multimirror.api import MANAGED_BY, MIRROR_QUEUES
from multimirror.batch import Json
from multimirror.kinds import KINDS, Kind
from multimirror.kube import ApiError, Client, Informer
from multimirror.kube.resources import NAMESPACES

_LARGEST: Final = 8 * 2**20  # twice what an API server accepts
_TIMEOUT: Final = re.compile(r"([0-9]+)s")
REFUSED: Final = "RefusedByMultimirror"
"""The cause in each refusal of ours: programs know it by this, people by its message."""

REVIEWS: Final = Counter(
    "multimirror_admission_reviews_total", "Jobs that asked to be admitted, by what became of them", ["result"]
)
SECONDS: Final = Histogram(
    "multimirror_admission_seconds",
    "How long a review took",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
_log = structlog.get_logger(__name__)


class AdmissionServer:
    """Serves while the context is open. `port` 0 takes a free one; see `port` afterwards."""

    def __init__(
        self,
        client: Client,
        namespaces: Informer,
        queues: Informer,
        *,
        host: str = "0.0.0.0",  # noqa: S104 - API servers come from outside the pod
        port: int = 9443,
        manager: str = MANAGED_BY,
    ) -> None:
        self.host = host
        self.port = port
        self._client = client
        self._namespaces = namespaces
        self._queues = queues
        self._manager = manager
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._tls.set_alpn_protocols(["http/1.1"])
        self._runner: web.AppRunner | None = None

    def use(self, generation: Generation) -> None:
        """Show this certificate from the next connection on."""
        with _file(generation.key + generation.certificate) as path:
            self._tls.load_cert_chain(path)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_post(PATH, self._admit)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port, ssl_context=self._tls).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _admit(self, request: web.Request) -> web.Response:
        try:
            asked = orjson.loads(await request.read())["request"]
            uid, job, where, what = asked["uid"], asked["object"], asked["namespace"], asked["resource"]
            kind = KINDS.find(what["group"], what["resource"])
            with SECONDS.time():
                async with asyncio.timeout(_budget(request)):
                    verdict = await self._verdict(kind, job, where) if kind is not None else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            REVIEWS.labels("error").inc()
            _log.warning("not an AdmissionReview of a Job", error=repr(error))
            return web.Response(status=400, text="not an AdmissionReview (admission.k8s.io/v1) of a Job\n")
        except (ApiError, TimeoutError) as error:
            REVIEWS.labels("error").inc()
            _log.warning("cannot decide about a Job", namespace=where, error=str(error) or "no answer in time")
            return web.Response(status=503, text="the queues cannot be read right now; try again\n")
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": uid, **_response(verdict)},
        }
        REVIEWS.labels(_result(verdict)).inc()
        return web.Response(body=orjson.dumps(review), content_type="application/json")

    async def _verdict(self, kind: Kind, job: Json, where: str) -> Verdict:
        namespace = self._namespaces.get(where)
        if namespace is not None and self._queues.has_synced:
            verdict = decide(job, namespace, _by_name(self._queues.list()), manager=self._manager, kind=kind)
            if not may_be_stale(verdict, job, namespace):
                return verdict
        namespace = await self._client.get(NAMESPACES, where)
        queues = await self._client.list(MIRROR_QUEUES)
        return decide(job, namespace, _by_name(queues.items), manager=self._manager, kind=kind)


def _by_name(queues: Iterable[Json]) -> Queues:
    return {queue["metadata"]["name"]: queue for queue in queues}


def _budget(request: web.Request) -> float:
    """Less than the API server waits (it tells us): we can say what is wrong, it only that it took too long."""
    told = _TIMEOUT.fullmatch(request.query.get("timeout", ""))
    return 0.75 * (int(told[1]) if told else 2)


def _response(verdict: Verdict) -> dict[str, Any]:
    match verdict:
        case Patch(operations):
            patch = base64.b64encode(orjson.dumps(operations)).decode()
            return {"allowed": True, "patchType": "JSONPatch", "patch": patch}
        case Refusal(message):
            details = {"causes": [{"reason": REFUSED, "message": message}]}
            return {
                "allowed": False,
                "status": {"code": 403, "reason": "Forbidden", "message": message, "details": details},
            }
        case _:
            return {"allowed": True}


def _result(verdict: Verdict) -> str:
    match verdict:
        case Patch():
            return "taken"
        case Refusal():
            return "refused"
        case _:
            return "unchanged"


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    """The ssl module reads keys from files only; where the system can, from one that is nowhere on a disk."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("certificate")
        try:
            os.write(number, content)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name

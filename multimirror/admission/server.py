"""The webhook: an AdmissionReview in, `decide`'s verdict out.

Reads come from caches. Only when a verdict could be due to a cache that is behind (`may_be_stale`), and before the
caches are filled, are the namespace and the queues read from the API server itself: a user who makes a queue and then a
Job must not be told that there is no such queue.

How much is taken from whom is bounded in https.py; here, how much is made of it: a body of so many values that parsing
it would take many times its size is not parsed, and of a review nothing is kept but the Job, for as long as it is
decided about. Jobs that are too large to be placed (api/limits.py) are refused in words.

A replica that is to stop goes on answering until it is out of the Service (`drain`).

New certificates are used for new connections as soon as `use` is called; connections that are open stay open.
"""

import asyncio
import base64
import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import orjson
import structlog
from prometheus_client import Counter, Histogram

from multimirror.admission.certificates import KeyPair
from multimirror.admission.deciding import Patch, Queues, Refusal, Verdict, decide, may_be_stale
from multimirror.admission.https import Answer, HttpsServer, Limits
from multimirror.admission.registration import PATH
from multimirror.api import MANAGED_BY, MIRROR_QUEUES
from multimirror.api.limits import MAX_JOB_BYTES, size_of, too_large
from multimirror.batch import Json
from multimirror.kinds import KINDS, Kind
from multimirror.kube import ApiError, Client, Informer
from multimirror.kube.resources import NAMESPACES

_MOST_VALUES: Final = 300_000  # in one review; what is parsed takes up to 250 bytes for each
_MOST_SECONDS: Final = 30  # the longest that an API server waits for a webhook
_TIMEOUT: Final = re.compile(r"([0-9]{1,3})s")
_UID: Final = re.compile(rb'"request": ?\{"uid": ?"([0-9a-fA-F-]{36})"')  # as API servers write it, first
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
        max_job_bytes: int = MAX_JOB_BYTES,
        client_authority: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`client_authority`: a file with the authorities that sign the certificates of API servers (PEM); nobody else
        gets further than the handshake. None: whoever reaches us may ask."""
        self._client = client
        self._namespaces = namespaces
        self._queues = queues
        self._manager = manager
        self._max_job_bytes = max_job_bytes
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._tls.set_alpn_protocols(["http/1.1"])
        if client_authority is not None:
            self._tls.load_verify_locations(client_authority)
            self._tls.verify_mode = ssl.CERT_REQUIRED
        self._server = HttpsServer(host, port, PATH, self._admit, tls=self._tls, limits=limits)

    @property
    def host(self) -> str:
        return self._server.host

    @property
    def port(self) -> int:
        return self._server.port

    def use(self, certificate: KeyPair) -> None:
        """Show this one from the next connection on."""
        with _file(certificate.key + certificate.certificate) as path:
            self._tls.load_cert_chain(path)

    def ready(self) -> str | None:
        """Why reviews cannot be answered yet; None when they can. A check for the health server.

        Without caches each review costs two reads, for which our rights may not be in force yet."""
        missing = [each.resource.plural for each in (self._namespaces, self._queues) if not each.has_synced]
        return f"{' and '.join(missing)} have not been read yet" if missing else None

    async def drain(self, quiet_seconds: float, most_seconds: float) -> None:
        """See `HttpsServer.drain`."""
        await self._server.drain(quiet_seconds, most_seconds)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    async def _admit(self, parameters: Mapping[str, str], body: bytes) -> Answer:
        where = ""
        try:
            if _values(body) > _MOST_VALUES:
                return self._too_complex(body)
            uid, where, what, job = _read(body)
            size = size_of(job) if len(body) > self._max_job_bytes else 0
            del body
            kind = KINDS.find(what["group"], what["resource"])
            with SECONDS.time():
                async with asyncio.timeout(_budget(parameters)):
                    verdict = await self._verdict(kind, job, where) if kind is not None else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            REVIEWS.labels("error").inc()
            _log.warning("not an AdmissionReview of a Job", error=repr(error)[:200])
            return Answer(400, b"not an AdmissionReview (admission.k8s.io/v1) of a Job\n")
        except (ApiError, TimeoutError) as error:
            REVIEWS.labels("error").inc()
            _log.warning("cannot decide about a Job", namespace=where, error=str(error) or "no answer in time")
            return Answer(503, b"the queues cannot be read right now; try again\n")
        # What comes as we would have made it is ours too, and is left as it is.
        if kind is not None and (isinstance(verdict, Patch) or (verdict is None and self._is_ours(kind, job))):
            large = too_large(kind.resource.kind, size, self._max_job_bytes)
            verdict = Refusal(f"{large}; {_REMEDY}") if large else verdict
        return _review(uid, verdict)

    def _is_ours(self, kind: Kind, job: Json) -> bool:
        return kind.managed_by(job) == self._manager

    def _too_complex(self, body: bytes) -> Answer:
        """A Job that nobody wants to parse; in words where it can be seen who asked."""
        uid = _UID.search(body, 0, 4096)
        if uid is None:
            REVIEWS.labels("error").inc()
            return Answer(413, b"more values than a Job can have\n")
        message = f"this object has more than {_MOST_VALUES} values, in {len(body)} bytes of JSON; {_REMEDY}"
        return _review(uid[1].decode(), Refusal(message))

    async def _verdict(self, kind: Kind, job: Json, where: str) -> Verdict:
        namespace = self._namespaces.get(where)
        if namespace is not None and self._queues.has_synced:
            verdict = decide(job, namespace, _by_name(self._queues.list()), manager=self._manager, kind=kind)
            if not may_be_stale(verdict, job, namespace):
                return verdict
        namespace = await self._client.get(NAMESPACES, where)
        queues = await self._client.list(MIRROR_QUEUES)
        return decide(job, namespace, _by_name(queues.items), manager=self._manager, kind=kind)


_REMEDY: Final = "keep data in a ConfigMap, an image or a volume, or ask your operator for more (--max-job-bytes)"


def _values(body: bytes) -> int:
    """As many values as there can be in it, and more where strings have commas and brackets."""
    return body.count(b",") + body.count(b"{") + body.count(b"[")


def _read(body: bytes) -> tuple[str, str, Json, Json]:
    """The uid of the request, its namespace and resource, and the object. Raises whatever is wrong with it."""
    asked = orjson.loads(body)["request"]
    uid, where, what, job = asked["uid"], asked["namespace"], asked["resource"], asked["object"]
    if not isinstance(uid, str) or not isinstance(where, str) or not isinstance(job["metadata"], dict):
        raise TypeError("uid, namespace or object")
    return uid, where, what, job


def _by_name(queues: Iterable[Json]) -> Queues:
    return {queue["metadata"]["name"]: queue for queue in queues}


def _budget(parameters: Mapping[str, str]) -> float:
    """Less than the API server waits (it tells us): we can say what is wrong, it only that it took too long."""
    told = _TIMEOUT.fullmatch(parameters.get("timeout", ""))
    return 0.75 * (min(int(told[1]), _MOST_SECONDS) if told else 2)


def _review(uid: str, verdict: Verdict) -> Answer:
    REVIEWS.labels(_result(verdict)).inc()
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": uid, **_response(verdict)},
    }
    return Answer(200, orjson.dumps(review), "application/json")


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

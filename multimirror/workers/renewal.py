"""Keeps the tokens of workers fresh: what tokens.py decides is done here, by the leader alone.

A worker that hangs holds up its own renewal and nobody else's. What fails is tried again every minute, for as long as
the token is good, and is said meanwhile: in the condition TokenRenewed of its WorkerCluster, which comes half of the
token's time before its end.

A token is used before the one before it is revoked: our own session has gone on to it, and it is what the slot of the
old one is deleted with.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import orjson
import structlog

from multimirror.api import WORKER_SYSTEM_NAMESPACE, SecretKey
from multimirror.batch import Json
from multimirror.kube import ApiError, Change, Client, Informer, KubeError
from multimirror.kube.errors import BadAnswer, ConfigError, Conflict, LeadershipLost, NotFound
from multimirror.kube.kubeconfig import parse_strict, with_token
from multimirror.kube.resources import SECRETS, SERVICE_ACCOUNTS
from multimirror.kube.supervise import Supervisor
from multimirror.workers.cluster import Worker
from multimirror.workers.manager import Workers
from multimirror.workers.options import WorkerOptions
from multimirror.workers.reading import is_plain
from multimirror.workers.state import TokenState
from multimirror.workers.tokens import (
    ACCOUNT,
    REVOKE_ANNOTATION,
    NotOurs,
    Renew,
    Revoke,
    Slots,
    Step,
    TokenClaims,
    Wait,
    claims_of,
    decide,
    expiry_of,
    slot_secret,
    token_request,
)

_log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 30.0
_SMALL: Final = 8 * 1024
_LONGEST_TOKEN: Final = 16 * 1024
_JSON: Final = {"Content-Type": "application/json"}


class TokenRenewal:
    """Looks after the tokens of all workers. `run` it as a task of the leader."""

    def __init__(
        self,
        client: Client,
        secrets: Informer,
        workers: Workers,
        options: WorkerOptions,
        *,
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`changed`: what is known of a token has changed, and is to be told."""
        self._client, self._secrets, self._workers, self._options = client, secrets, workers, options
        self._changed, self._clock = changed, clock
        self._busy: set[str] = set()
        self._not_before: dict[str, float] = {}  # worker: when a step that failed is tried again
        self._renewed: dict[str, float] = {}  # worker: when; no worker keeps us busy with tokens that end at once
        self._read: dict[str, tuple[str, str | None]] = {}  # worker: a kubeconfig as it is stored, and its token
        self._replaced: dict[str, str] = {}  # worker: the version of its Secret that we have written over
        self._news = asyncio.Event()
        secrets.add_handler(self._secret_changed)

    async def run(self) -> None:
        """Until cancelled."""
        async with Supervisor() as tasks:
            while True:
                self._news.clear()
                for worker in self._workers:
                    self._look(worker, tasks)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self._news.wait()

    def _secret_changed(self, _change: Change) -> None:
        self._news.set()

    def _look(self, worker: Worker, tasks: Supervisor) -> None:
        spec = self._workers.specs.get(worker.name)
        secret = None
        if spec is not None and spec.secret is not None:
            secret = self._secrets.get(f"{self._options.secret_namespace}/{spec.secret.name}")
        if spec is None or spec.secret is None or secret is None or worker.name in self._busy:
            return
        if self._replaced.get(worker.name) == secret["metadata"]["resourceVersion"]:
            return  # the cache does not show yet what we wrote
        stored = str((secret.get("data") or {}).get(spec.secret.key, ""))
        known = self._read.get(worker.name)
        if known is None or known[0] != stored:
            self._busy.add(worker.name)
            tasks.start(f"token of {worker.name}", self._read_token(worker.name, stored), may_return=True)
            return
        token = known[1]
        claims, now = claims_of(token), self._clock()
        step = decide(claims, secret, Slots.of(self._options.origin, worker.name), now)
        self._tell(worker, TokenState(expires=expiry_of(token), renewable=not isinstance(step, NotOurs)))
        if not isinstance(step, (Renew, Revoke)) or now < self._not_before.get(worker.name, 0.0):
            return
        if isinstance(step, Renew) and now < self._renewed.get(worker.name, 0.0) + _AGAIN_SECONDS:
            return
        if isinstance(step, Revoke) and not worker.uses(_kubeconfig(secret, spec.secret.key)):
            return  # its session is about to go on to the new one
        assert claims is not None, "there is one, or there would be nothing to do"
        self._busy.add(worker.name)
        tasks.start(f"token of {worker.name}", self._act(worker, step, claims, secret, spec.secret), may_return=True)

    async def _read_token(self, worker: str, stored: str) -> None:
        """Once for each version of it; a large one beside everything else."""
        token = None
        try:
            with suppress(Exception):  # it cannot be read: its worker says why
                if len(stored) <= _SMALL:
                    token = _token_of(stored, plain_http=self._options.plain_http)
                else:
                    token = await asyncio.to_thread(_token_of, stored, plain_http=self._options.plain_http)
        finally:
            self._busy.discard(worker)
        self._read[worker] = (stored, token)
        self._news.set()

    async def _act(self, worker: Worker, step: Step, claims: TokenClaims, secret: Json, where: SecretKey) -> None:
        log = _log.bind(cluster=worker.name)
        problem = ""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                match step:
                    case Renew():
                        await self._renew(worker, step, claims, secret, where)
                        self._renewed[worker.name] = self._clock()
                        log.info("token renewed", seconds=int(step.seconds))
                    case Revoke():
                        await self._revoke(worker, step, secret)
                        log.info("the token before was revoked")
                    case Wait() | NotOurs():
                        pass
        except LeadershipLost:
            raise
        except Conflict:
            log.info("the Secret of a worker was changed meanwhile; what is in it now counts")
        except (KubeError, TimeoutError, ValueError) as error:
            problem = str(error) or "no answer in time"
            log.warning("token not renewed", step=type(step).__name__, error=problem)
            self._not_before[worker.name] = self._clock() + _AGAIN_SECONDS
        except Exception as error:  # whatever nobody thought of costs this worker alone
            problem = f"{type(error).__name__}; the log of the dispatcher says more"
            log.exception("a token could not be renewed", step=type(step).__name__)
            self._not_before[worker.name] = self._clock() + _AGAIN_SECONDS
        else:
            self._not_before.pop(worker.name, None)
        finally:
            self._busy.discard(worker.name)
        self._tell(worker, TokenState(expires=claims.expires, renewable=True, problem=problem), failed=True)
        self._news.set()

    def _tell(self, worker: Worker, state: TokenState, *, failed: bool = False) -> None:
        """A problem stays until the next try has gone better."""
        before = worker.token
        if not failed and before is not None and before.problem and before.expires == state.expires:
            return
        if before != state:
            worker.token = state
            self._changed()

    # --- what is done

    async def _renew(self, worker: Worker, step: Renew, claims: TokenClaims, secret: Json, where: SecretKey) -> None:
        there = _there(worker)
        with suppress(NotFound):  # one of an attempt that did not come to its end; what was bound to it is not stored
            await there.delete(SECRETS, step.slot, WORKER_SYSTEM_NAMESPACE)
        slot = await there.create(SECRETS, slot_secret(step.slot), WORKER_SYSTEM_NAMESPACE)
        path = SERVICE_ACCOUNTS.path(WORKER_SYSTEM_NAMESPACE, ACCOUNT, "token")
        body = token_request(step.seconds, step.slot, _uid_of(slot, worker.name))
        answer = await there.request("POST", path, body=body, headers=_JSON)
        token = _token_in(answer.body, step.slot, worker.name)
        kubeconfig = with_token(_kubeconfig(secret, where.key), token)
        data = {where.key: base64.b64encode(kubeconfig.encode()).decode()}
        await self._write(worker, secret, revoke=claims.secret, data=data)

    async def _revoke(self, worker: Worker, step: Revoke, secret: Json) -> None:
        with suppress(NotFound):
            await _there(worker).delete(SECRETS, step.slot, WORKER_SYSTEM_NAMESPACE)
        await self._write(worker, secret, revoke=None)

    async def _write(self, worker: Worker, secret: Json, *, revoke: str | None, **change: Json) -> None:
        """On the version that was decided on."""
        metadata = secret["metadata"]
        decided_on = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        change["metadata"] = {**decided_on, "annotations": {REVOKE_ANNOTATION: revoke}}
        await self._client.patch(SECRETS, metadata["name"], change, self._options.secret_namespace)
        self._replaced[worker.name] = metadata["resourceVersion"]


def _there(worker: Worker) -> Client:
    if worker.session is None:
        raise ApiError(f"{worker.name} is not connected", cluster=worker.name)
    return worker.session.writer


def _uid_of(slot: Json, cluster: str) -> str:
    metadata = slot.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    if not is_plain(uid):
        raise BadAnswer("it answered the creation of a Secret with something that is none", cluster=cluster)
    return str(uid)


def _kubeconfig(secret: Json, key: str) -> bytes:
    try:
        return base64.b64decode((secret.get("data") or {}).get(key, ""), validate=True)
    except binascii.Error as error:
        raise ConfigError(f"key {key!r} of the Secret is not base64") from error


def _token_of(stored: str, *, plain_http: bool) -> str | None:
    return parse_strict(base64.b64decode(stored, validate=True), plain_http=plain_http).token


def _token_in(body: bytes, slot: str, cluster: str) -> str:
    """What we could neither renew nor revoke is not taken, whatever the worker answers."""
    try:
        token = str(orjson.loads(body)["status"]["token"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise BadAnswer("the answer to a TokenRequest holds no token", cluster=cluster) from error
    claims = claims_of(token)
    if claims is None or claims.secret != slot or claims.expires is None or len(token) > _LONGEST_TOKEN:
        raise BadAnswer(f"the token that it gave is not bound to Secret {slot}, or has no end", cluster=cluster)
    return token

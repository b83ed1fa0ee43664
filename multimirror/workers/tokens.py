"""Tokens of workers: how long they are good, what they are bound to, and when the next one is due. Pure.

A token of `multimirror join` is good for a day, and bound to a Secret on the worker that holds nothing: once that is
deleted, so is the token (an API server remembers for up to ten seconds that a token was good). Each management cluster
has two names for such Secrets there, the *slots* of that WorkerCluster, and uses them in turn:

    half of the token's time is over        make the other slot anew, ask for a token bound to it, store it
    another token is stored                 go on with it, delete the slot of the one before

Everything that is decided is read: the end and the slot are in the token, and the slot that is still to be deleted is
written on the Secret of the management cluster together with the new token. So a crash at any point costs a repetition.
A credential that is not of this kind (a certificate, a token without such a Secret) is nobody's to renew.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from multimirror.api import GROUP, WORKER_SYSTEM_NAMESPACE
from multimirror.batch import Json

ACCOUNT: Final = "multimirror"
"""The dispatcher's ServiceAccount on each worker, in WORKER_SYSTEM_NAMESPACE."""
PREFIX: Final = "multimirror-token-"
LONGEST_SECONDS: Final = 24 * 3600
"""What is asked for, at most; the policy multimirror-tokens on the worker allows its account no more."""
SHORTEST_SECONDS: Final = 600
"""What the API gives, at least."""
_LAST_SECOND: Final = 253402300799.0  # of the year 9999
REVOKE_ANNOTATION: Final = f"{GROUP}/revoke"
"""On the Secret of a worker's kubeconfig, by us: the slot of the token before, which is still to be deleted there."""
JOINED_BY_ANNOTATION: Final = f"{GROUP}/joined-by"
"""On the same Secret, by join: the address by which the worker was reached from there. The dispatcher's own is the one
in the kubeconfig; where the two differ, it was given with --server."""
OURS: Final = {"app.kubernetes.io/part-of": "multimirror"}
"""Labels of Secrets that join has made; others are left alone."""


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """What a service account's token says about itself. Nobody has checked its signature: it is our own."""

    namespace: str
    account: str
    expires: float | None = None
    """Seconds since the epoch; None: never."""
    issued: float = 0.0
    secret: str | None = None
    """The name of the Secret that it is bound to."""


def claims_of(token: str | None) -> TokenClaims | None:
    """None for what is no token of a service account."""
    try:
        body = (token or "").split(".")[1]
        claims = orjson.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        subject = claims["kubernetes.io"]
        secret = subject.get("secret")
        return TokenClaims(
            namespace=str(subject["namespace"]),
            account=str(subject["serviceaccount"]["name"]),
            expires=_time(claims["exp"]) if "exp" in claims else None,
            issued=_time(claims.get("iat", 0.0)),
            secret=str(secret["name"]) if secret is not None else None,
        )
    except (IndexError, KeyError, TypeError, ValueError, AttributeError):
        return None


def expiry_of(token: str | None) -> float | None:
    """When any token with a readable end comes to it; None: never, or nobody can tell."""
    try:
        body = (token or "").split(".")[1]
        return _time(orjson.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def _time(value: Any) -> float:
    """A worker may have said anything. Raises ValueError."""
    seconds = float(value)
    if not 0.0 <= seconds <= _LAST_SECOND:
        raise ValueError("no time that anybody lives to see")
    return seconds


@dataclass(frozen=True, slots=True)
class Slots:
    """The two names of Secrets on a worker to which the tokens of one WorkerCluster are bound.

    Another management cluster has others there, and so has another WorkerCluster that is the same cluster by mistake:
    what one of them revokes is its own.
    """

    key: str

    @classmethod
    def of(cls, origin: str, worker: str) -> Self:
        """Of the WorkerCluster of that name, on the management cluster of that identity."""
        return cls(hashlib.sha256(f"{origin}/{worker}".encode()).hexdigest()[:16])

    @property
    def names(self) -> tuple[str, str]:
        return f"{PREFIX}{self.key}-a", f"{PREFIX}{self.key}-b"

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def beside(self, name: str | None) -> str:
        """The other one."""
        first, second = self.names
        return second if name == first else first


def slot_secret(name: str) -> Json:
    """It holds nothing, and nobody reads it: it is there, or it is not."""
    metadata = {"name": name, "namespace": WORKER_SYSTEM_NAMESPACE, "labels": dict(OURS)}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": True, "metadata": metadata}


def token_request(seconds: float, slot: str, uid: str | None) -> Json:
    """The body of a TokenRequest for a token that dies with that Secret."""
    reference = {"apiVersion": "v1", "kind": "Secret", "name": slot, **({"uid": uid} if uid else {})}
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": int(seconds), "boundObjectRef": reference},
    }


# --- what is to be done


@dataclass(frozen=True, slots=True)
class Renew:
    """Ask for the next token, bound to that slot."""

    slot: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Revoke:
    """Delete that slot: another token is in use."""

    slot: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing, before that time (seconds since the epoch)."""

    until: float


@dataclass(frozen=True, slots=True)
class NotOurs:
    """Nothing, ever: it is no token that we may renew."""


Step = Renew | Revoke | Wait | NotOurs


def decide(claims: TokenClaims | None, secret: Mapping[str, Any], slots: Slots, now: float) -> Step:
    """What is to be done about the token of a worker, stored in that Secret of the management cluster."""
    metadata = secret.get("metadata") or {}
    made_by_us = OURS.items() <= (metadata.get("labels") or {}).items()
    if claims is None or not made_by_us or claims.expires is None or claims.secret not in slots:
        return NotOurs()
    stale = (metadata.get("annotations") or {}).get(REVOKE_ANNOTATION)
    if stale in slots and stale != claims.secret:
        return Revoke(str(stale))
    lifetime = claims.expires - claims.issued
    due = claims.issued + lifetime / 2
    if now < due:
        return Wait(due)
    return Renew(slots.beside(claims.secret), max(SHORTEST_SECONDS, min(lifetime, LONGEST_SECONDS)))

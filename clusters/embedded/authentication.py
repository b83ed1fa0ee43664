"""Who is asking: bearer tokens, the administrator's and those of service accounts.

RBAC objects are stored and not enforced: whoever is known may do everything. A service account's token names it, is
signed with the server's key, and dies with its account (its uid is in the token). One that is bound to a Secret dies
with that, too: at once, where a real API server remembers for up to ten seconds that a token was good.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from clusters.embedded import errors
from clusters.embedded.http import Request

AUDIENCE: Final = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated client."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ("system:authenticated",)
    extra: dict[str, list[str]] = field(default_factory=dict)

    @property
    def info(self) -> dict[str, Any]:
        """As webhooks and reviews show it."""
        shown: dict[str, Any] = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            shown["uid"] = self.uid
        if self.extra:
            shown["extra"] = self.extra
        return shown


ADMINISTRATOR: Final = User("kubernetes-admin", groups=("system:masters", "system:authenticated"))


class Authenticator:
    """Knows tokens."""

    def __init__(
        self, token: str, key: bytes, uid_of: Callable[[str, str, str], str | None], now: Callable[[], float]
    ) -> None:
        """`uid_of(resource, namespace, name)`: of an object that is there."""
        self._token, self._key, self.uid_of, self._now = token, key, uid_of, now
        self._header = f"Bearer {token}"

    def authenticate(self, request: Request) -> User:
        """The user of a request. Raises Unauthorized."""
        header = request.headers.get("authorization", "")
        if header == self._header:
            return ADMINISTRATOR
        user = self.user_of(header[7:]) if header[:7].lower() == "bearer " else None
        if user is None:
            raise errors.unauthorized()
        return user

    def user_of(self, token: str) -> User | None:
        """The user that a token stands for."""
        if hmac.compare_digest(token.encode(), self._token.encode()):
            return ADMINISTRATOR
        claims = self._claims(token)
        if claims is None or claims["exp"] < self._now():
            return None
        account = claims["kubernetes.io"]
        namespace, name, uid = account["namespace"], account["serviceaccount"]["name"], account["serviceaccount"]["uid"]
        if self.uid_of("serviceaccounts", namespace, name) != uid:
            return None
        secret = account.get("secret")
        if secret is not None and self.uid_of("secrets", namespace, secret["name"]) != secret["uid"]:
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        return User(f"system:serviceaccount:{namespace}:{name}", uid, groups)

    def issue(
        self,
        namespace: str,
        name: str,
        uid: str,
        seconds: int,
        audiences: list[str],
        *,
        secret: dict[str, str] | None = None,
    ) -> tuple[str, int]:
        """A token for a service account, and when it expires. `secret`: name and uid of what it is bound to."""
        now = int(self._now())
        expires = now + seconds
        claims = {
            "aud": audiences,
            "exp": expires,
            "iat": now,
            "iss": AUDIENCE,
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": uid},
                **({"secret": secret} if secret is not None else {}),
            },
            "nbf": now,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        head = _encode(orjson.dumps({"alg": "HS256", "typ": "JWT"}))
        body = _encode(orjson.dumps(claims))
        return f"{head}.{body}.{self._sign(head, body)}", expires

    def _sign(self, head: str, body: str) -> str:
        return _encode(hmac.new(self._key, f"{head}.{body}".encode(), hashlib.sha256).digest())

    def _claims(self, token: str) -> dict[str, Any] | None:
        try:
            head, body, signature = token.split(".")
            if not hmac.compare_digest(signature.encode(), self._sign(head, body).encode()):
                return None
            claims: dict[str, Any] = orjson.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (ValueError, binascii.Error):
            return None
        return claims


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

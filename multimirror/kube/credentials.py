"""Who we are to an API server: the Authorization header, kept fresh.

Tokens expire. A static one cannot be helped; one in a file (a mounted service account) is read again every minute;
one from a program or an identity provider is asked for again shortly before it ends, or as soon as the server rejects
it. Requests that need a new one at the same moment wait for the same attempt.
"""

import abc
import asyncio
import base64
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from .errors import ConfigError

_REREAD: Final = 60.0  # the kubelet refreshes a mounted token long before it ends; client-go uses a minute too
_EARLY: Final = timedelta(seconds=30)
_PATIENCE: Final = 120.0  # a plugin may ask a person to log in


class Credentials(abc.ABC):
    """Gives the Authorization header for the next request."""

    @abc.abstractmethod
    async def authorization(self) -> str | None:
        """The header's value; None when TLS alone says who we are."""

    def rejected(self) -> bool:
        """The server said 401. True when asking again can give something newer."""
        return False


class Static(Credentials):
    """A header that never changes, or none."""

    def __init__(self, header: str | None = None) -> None:
        self._header = header

    async def authorization(self) -> str | None:
        return self._header


class BearerToken(Credentials):
    """A token that whoever made it may replace by its successor, while requests go on."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def authorization(self) -> str | None:
        return f"Bearer {self.token}"


class TokenFile(Credentials):
    """A bearer token in a file that somebody else keeps fresh."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header: str | None = None
        self._read_at = 0.0

    async def authorization(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if self._header is None or now - self._read_at > _REREAD:
            try:
                token = self._path.read_text().strip()
            except OSError as error:
                raise ConfigError(f"the token file {self._path} cannot be read: {error.strerror}") from error
            if not token:
                raise ConfigError(f"the token file {self._path} is empty")
            self._header, self._read_at = f"Bearer {token}", now
        return self._header

    def rejected(self) -> bool:
        before, self._header = self._header, None
        with contextlib.suppress(OSError):  # reported by the next authorization()
            return f"Bearer {self._path.read_text().strip()}" != before
        return False


class _Renewed(Credentials):
    """What has to be asked for, and ends."""

    def __init__(self) -> None:
        self._header: str | None = None
        self._asked = False
        self._ends: datetime | None = None
        self._lock = asyncio.Lock()

    @abc.abstractmethod
    async def _ask(self) -> tuple[str | None, datetime | None]:
        """A fresh header, and when it ends."""

    async def authorization(self) -> str | None:
        async with self._lock:
            if not self._asked or (self._ends is not None and _now() >= self._ends - _EARLY):
                try:
                    async with asyncio.timeout(_PATIENCE):
                        self._header, self._ends = await self._ask()
                except TimeoutError as error:
                    raise ConfigError(f"no credential after {_PATIENCE:.0f} s") from error
                self._asked = True
            return self._header

    def rejected(self) -> bool:
        self._asked = False
        return True


class Exec(_Renewed):
    """A program, named in a person's own kubeconfig, that prints a credential."""

    def __init__(self, spec: Mapping[str, Any], on_certificate: Callable[[bytes, bytes], None]) -> None:
        super().__init__()
        self._spec = spec
        self._on_certificate = on_certificate

    async def _ask(self) -> tuple[str | None, datetime | None]:
        # Slow to import, large, and needed by nobody but a person with such a kubeconfig.
        with _official_client("users[].user.exec"):
            from kubernetes.aio.config import ConfigException  # noqa: PLC0415
            from kubernetes.aio.config.exec_provider import ExecProvider  # noqa: PLC0415
            from kubernetes.aio.config.kube_config import ConfigNode  # noqa: PLC0415

        command = self._spec.get("command", "")
        try:
            status = await ExecProvider(ConfigNode("exec", self._spec)).run()
        except ConfigException as error:
            raise ConfigError(f"{command}: {error}", field="users[].user.exec") from error
        except OSError as error:
            raise ConfigError(f"{command} cannot be run: {error.strerror}", field="users[].user.exec") from error
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if certificate and key:
            self._on_certificate(certificate.encode(), key.encode())
        elif not status.get("token"):
            raise ConfigError(f"{command} printed neither a token nor a certificate", field="users[].user.exec")
        ends = status.get("expirationTimestamp")
        token = status.get("token")
        return (f"Bearer {token}" if token else None), (datetime.fromisoformat(ends) if ends else None)


class AuthProvider(_Renewed):
    """An auth provider (OIDC) of a person's own kubeconfig, as the official client understands it."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__()
        self._spec = dict(spec)  # the official loader writes refreshed tokens back into it

    async def _ask(self) -> tuple[str | None, datetime | None]:
        with _official_client("users[].user.auth-provider"):
            from kubernetes.aio.client import Configuration  # noqa: PLC0415
            from kubernetes.aio.config import ConfigException  # noqa: PLC0415
            from kubernetes.aio.config.kube_config import KubeConfigLoader  # noqa: PLC0415

        loader = KubeConfigLoader(
            {
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                "clusters": [{"name": "it", "cluster": {}}],
                "users": [{"name": "it", "user": {"auth-provider": self._spec}}],
            }
        )
        configuration = Configuration()
        try:
            await loader.load_and_set(configuration)
        except (ConfigException, ValueError) as error:
            raise ConfigError(str(error), field="users[].user.auth-provider") from error
        header = configuration.api_key.get("BearerToken")
        if not header:
            name = self._spec.get("name")
            raise ConfigError(f"{name!r} gave no token", field="users[].user.auth-provider")
        return header, _now() + timedelta(minutes=1)  # the loader itself knows when a refresh is due


@contextlib.contextmanager
def _official_client(field: str) -> Iterator[None]:
    """The image is without it: nothing that runs in a pod needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            "needs the Python package `kubernetes`, which is not installed here (our image is without it): install it, "
            "or use a token or a client certificate",
            field=field,
        ) from error


def basic(name: str, password: str) -> Credentials:
    """User name and password; only old servers take them."""
    return Static("Basic " + base64.b64encode(f"{name}:{password}".encode()).decode())


def _now() -> datetime:
    return datetime.now(UTC)


SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def service_address(environ: Mapping[str, str] = os.environ) -> str:
    """The API server of the cluster that this pod runs in."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError("KUBERNETES_SERVICE_HOST and _PORT are not set: this does not run inside a cluster")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

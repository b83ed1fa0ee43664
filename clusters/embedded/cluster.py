"""One embedded cluster: a server, its credentials, and a kubeconfig for them.

    async with EmbeddedCluster("management") as cluster:
        cluster.kubeconfig

It lives in the running event loop. With a data directory the address, the certificates and the token stay the same from
start to start, so that kubeconfigs that were handed out go on working.
"""

import base64
import contextlib
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from clusters.embedded.server import ApiServer, ServerOptions
from clusters.embedded.tls import Certificates, make_certificates


@dataclass(slots=True)
class _Identity:
    """What clients know a cluster by."""

    token: str
    key: bytes
    certificates: Certificates | None
    port: int = 0

    @classmethod
    def fresh(cls, *, tls: bool) -> "_Identity":
        certificates = make_certificates() if tls else None
        return cls(secrets.token_urlsafe(32), secrets.token_bytes(32), certificates)

    @classmethod
    def load(cls, file: Path, *, tls: bool) -> "_Identity":
        """As kept in a data directory, or a new one."""
        if not file.exists():
            return cls.fresh(tls=tls)
        kept = orjson.loads(file.read_bytes())
        identity = cls(kept["token"], base64.b64decode(kept["key"]), None, kept["port"])
        if tls:
            pems = kept.get("certificates")
            identity.certificates = Certificates(*(pem.encode() for pem in pems)) if pems else make_certificates()
        return identity

    def save(self, file: Path) -> None:
        """Keep it; readable by its owner alone."""
        kept: dict[str, Any] = {"token": self.token, "key": base64.b64encode(self.key).decode(), "port": self.port}
        if self.certificates:
            made = self.certificates
            kept["certificates"] = [pem.decode() for pem in (made.authority, made.certificate, made.key)]
        draft = file.with_suffix(".new")
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600)
        draft.write_bytes(orjson.dumps(kept))
        draft.replace(file)


class EmbeddedCluster:
    """A Kubernetes API in this process. An async context manager: up inside, gone outside."""

    def __init__(
        self,
        name: str,
        *,
        tls: bool = True,
        port: int = 0,
        data_dir: Path | None = None,
        options: ServerOptions | None = None,
    ) -> None:
        self._name, self._tls, self._port = name, tls, port
        self._options = replace(options or ServerOptions(), data_dir=data_dir)
        self._identity: _Identity | None = None
        self.server: ApiServer | None = None

    @property
    def name(self) -> str:
        """What the fleet calls it."""
        return self._name

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self.server is not None, "the cluster is not started"
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.server.port}"

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        assert self._identity is not None, "the cluster is not started"
        return self._identity.token

    @property
    def authority(self) -> bytes | None:
        """The certificate (PEM) that clients trust; None without TLS."""
        assert self._identity is not None, "the cluster is not started"
        return self._identity.certificates.authority if self._identity.certificates else None

    @property
    def kubeconfig(self) -> dict[str, Any]:
        """An administrator's kubeconfig."""
        cluster: dict[str, Any] = {"server": self.url}
        if self.authority:
            cluster["certificate-authority-data"] = base64.b64encode(self.authority).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self._name, "cluster": cluster}],
            "users": [{"name": self._name, "user": {"token": self.token}}],
            "contexts": [{"name": self._name, "context": {"cluster": self._name, "user": self._name}}],
            "current-context": self._name,
        }

    async def start(self) -> None:
        """Bring it up; on return it answers."""
        directory = self._options.data_dir
        if directory:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = directory / "identity.json" if directory else None
        identity = _Identity.load(file, tls=self._tls) if file else _Identity.fresh(tls=self._tls)
        server = ApiServer(identity.token, identity.key, self._options)
        context = identity.certificates.server_context() if identity.certificates else None
        wanted = self._port or identity.port
        try:
            await server.start(port=wanted, context=context)
        except OSError:
            if self._port or not wanted:
                await server.stop()
                raise
            await server.start(context=context)  # the port of the last start was taken meanwhile
        self._identity, self.server = identity, server
        if file and identity.port != server.port:
            identity.port = server.port
            identity.save(file)

    async def stop(self) -> None:
        """Stop it; without a data directory everything in it is gone."""
        server, self.server = self.server, None
        if server:
            with contextlib.suppress(OSError):
                await server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

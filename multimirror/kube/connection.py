"""Where a cluster is and how to be let in: address, TLS and credentials, from a kubeconfig, a Secret or our own pod.

    Connection.from_kubeconfig(None)            a person's own: KUBECONFIG, exec plugins, files, everything
    Connection.strict(secret_bytes, name="w1")  from an API object: self-contained or refused (see kubeconfig.py)
    Connection.in_cluster()                     the service account of this pod
    Connection.own(None, name="management")     in a pod the latter, unless somebody says otherwise; else the first
    Connection.as_kubectl(None)                 the first where there is one; else, in a pod, the latter

Making one does no network I/O and runs no program; that happens when a Client first uses it.
"""

import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from .credentials import (
    SERVICE_ACCOUNT,
    AuthProvider,
    BearerToken,
    Credentials,
    Exec,
    Static,
    TokenFile,
    basic,
    service_address,
)
from .dialing import Dialer, Direct
from .errors import ConfigError
from .kubeconfig import Access, has_kubeconfig, parse_lenient, parse_strict


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach one cluster. `name` is what its errors, logs and metrics call it."""

    name: str
    server: str
    namespace: str = "default"
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    tls_server_name: str | None = None
    proxy: str | None = None
    credentials: Credentials = field(default_factory=Static, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    but_token: Access | None = field(default=None, repr=False, compare=False)
    """All that it was made of, except for the token."""
    dialer: Dialer | None = field(default=None, repr=False, compare=False)
    """Who else makes its connections, where there are several ways to it."""

    @property
    def dial(self) -> Dialer:
        """What makes its connections."""
        direct = Direct(server=self.server, tls=self.tls, tls_server_name=self.tls_server_name, proxy=self.proxy)
        return self.dialer or direct

    def take_token(self, other: Self) -> bool:
        """Go on with the other's token, if that is all the two differ in; requests in flight are not disturbed."""
        ours, theirs = self.credentials, other.credentials
        if not isinstance(ours, BearerToken) or not isinstance(theirs, BearerToken):
            return False
        if self.but_token is None or self.but_token != other.but_token:
            return False
        ours.token = theirs.token
        return True

    @classmethod
    def from_kubeconfig(
        cls, source: Mapping[str, Any] | Path | None = None, context: str | None = None, *, name: str | None = None
    ) -> Self:
        """From a person's own kubeconfig: a mapping, a file, or wherever kubectl would look."""
        return cls._from_access(parse_lenient(source, context), name)

    @classmethod
    def strict(
        cls, source: Mapping[str, Any] | bytes | str, *, name: str | None = None, plain_http: bool = False
    ) -> Self:
        """From a kubeconfig that came out of an API object; refuses whatever is not self-contained."""
        return cls._from_access(parse_strict(source, plain_http=plain_http), name)

    @classmethod
    def in_cluster(cls, *, name: str = "in-cluster", account: Path = SERVICE_ACCOUNT) -> Self:
        """As the service account of the pod that we run in."""
        server = service_address()
        ca, namespace = account / "ca.crt", account / "namespace"
        try:
            tls = tls_context(ca.read_bytes(), field=str(ca))
            own = namespace.read_text().strip() if namespace.exists() else "default"
        except OSError as error:
            raise ConfigError(f"{ca} cannot be read: {error.strerror}") from error
        return cls(name=name, server=server, namespace=own, tls=tls, credentials=TokenFile(account / "token"))

    @classmethod
    def own(cls, kubeconfig: Path | None = None, context: str | None = None, *, name: str) -> Self:
        """The cluster that a process is for: what it was told, or what it is in, or what kubectl would talk to."""
        inside = "KUBERNETES_SERVICE_HOST" in os.environ and not os.environ.get("KUBECONFIG")
        if kubeconfig is None and context is None and inside:
            return cls.in_cluster(name=name)
        return cls.from_kubeconfig(kubeconfig, context, name=name)

    @classmethod
    def as_kubectl(cls, kubeconfig: Path | None = None, context: str | None = None, *, name: str | None = None) -> Self:
        """What kubectl would talk to: a kubeconfig, or in a pod that has none the cluster that it is in."""
        inside = "KUBERNETES_SERVICE_HOST" in os.environ and not has_kubeconfig()
        if kubeconfig is None and context is None and inside:
            return cls.in_cluster(name=name or "in-cluster")
        return cls.from_kubeconfig(kubeconfig, context, name=name)

    @classmethod
    def _from_access(cls, access: Access, name: str | None) -> Self:
        tls = None
        if access.server.startswith("https://"):
            tls = tls_context(
                access.ca, insecure=access.insecure, field="clusters[].cluster.certificate-authority-data"
            )
            if access.client_certificate is not None and access.client_key is not None:
                present(tls, access.client_certificate, access.client_key, field="users[].user.client-certificate-data")
        return cls(
            name=name or access.context,
            server=access.server,
            namespace=access.namespace,
            tls=tls,
            tls_server_name=access.tls_server_name,
            proxy=access.proxy_url,
            credentials=_credentials(access, tls),
            headers=_impersonation(access.impersonate or {}),
            but_token=replace(access, token=None),
        )


def _credentials(access: Access, tls: ssl.SSLContext | None) -> Credentials:
    """The order is kubectl's: a token, then a program, then an auth provider, then a password."""
    if access.token is not None:
        return BearerToken(access.token)
    if access.token_file is not None:
        return TokenFile(access.token_file)
    if access.exec is not None:

        def take(certificate: bytes, key: bytes) -> None:
            if tls is not None:
                present(tls, certificate, key, field="users[].user.exec")

        return Exec(access.exec, take)
    if access.auth_provider is not None:
        return AuthProvider(access.auth_provider)
    if access.basic is not None:
        return basic(*access.basic)
    return Static()


def _impersonation(fields: Mapping[str, Any]) -> dict[str, str]:
    """`kubectl --as` from a kubeconfig. Several groups would need a repeated header, which nobody has asked for yet."""
    headers = {}
    if "as" in fields:
        headers["Impersonate-User"] = str(fields["as"])
    if "as-uid" in fields:
        headers["Impersonate-Uid"] = str(fields["as-uid"])
    groups = fields.get("as-groups") or []
    if len(groups) > 1 or "as-user-extra" in fields:
        raise ConfigError("more than one group, or extra fields, are not supported", field="users[].user.as-groups")
    if groups:
        headers["Impersonate-Group"] = str(groups[0])
    return headers


def tls_context(ca: bytes | None, *, insecure: bool = False, field: str = "ca") -> ssl.SSLContext:
    """Trusts that CA alone; the system's own when there is none.

    Not `create_default_context` with a CA: from Python 3.13 on it refuses CAs without a key usage extension, which
    many clusters have.
    """
    if ca is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=ca.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise ConfigError("holds no PEM certificate", field=field) from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def present(context: ssl.SSLContext, certificate: bytes, key: bytes, *, field: str) -> None:
    """Show this client certificate from the next handshake on.

    OpenSSL's Python door takes paths only. The pair goes through memory where the system can do that (nothing to
    leak, and a read-only root is fine), else through a private file that is gone at once.
    """
    content = certificate.rstrip() + b"\n" + key
    try:
        if hasattr(os, "memfd_create"):
            with os.fdopen(os.memfd_create("client-certificate"), "wb") as memory:
                memory.write(content)
                memory.flush()
                context.load_cert_chain(f"/proc/self/fd/{memory.fileno()}")
        else:
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory, "client.pem")
                path.touch(mode=0o600)
                path.write_bytes(content)
                context.load_cert_chain(path)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError("is not a PEM certificate with its own, unencrypted key", field=field) from error

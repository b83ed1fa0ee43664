"""The certificates and keys of one control plane: two authorities, and what each component shows to the others.

Cluster authority: the API server's serving certificate and every client's; etcd has its own authority, so that no
client of the API server is a client of etcd. Elliptic keys, because RSA keys take seconds to make. Files are 0600 in a
directory that is 0700; made once for each home.
"""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEARS: Final = 10
SERVICE_IP: Final = "10.0.0.1"
_SERVER_NAMES: Final = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True, slots=True)
class Pair:
    certificate: Path
    key: Path


class Authority:
    """Signs certificates; its own is written beside them."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            _builder(subject, subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(True, False, False, False, False, True, True, False, False),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        _write(directory / f"{name}.crt", self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, file: str, user: str, *, group: str | None = None, server: bool = False) -> Pair:
        """A client's certificate (user and group as Kubernetes reads them); with `server`, a server's as well."""
        names = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group is not None:
            names.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if server else [])]
        builder = (
            _builder(x509.Name(names), self._certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if server:
            addresses = [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ("127.0.0.1", SERVICE_IP)]
            builder = builder.add_extension(
                x509.SubjectAlternativeName([*(x509.DNSName(name) for name in _SERVER_NAMES), *addresses]),
                critical=False,
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        pair = Pair(self._directory / f"{file}.crt", self._directory / f"{file}.key")
        _write(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        _write(pair.key, _private(key))
        return pair


@dataclass(frozen=True, slots=True)
class Pki:
    """Where each file is; `make` fills the directory on first use."""

    directory: Path

    @property
    def ca(self) -> Path:
        return self.directory / "cluster-ca.crt"

    @property
    def etcd_ca(self) -> Path:
        return self.directory / "etcd-ca.crt"

    @property
    def service_account_key(self) -> Path:
        return self.directory / "service-account.key"

    @property
    def service_account_public(self) -> Path:
        return self.directory / "service-account.pub"

    def pair(self, name: str) -> Pair:
        return Pair(self.directory / f"{name}.crt", self.directory / f"{name}.key")

    def make(self) -> None:
        complete = self.directory / "complete"
        if complete.exists():
            return
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        cluster, etcd = Authority(self.directory, "cluster-ca"), Authority(self.directory, "etcd-ca")
        cluster.issue("apiserver", "kube-apiserver", server=True)
        cluster.issue("admin", "admin", group="system:masters")
        for component in ("kube-controller-manager", "kube-scheduler"):
            cluster.issue(component, f"system:{component}", server=True)
        etcd.issue("etcd", "etcd", server=True)
        etcd.issue("etcd-client", "kube-apiserver")
        key = ec.generate_private_key(ec.SECP256R1())
        _write(self.service_account_key, _private(key))
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        _write(self.service_account_public, public)
        complete.touch()


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + dt.timedelta(days=365 * _YEARS))
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600, exist_ok=True)
    path.write_bytes(content)

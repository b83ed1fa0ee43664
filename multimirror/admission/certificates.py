"""The webhook's certificates: made by us, renewed long before they end, shared by all replicas in one Secret.

Each generation is an authority of its own with one server certificate; the authority's key is thrown away as soon as it
has signed, so that there is nothing with which anybody could ever sign another. A renewal takes two steps, so that no
API server meets a certificate whose authority it has not been told of:

1. a next generation is stored beside the current one, and its authority is trusted (the webhook configuration gets it);
2. when the configuration has it, and `settled` has passed so that API servers have heard, it becomes the current one.
   The old authority stays trusted until it ends, for replicas that have not seen the change yet.

`plan` is a pure function of what is stored: any replica may take any step, and dying between two is no harm.
"""

import base64
import binascii
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_PEM: Final = serialization.Encoding.PEM
_SKEW: Final = timedelta(hours=1)  # clocks differ


@dataclass(frozen=True, slots=True)
class Schedule:
    """When certificates are renewed."""

    lifetime: timedelta = timedelta(days=90)
    renew_before: timedelta = timedelta(days=30)
    settled: timedelta = timedelta(minutes=10)

    def __post_init__(self) -> None:
        if not self.settled < self.renew_before < self.lifetime:
            raise ValueError("settled < renew_before < lifetime must hold")


@dataclass(frozen=True, slots=True)
class Generation:
    """A server certificate with its key (PEM)."""

    certificate: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def ends(self) -> datetime:
        return self.parsed.not_valid_after_utc

    @property
    def made(self) -> datetime:
        return self.parsed.not_valid_before_utc + _SKEW

    def whole(self) -> bool:
        """Whether certificate and key belong together. Raises ValueError if one of them is none."""
        key = serialization.load_pem_private_key(self.key, None)
        return key.public_key() == self.parsed.public_key()

    def covers(self, hosts: Iterable[str]) -> bool:
        """Whether it is valid for all these host names and addresses."""
        try:
            names = self.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return False
        known = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
        return known.issuperset(hosts)


@dataclass(frozen=True, slots=True)
class Certificates:
    """What is stored: the generation in use, the next one if a renewal is under way, and whom to trust."""

    current: Generation
    trusted: bytes
    """The authorities (PEM, one after another), newest first."""
    next: Generation | None = None

    @classmethod
    def read(cls, data: Mapping[str, str] | None) -> Self | None:
        """From the data of a Secret; None if that is not (or no longer) what we stored."""
        try:
            values = {key: base64.b64decode(value, validate=True) for key, value in (data or {}).items()}
            current = Generation(values["tls.crt"], values["tls.key"])
            coming = Generation(values["next.crt"], values["next.key"]) if "next.crt" in values else None
            for generation in filter(None, (current, coming)):
                if not generation.whole():
                    return None
            x509.load_pem_x509_certificates(values["ca.crt"])
        except (KeyError, ValueError, TypeError, binascii.Error):
            return None
        return cls(current, values["ca.crt"], coming)

    def data(self) -> dict[str, str]:
        """As the data of a Secret (type kubernetes.io/tls)."""
        values = {"tls.crt": self.current.certificate, "tls.key": self.current.key, "ca.crt": self.trusted}
        if self.next:
            values |= {"next.crt": self.next.certificate, "next.key": self.next.key}
        return {key: base64.b64encode(value).decode() for key, value in values.items()}


def plan(
    stored: Certificates | None, hosts: tuple[str, ...], now: datetime, schedule: Schedule, *, injected: bool
) -> Certificates:
    """What should be stored; the same as `stored` when nothing is to be done.

    `injected`: the webhook configuration names all authorities that are trusted.
    """
    if stored is None or stored.current.ends <= now or not stored.current.covers(hosts):
        generation, authority = _issue(hosts, now, schedule.lifetime)
        return Certificates(generation, authority)
    coming = stored.next
    if coming and not coming.covers(hosts):
        coming = None
    if coming and injected and now >= coming.made + schedule.settled:
        return Certificates(coming, _living(stored.trusted, now))
    if coming is None and now >= stored.current.ends - schedule.renew_before:
        coming, authority = _issue(hosts, now, schedule.lifetime)
        return Certificates(stored.current, authority + _living(stored.trusted, now), coming)
    return replace(stored, next=coming)


def due(stored: Certificates, now: datetime, schedule: Schedule) -> float:
    """The seconds until there is something to do, if nothing else happens."""
    moment = stored.next.made + schedule.settled if stored.next else stored.current.ends - schedule.renew_before
    return max(1.0, (moment - now).total_seconds())


def _living(authorities: bytes, now: datetime) -> bytes:
    parsed = x509.load_pem_x509_certificates(authorities)
    return b"".join(each.public_bytes(_PEM) for each in parsed if each.not_valid_after_utc > now)


def _issue(hosts: tuple[str, ...], now: datetime, lifetime: timedelta) -> tuple[Generation, bytes]:
    """A server certificate, and the authority that signed it."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    # Each authority has a name of its own: two of one name, both trusted, are a riddle to some verifiers.
    authority_name = _name(f"multimirror-admission-ca {now.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}")
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(_name("multimirror-admission"), authority_name, key.public_key(), now, lifetime)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Generation(certificate.public_bytes(_PEM), private), authority.public_bytes(_PEM)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lifetime)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )

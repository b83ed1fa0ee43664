"""The webhook's certificates, under an authority that the installation brings.

Whoever installs multimirror makes an authority, stores it (certificate and key) in a Secret that the webhook reads, and
names it in the webhook's registration. The webhook writes neither: each replica issues itself a certificate under that
authority, keeps it in memory, and issues another one long before it ends. The Secret may also hold a certificate for
our address that somebody else signs and renews (cert-manager, a company's own authority): then that is shown.

The authority is trusted by nobody but API servers that call this one webhook: its key is worth no more than the key of
a certificate for it.

`serving` is a pure function of what is stored, what is shown, and the time.
"""

import base64
import binascii
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
LIFETIME: Final = timedelta(days=30)
_PEM: Final = serialization.Encoding.PEM
_SKEW: Final = timedelta(hours=1)  # clocks differ


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with its key (PEM): an authority, or what a server shows."""

    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, data: Mapping[str, str] | None) -> Self | None:
        """From the data of a Secret (type kubernetes.io/tls); None if that is not what it holds."""
        try:
            values = {key: base64.b64decode((data or {})[key], validate=True) for key in ("tls.crt", "tls.key")}
            found = cls(values["tls.crt"], values["tls.key"])
            key = serialization.load_pem_private_key(found.key, None)
            whole = key.public_key() == found.parsed.public_key()
        except (KeyError, ValueError, TypeError, binascii.Error):
            return None
        return found if whole else None

    def data(self) -> dict[str, str]:
        """As the data of a Secret."""
        values = {"tls.crt": self.certificate, "tls.key": self.key}
        return {key: base64.b64encode(value).decode() for key, value in values.items()}

    @property
    def parsed(self) -> x509.Certificate:
        """Of a chain the first."""
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def begins(self) -> datetime:
        return self.parsed.not_valid_before_utc

    @property
    def ends(self) -> datetime:
        return self.parsed.not_valid_after_utc

    @property
    def is_authority(self) -> bool:
        """Whether it may sign others."""
        try:
            return self.parsed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except x509.ExtensionNotFound:
            return False

    def covers(self, hosts: Iterable[str]) -> bool:
        """Whether it is valid for all these host names and addresses."""
        try:
            names = self.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return False
        known = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
        return known.issuperset(hosts)

    def is_trusted_by(self, bundle: bytes) -> bool:
        """Whether one of these authorities (PEM, one after another) is this, or has signed it or one of its chain."""
        try:
            authorities = x509.load_pem_x509_certificates(bundle)
        except ValueError:
            return False
        chain = x509.load_pem_x509_certificates(self.certificate)
        return any(authority == shown or _has_signed(authority, shown) for authority in authorities for shown in chain)


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def serving(stored: KeyPair, shown: KeyPair | None, hosts: tuple[str, ...], now: datetime) -> KeyPair:
    """What is to be shown from now on, given what the Secret has and what is shown."""
    if not stored.is_authority:
        return stored
    if shown is None or now >= _renewal(shown) or not shown.is_trusted_by(stored.certificate):
        return issue(stored, hosts, now)
    return shown


def due(shown: KeyPair, now: datetime) -> float:
    """The seconds until another one is to be issued."""
    return max(1.0, (_renewal(shown) - now).total_seconds())


def _renewal(shown: KeyPair) -> datetime:
    return shown.begins + (shown.ends - shown.begins) * 2 / 3


def new_authority(now: datetime, lifetime: timedelta = AUTHORITY_LIFETIME) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    # Each has a name of its own: two of one name, both trusted, are a riddle to some verifiers.
    name = _name(f"multimirror-admission-ca {x509.random_serial_number():x}"[:64])
    certificate = (
        _builder(name, name, key.public_key(), now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate.public_bytes(_PEM), _private(key))


def issue(authority: KeyPair, hosts: tuple[str, ...], now: datetime, lifetime: timedelta = LIFETIME) -> KeyPair:
    """A server's certificate under an authority, for so long, and no longer than that lives itself."""
    signer = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signer, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise ValueError("the authority's key is of a kind that is not supported: make it ECDSA or RSA")  # noqa: TRY004
    issuer, key = authority.parsed, ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(
            _name("multimirror-admission"), issuer.subject, key.public_key(), now, min(now + lifetime, authority.ends)
        )
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_identifier(issuer), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return KeyPair(certificate.public_bytes(_PEM), _private(key))


def _identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        known = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        key = issuer.public_key()
        assert isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey))
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(end)
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

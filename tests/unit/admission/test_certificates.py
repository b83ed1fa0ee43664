"""The webhook's certificates: issued under the installation's authority, and renewed long before they end."""

import base64
import datetime as dt
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from multimirror.admission.certificates import KeyPair, due, issue, new_authority, serving

HOSTS = ("multimirror-admission.multimirror-system.svc",)
START = datetime(2026, 11, 16, tzinfo=UTC)
DAY = timedelta(days=1)
AUTHORITY = new_authority(START)


def test_a_certificate_is_valid_for_its_hosts_and_signed_by_the_authority() -> None:
    shown = issue(AUTHORITY, ("a.b.svc", "127.0.0.1", "::1"), START)
    assert shown.covers(("127.0.0.1", "a.b.svc"))
    assert not shown.covers(("elsewhere",))
    assert shown.is_trusted_by(AUTHORITY.certificate)
    assert not shown.is_trusted_by(new_authority(START).certificate)
    assert (shown.is_authority, AUTHORITY.is_authority) == (False, True)


def test_what_is_stored_is_read_back_and_what_was_spoilt_is_not() -> None:
    data = AUTHORITY.data()
    assert KeyPair.read(data) == AUTHORITY
    assert KeyPair.read(None) is None
    for key in data:
        for value in (None, "not base64!", base64.b64encode(b"garbage").decode(), new_authority(START).data()[key]):
            assert KeyPair.read({name: text for name, text in {**data, key: value}.items() if text is not None}) is None


def test_nothing_is_issued_while_there_is_time_and_then_it_is_done_early() -> None:
    shown = serving(AUTHORITY, None, HOSTS, START)
    assert serving(AUTHORITY, shown, HOSTS, START + 19 * DAY) is shown
    assert due(shown, START) > (19 * DAY).total_seconds()
    renewed = serving(AUTHORITY, shown, HOSTS, START + 21 * DAY)
    assert renewed.ends - shown.ends == 21 * DAY


def test_under_another_authority_there_is_another_certificate() -> None:
    shown, other = serving(AUTHORITY, None, HOSTS, START), new_authority(START)
    assert serving(other, shown, HOSTS, START).is_trusted_by(other.certificate)


def test_what_somebody_else_issued_is_shown_as_it_is() -> None:
    theirs = issue(AUTHORITY, HOSTS, START)
    assert serving(theirs, None, HOSTS, START) == theirs
    assert serving(theirs, issue(AUTHORITY, HOSTS, START), HOSTS, START) == theirs


def test_a_certificate_does_not_outlive_its_authority() -> None:
    short = new_authority(START, timedelta(days=3))
    assert issue(short, HOSTS, START).ends == short.ends


def test_an_authority_of_helms_making_will_do() -> None:
    """`genCA`: RSA, in the older of the two formats."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "multimirror-admission-ca")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(START)
        .not_valid_after(START + dt.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    found = KeyPair.read(KeyPair(certificate.public_bytes(pem), private).data())
    assert found is not None
    assert issue(found, HOSTS, START).is_trusted_by(found.certificate)


@pytest.mark.parametrize("bundle", [b"", b"garbage"])
def test_nobody_is_trusted_by_nothing(bundle: bytes) -> None:
    assert not AUTHORITY.is_trusted_by(bundle)

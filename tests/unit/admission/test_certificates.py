"""Certificates over their life: made, renewed in two steps, never a moment without trust."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from multimirror.admission import Registration, Schedule, Service
from multimirror.admission.certificates import Certificates, due, plan
from multimirror.admission.registration import covers

HOSTS = ("multimirror.multimirror-system.svc",)
START = datetime(2026, 11, 16, tzinfo=UTC)
SCHEDULE = Schedule(lifetime=timedelta(days=90), renew_before=timedelta(days=30), settled=timedelta(minutes=10))
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


def fresh() -> Certificates:
    return plan(None, HOSTS, START, SCHEDULE, injected=False)


def authorities(certificates: Certificates) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(certificates.trusted)


def is_trusted(certificates: Certificates) -> bool:
    """The certificate in use was signed by one of the authorities that are trusted."""
    for authority in authorities(certificates):
        try:
            certificates.current.parsed.verify_directly_issued_by(authority)
        except ValueError:
            continue
        return True
    return False


def test_the_first_certificate_is_valid_for_its_hosts_and_signed_by_whom_we_trust() -> None:
    made = plan(None, ("a.b.svc", "127.0.0.1", "::1"), START, SCHEDULE, injected=False)
    assert made.current.covers(("127.0.0.1", "a.b.svc"))
    assert not made.current.covers(("elsewhere",))
    assert (made.current.made, made.current.ends) == (START, START + 90 * DAY)
    assert len(authorities(made)) == 1
    assert is_trusted(made)


def test_what_is_stored_is_read_back() -> None:
    made = fresh()
    assert Certificates.read(made.data()) == made
    renewing = plan(made, HOSTS, START + 61 * DAY, SCHEDULE, injected=True)
    assert Certificates.read(renewing.data()) == renewing


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize(
    "value",
    [None, "not base64!", base64.b64encode(b"garbage").decode(), fresh().data()["tls.key"]],
    ids=["gone", "not base64", "garbage", "of another"],
)
def test_what_was_spoilt_is_made_anew(key: str, value: str | None) -> None:
    spoilt = {name: text for name, text in {**fresh().data(), key: value}.items() if text is not None}
    assert Certificates.read(spoilt) is None
    assert Certificates.read(None) is None


def test_nothing_is_done_while_there_is_time() -> None:
    made = fresh()
    for days in (0, 1, 59):
        assert plan(made, HOSTS, START + days * DAY, SCHEDULE, injected=True) == made
    assert due(made, START, SCHEDULE) == (60 * DAY).total_seconds()


def test_a_renewal_is_announced_first_and_used_when_everybody_heard() -> None:
    made = fresh()
    begin = START + 60 * DAY
    renewing = plan(made, HOSTS, begin, SCHEDULE, injected=True)
    assert renewing.current == made.current
    assert len(authorities(renewing)) == 2
    assert due(renewing, begin, SCHEDULE) == 600
    assert plan(renewing, HOSTS, begin + 9 * MINUTE, SCHEDULE, injected=True) == renewing
    assert plan(renewing, HOSTS, begin + 11 * MINUTE, SCHEDULE, injected=False) == renewing, "not announced yet"
    renewed = plan(renewing, HOSTS, begin + 11 * MINUTE, SCHEDULE, injected=True)
    assert (renewed.current, renewed.next) == (renewing.next, None)
    assert renewed.trusted == renewing.trusted, "replicas that still show the old one are still trusted"


def test_over_years_there_is_always_a_valid_trusted_certificate_and_few_authorities() -> None:
    stored = fresh()
    now = START
    generations = {stored.current.certificate}
    while now < START + 730 * DAY:
        now += timedelta(hours=5)
        stored = plan(stored, HOSTS, now, SCHEDULE, injected=True)
        assert stored.current.ends > now
        assert is_trusted(stored)
        assert len(authorities(stored)) <= 3
        generations.add(stored.current.certificate)
    assert 12 <= len(generations) <= 13


def test_a_certificate_that_ended_or_has_the_wrong_name_is_replaced_at_once() -> None:
    made = fresh()
    for hosts, now in ((HOSTS, START + 91 * DAY), (("new.name.svc",), START + DAY)):
        replaced = plan(made, hosts, now, SCHEDULE, injected=True)
        assert replaced.current.covers(hosts)
        assert replaced.current.ends > now
        assert is_trusted(replaced)


def test_a_schedule_that_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match="settled < renew_before < lifetime"):
        Schedule(lifetime=DAY, renew_before=2 * DAY)


def test_a_webhook_is_reached_in_one_way() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Registration()
    with pytest.raises(ValueError, match="exactly one"):
        Registration(url="https://localhost:1/admit", service=Service("a", "b"))
    assert Registration(url="https://127.0.0.1:9443/admit").hosts() == ("127.0.0.1",)
    assert Registration(service=Service("ns", "svc")).hosts() == ("svc.ns.svc",)


def test_what_others_added_to_the_configuration_is_theirs() -> None:
    wanted = Registration(service=Service("ns", "svc")).configuration(b"ca")
    live = {**wanted, "metadata": {**wanted["metadata"], "annotations": {"theirs": "yes"}}}
    live["webhooks"] = [{**webhook, "matchPolicy": "Equivalent"} for webhook in wanted["webhooks"]]
    assert covers(live, wanted)
    assert not covers(live, Registration(service=Service("ns", "svc")).configuration(b"other"))
    live["webhooks"][0]["failurePolicy"] = "Ignore"
    assert not covers(live, wanted)

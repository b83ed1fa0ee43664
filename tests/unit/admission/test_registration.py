"""The webhook's registration: what it lacks, and what does not belong into it."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from multimirror.admission.certificates import issue, new_authority
from multimirror.admission.registration import Registration, Service, registered_manager

Json = dict[str, Any]
NOW = datetime(2026, 11, 16, tzinfo=UTC)
OURS = Registration(service=Service("ours", "multimirror-admission"))
AUTHORITY = new_authority(NOW)
SHOWN = issue(AUTHORITY, OURS.hosts(), NOW)
SECRETS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"], "scope": "*"}


def live() -> Json:
    """As an API server shows it, with its defaults."""
    found = copy.deepcopy(OURS.configuration(AUTHORITY.certificate))
    for webhook in found["webhooks"]:
        webhook.setdefault("namespaceSelector", {})
        webhook["matchPolicy"] = "Equivalent"
    return found


def test_what_is_registered_as_it_should_be_lacks_nothing_and_has_nothing_foreign() -> None:
    assert OURS.missing(live(), SHOWN) == []
    assert OURS.foreign(live()) == []


def test_another_entry_under_our_name_is_foreign() -> None:
    found = live()
    found["webhooks"].append({"name": "all.secrets", "clientConfig": {}, "rules": [SECRETS]})
    assert OURS.foreign(found) == ["the webhook all.secrets is not ours"]
    assert OURS.missing(found, SHOWN) == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        pytest.param("rules", [SECRETS], "rules of labelled.jobs.multimirror.dev is not ours", id="it sees Secrets"),
        pytest.param("objectSelector", {}, "objectSelector of labelled.jobs", id="it sees every Job"),
        pytest.param("clientConfig", {"url": "https://evil"}, "calls another address", id="somebody else sees them"),
    ],
)
def test_an_entry_of_ours_that_was_widened_is_foreign(key: str, value: Any, words: str) -> None:
    found = live()
    found["webhooks"][0][key] = value
    (told,) = OURS.foreign(found)
    assert words in told


def test_what_is_missing_is_named() -> None:
    assert len(OURS.missing(None, SHOWN)) == 2
    found = live()
    found["webhooks"][0]["failurePolicy"] = "Ignore"
    found["webhooks"][1]["clientConfig"]["caBundle"] = "eA=="
    first, second = OURS.missing(found, SHOWN)
    assert "fails open" in first
    assert "an authority that our certificate is not from" in second


def test_the_manager_is_read_off() -> None:
    other = Registration(url="https://127.0.0.1:1/admit", manager="example.com/other")
    assert registered_manager(other.configuration(b"")) == "example.com/other"
    assert registered_manager({"webhooks": [{"matchConditions": [{"name": "x", "expression": "true"}]}]}) is None

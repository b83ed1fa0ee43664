"""When a worker's token is renewed and the one before revoked, as a table."""

import base64
import json
from typing import Any

import pytest

from multimirror.workers.tokens import (
    LONGEST_SECONDS,
    NotOurs,
    Renew,
    Revoke,
    Slots,
    Step,
    TokenClaims,
    Wait,
    claims_of,
    decide,
    expiry_of,
    slot_secret,
    token_request,
)
from tests.unit.workers.fake_cluster import a_token

SLOTS = Slots.of("origin", "east")
A, B = SLOTS.names
DAY = 24 * 3600.0
OURS = {"app.kubernetes.io/part-of": "multimirror"}


def claims(**fields: Any) -> TokenClaims:
    return TokenClaims(**{"namespace": "s", "account": "m", "issued": 0.0, "expires": DAY, "secret": A, **fields})


def secret(labels: dict[str, str] | None = None, revoke: str | None = None) -> dict[str, Any]:
    annotations = {"multimirror.dev/revoke": revoke} if revoke else {}
    return {"metadata": {"labels": OURS if labels is None else labels, "annotations": annotations}}


@pytest.mark.parametrize(
    ("token", "stored", "now", "step"),
    [
        pytest.param(claims(), secret(), 100.0, Wait(DAY / 2), id="fresh: not before half of its time is over"),
        pytest.param(claims(), secret(), DAY / 2, Renew(B, DAY), id="half of its time is over: the other slot"),
        pytest.param(claims(secret=B), secret(), DAY / 2, Renew(A, DAY), id="and back again"),
        pytest.param(claims(), secret(), 2 * DAY, Renew(B, DAY), id="over: tried all the same, its session may live"),
        pytest.param(
            claims(expires=DAY * 30), secret(), DAY * 20, Renew(B, LONGEST_SECONDS), id="never more than a day"
        ),
        pytest.param(claims(expires=100.0), secret(), 60.0, Renew(B, 600.0), id="never less than the API gives"),
        pytest.param(claims(), secret(revoke=B), 100.0, Revoke(B), id="the one before is still there"),
        pytest.param(claims(), secret(revoke=B), DAY, Revoke(B), id="it goes before anything else is made"),
        pytest.param(claims(), secret(revoke=A), 100.0, Wait(DAY / 2), id="never the one that is in use"),
        pytest.param(claims(), secret(revoke="other"), 100.0, Wait(DAY / 2), id="nor anything that is no slot of ours"),
        pytest.param(None, secret(), DAY, NotOurs(), id="a certificate, or an opaque token"),
        pytest.param(claims(), secret(labels={}), DAY, NotOurs(), id="a Secret that the operator has made"),
        pytest.param(claims(secret=None), secret(), DAY, NotOurs(), id="a token that is bound to nothing"),
        pytest.param(claims(secret="else"), secret(), DAY, NotOurs(), id="one that is bound to something else"),
        pytest.param(claims(expires=None), secret(), DAY, NotOurs(), id="one without an end"),
    ],
)
def test_what_is_done_about_a_token(token: TokenClaims | None, stored: dict[str, Any], now: float, step: Step) -> None:
    assert decide(token, stored, SLOTS, now) == step


def test_slots_are_of_one_worker_cluster_of_one_management_cluster() -> None:
    all_names = {name for origin in ("x", "y") for worker in ("a", "b") for name in Slots.of(origin, worker).names}
    assert len(all_names) == 8
    assert all(len(name) < 64 for name in all_names)


def test_a_token_says_when_it_ends_and_what_it_is_bound_to() -> None:
    token = a_token(1000.0, DAY, A)
    assert claims_of(token) == TokenClaims("multimirror-system", "multimirror", 1000.0 + DAY, 1000.0, A)
    assert expiry_of(token) == 1000.0 + DAY
    assert claims_of(a_token(0.0, None, None)) == TokenClaims("multimirror-system", "multimirror")


def encoded(claims: Any) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.x"


@pytest.mark.parametrize(
    "token",
    [
        None,
        "",
        "opaque",
        "a.b.c",
        encoded([]),
        encoded({"exp": "soon"}),
        encoded({"kubernetes.io": []}),
        encoded({"kubernetes.io": {"namespace": "x", "serviceaccount": "y"}}),
        encoded({"exp": [], "kubernetes.io": {"namespace": "x", "serviceaccount": {"name": "y"}}}),
    ],
)
def test_what_is_no_token_of_a_service_account_is_told_apart(token: str | None) -> None:
    assert claims_of(token) is None
    assert expiry_of(token) is None


def test_a_slot_holds_nothing_and_a_token_is_asked_for_with_its_uid() -> None:
    made = slot_secret(A)
    assert "data" not in made
    assert "stringData" not in made
    assert made["type"] == "Opaque"
    assert token_request(DAY, A, "uid-1")["spec"] == {
        "expirationSeconds": 86400,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": A, "uid": "uid-1"},
    }

"""The kubeconfig that is stored for a worker: self-contained or refused, and known to end."""

import base64
import json
from datetime import UTC, datetime

import pytest

from multimirror.cli.credentials import expiry, joined_by, kubeconfig_in, secret_of, self_contained, trial_connection
from multimirror.kube.errors import ConfigError
from multimirror.kube.kubeconfig import Access, parse_strict

HERE = Access(context="c", server="https://east:6443", ca=b"-----BEGIN CERTIFICATE-----", client_certificate=b"x")


def a_token(expires: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"e30.{claims}.signature"


def test_what_is_stored_holds_the_token_and_nothing_of_the_administrators() -> None:
    config = self_contained(HERE, "t", name="east", server="https://10.0.0.1:6443")
    assert config["users"] == [{"name": "multimirror", "user": {"token": "t"}}]
    read = parse_strict(kubeconfig_in(secret_of("worker-east", config, "kubeconfig"), "kubeconfig") or b"")
    assert (read.server, read.token, read.ca, read.client_certificate) == ("https://10.0.0.1:6443", "t", HERE.ca, None)


@pytest.mark.parametrize(
    ("access", "field"),
    [
        pytest.param(Access(context="c", server="https://e:1", insecure=True), "insecure-skip-tls-verify", id="no TLS"),
        pytest.param(Access(context="c", server="http://example.com"), "server", id="http"),
        pytest.param(Access(context="c", server="https://e:1", proxy_url="http://p"), "proxy-url", id="by a proxy"),
    ],
)
def test_what_the_dispatcher_would_refuse_is_refused_at_once(access: Access, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        self_contained(access, "t", name="east")


def test_a_cluster_that_its_administrator_reaches_by_a_proxy_is_stored_with_an_address_of_its_own() -> None:
    access = Access(context="c", server="https://e:1", proxy_url="http://p")
    config = self_contained(access, "t", name="east", server="https://10.0.0.1:6443")
    assert config["clusters"][0]["cluster"] == {"server": "https://10.0.0.1:6443"}


def test_a_token_tells_when_it_ends() -> None:
    access = Access(context="c", server="https://e:1", token=a_token(1_800_000_000))
    assert expiry(access) == datetime.fromtimestamp(1_800_000_000, UTC)
    assert expiry(Access(context="c", server="https://e:1", token="opaque")) is None


@pytest.mark.parametrize("data", [None, {}, {"other": "eA=="}, {"kubeconfig": "not base64!"}])
def test_a_secret_without_anything_readable(data: dict[str, str] | None) -> None:
    assert kubeconfig_in({"data": data}, "kubeconfig") is None


def test_a_token_is_tried_by_the_way_of_the_administrator() -> None:
    access = Access(context="c", server="https://e:1", proxy_url="http://p", tls_server_name="api")
    connection = trial_connection(access, "t", name="east")
    assert (connection.server, connection.proxy, connection.tls_server_name) == ("https://e:1", "http://p", "api")


def test_a_token_is_not_sent_in_the_clear_by_who_has_come_through_a_local_proxy() -> None:
    access = Access(context="c", server="http://127.0.0.1:8001")
    assert trial_connection(access, "t", name="east", server="https://e:1").server == "https://e:1"


def test_the_address_of_the_join_stands_beside_the_dispatchers() -> None:
    config = self_contained(HERE, "t", name="east", server="https://10.0.0.1:6443")
    secret = secret_of("worker-east", config, "kubeconfig", joined_by=HERE)
    assert joined_by(secret, HERE) == HERE.server


def test_a_way_by_somebodys_own_proxy_is_nobody_elses() -> None:
    access = Access(context="c", server="https://e:1", proxy_url="http://user:password@p", ca=HERE.ca)
    config = self_contained(access, "t", name="east", server="https://10.0.0.1:6443")
    assert "annotations" not in secret_of("worker-east", config, "kubeconfig", joined_by=access)["metadata"]

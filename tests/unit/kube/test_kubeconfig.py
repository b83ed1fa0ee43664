"""Kubeconfigs: a person's own may say anything; one from an API object is self-contained or refused by field."""

import base64
import copy
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from multimirror.kube import Client, Connection
from multimirror.kube.errors import ConfigError, Unauthorized, Unreachable
from tests.unit.kube.servers import THINGS, Seen, Server, Wire, a_thing, status

CA = trustme.CA()
CERTIFICATE = CA.issue_cert("me@example.dev")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def a_kubeconfig(**user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}],
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": "https://127.0.0.1:6443",
                    "certificate-authority-data": encoded(CA.cert_pem.bytes()),
                },
            }
        ],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
    }


def with_cluster(**fields: Any) -> dict[str, Any]:
    config = a_kubeconfig()
    config["clusters"][0]["cluster"] |= fields
    return config


def changed(**fields: Any) -> dict[str, Any]:
    return a_kubeconfig() | fields


@pytest.mark.parametrize("form", ["mapping", "bytes", "string"])
async def test_a_self_contained_kubeconfig_from_a_secret_is_taken(form: str) -> None:
    config = a_kubeconfig()
    text = yaml.safe_dump(config)
    forms: dict[str, Any] = {"mapping": config, "bytes": text.encode(), "string": text}
    connection = Connection.strict(forms[form], name="worker-1")
    assert connection.server == "https://127.0.0.1:6443"
    assert (connection.name, connection.namespace) == ("worker-1", "team-a")
    assert await connection.credentials.authorization() == "Bearer secret"
    assert "secret" not in repr(connection)


def test_a_client_certificate_from_a_secret_is_taken() -> None:
    pem = CERTIFICATE.cert_chain_pems[0].bytes()
    user = {"client-certificate-data": encoded(pem), "client-key-data": encoded(CERTIFICATE.private_key_pem.bytes())}
    assert Connection.strict(a_kubeconfig(**user)).tls is not None


REFUSED = [
    pytest.param(a_kubeconfig(exec={"command": "sh"}), "users[0].user.exec", id="a program"),
    pytest.param(a_kubeconfig(**{"auth-provider": {"name": "gcp"}}), "users[0].user.auth-provider", id="auth provider"),
    pytest.param(a_kubeconfig(username="me", password="x"), "users[0].user.username", id="basic auth"),
    pytest.param(a_kubeconfig(password="x"), "users[0].user.password", id="a password"),
    pytest.param(a_kubeconfig(tokenFile="/var/run/token"), "users[0].user.tokenFile", id="a token file"),
    pytest.param(a_kubeconfig(**{"client-certificate": "/a"}), "users[0].user.client-certificate", id="a cert file"),
    pytest.param(a_kubeconfig(**{"client-key": "/a"}), "users[0].user.client-key", id="a key file"),
    pytest.param(a_kubeconfig(impersonate="x"), "users[0].user.impersonate", id="an unknown field"),
    pytest.param(
        with_cluster(**{"certificate-authority": "/etc/passwd"}),
        "clusters[0].cluster.certificate-authority",
        id="a CA file",
    ),
    pytest.param(
        with_cluster(**{"insecure-skip-tls-verify": True}),
        "clusters[0].cluster.insecure-skip-tls-verify",
        id="TLS verification switched off",
    ),
    pytest.param(with_cluster(**{"proxy-url": "http://evil:1"}), "clusters[0].cluster.proxy-url", id="a proxy"),
    pytest.param(with_cluster(server="http://10.0.0.1:80"), "clusters[].cluster.server", id="no TLS"),
    pytest.param(with_cluster(server="http://localhost:80"), "clusters[].cluster.server", id="no TLS, to this host"),
    pytest.param(with_cluster(server="http://127.0.0.1:80"), "clusters[].cluster.server", id="no TLS, to loopback"),
    pytest.param(with_cluster(server="http://[::1]:80"), "clusters[].cluster.server", id="no TLS, to loopback by IPv6"),
    pytest.param(with_cluster(server="file:///etc"), "clusters[0].cluster.server", id="not a web address"),
    pytest.param(with_cluster(server="https://u:p@h"), "clusters[0].cluster.server", id="a password in the address"),
    pytest.param(with_cluster(server="https://h:99999"), "clusters[0].cluster.server", id="an impossible port"),
    pytest.param(with_cluster(server=None), "clusters[0].cluster.server", id="no address"),
    pytest.param(
        with_cluster(**{"certificate-authority-data": "%%%"}),
        "clusters[0].cluster.certificate-authority-data",
        id="a CA that is not base64",
    ),
    pytest.param(
        with_cluster(**{"certificate-authority-data": encoded(b"no PEM")}),
        "clusters[].cluster.certificate-authority-data",
        id="a CA that is no certificate",
    ),
    pytest.param(a_kubeconfig(token=["x"]), "users[0].user.token", id="a token that is a list"),
    pytest.param(a_kubeconfig(token="x\r\nHost: evil"), "users[0].user.token", id="a token with a line break"),
    pytest.param(
        a_kubeconfig(token="t", **{"as": "x\r\nAuthorization: Bearer evil"}),
        "users[0].user.as",
        id="a line break in as",
    ),
    pytest.param(a_kubeconfig(token="t", **{"as": ["x"]}), "users[0].user.as", id="as that is a list"),
    pytest.param(
        a_kubeconfig(token="t", **{"as": "x", "as-uid": "1\n2"}), "users[0].user.as-uid", id="a line break in as-uid"
    ),
    pytest.param(
        a_kubeconfig(token="t", **{"as": "x", "as-groups": ["system:masters\r\nX: y"]}),
        "users[0].user.as-groups[0]",
        id="a line break in a group",
    ),
    pytest.param(
        a_kubeconfig(token="t", **{"as": "x", "as-groups": "system:masters"}),
        "users[0].user.as-groups",
        id="groups that are no list",
    ),
    pytest.param(
        a_kubeconfig(token="t", **{"as": "x", "as-user-extra": {"a\r\nb": ["c"]}}),
        "users[0].user.as-user-extra",
        id="a line break in the name of an extra",
    ),
    pytest.param(
        a_kubeconfig(token="t", **{"as": "x", "as-user-extra": {"a": ["c\x1b"]}}),
        "users[0].user.as-user-extra",
        id="a control character in an extra",
    ),
    pytest.param(a_kubeconfig(token="t\u00e9"), "users[0].user.token", id="a token that no header can hold"),
    pytest.param(a_kubeconfig(**{"client-key-data": encoded(b"x")}), "users[0].user", id="a key without certificate"),
    pytest.param(
        a_kubeconfig(**{"client-certificate-data": encoded(b"x"), "client-key-data": encoded(b"x")}),
        "users[].user.client-certificate-data",
        id="a certificate that is none",
    ),
    pytest.param(
        changed(**{"current-context": None, "contexts": a_kubeconfig()["contexts"] * 2}),
        "current-context",
        id="several contexts, none current",
    ),
    pytest.param(changed(contexts=[], **{"current-context": None}), "current-context", id="no context"),
    pytest.param(changed(**{"current-context": "other"}), "contexts", id="a current context that is not there"),
    pytest.param(changed(clusters=[]), "clusters", id="a cluster that is not there"),
    pytest.param(changed(users=[]), "users", id="a user that is not there"),
    pytest.param(changed(users={"u": {}}), "users", id="users that are no list"),
    pytest.param(changed(users=["u"]), "users[0]", id="a user that is no mapping"),
    pytest.param(changed(kind="Secret"), "kind", id="another kind of object"),
    pytest.param([1, 2], "", id="a list"),
    pytest.param("just text", "", id="text"),
    pytest.param(b"\xff\xfe\x00", "", id="binary"),
    pytest.param("a: [", "", id="broken YAML"),
    pytest.param("!!python/object/apply:os.system ['true']", "", id="YAML that wants to run something"),
    pytest.param(None, "", id="nothing"),
]


@pytest.mark.parametrize(("config", "field"), REFUSED)
def test_a_kubeconfig_from_a_secret_is_refused_by_the_name_of_the_field(config: Any, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Connection.strict(copy.deepcopy(config))
    assert caught.value.field == field
    assert "secret" not in str(caught.value)


def test_a_poisoned_entry_is_refused_even_when_the_current_context_does_not_use_it() -> None:
    config = a_kubeconfig()
    config["users"].append({"name": "other", "user": {"exec": {"command": "sh"}}})
    with pytest.raises(ConfigError, match=r"users\[1\]\.user\.exec: programs are never run"):
        Connection.strict(config)


async def test_a_person_may_use_files_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(CA.cert_pem.bytes())
    (tmp_path / "token").write_text("from-file\n")
    config = a_kubeconfig(tokenFile="token")
    config["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:6443/", "certificate-authority": "ca.pem"}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    connection = Connection.from_kubeconfig(tmp_path / "config")
    assert connection.server == "https://127.0.0.1:6443"
    assert await connection.credentials.authorization() == "Bearer from-file"


async def test_several_files_in_the_environment_are_merged_first_come_first_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = changed(users=[{"name": "u", "user": {"token": "one"}}], clusters=[])
    second = changed(users=[{"name": "u", "user": {"token": "two"}}], **{"current-context": "nowhere"})
    (tmp_path / "1").write_text(yaml.safe_dump(first))
    (tmp_path / "2").write_text(yaml.safe_dump(second))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{tmp_path}/1:{tmp_path}/2")
    connection = Connection.from_kubeconfig()
    assert connection.name == "it"
    assert await connection.credentials.authorization() == "Bearer one"


def test_a_kubeconfig_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no kubeconfig at"):
        Connection.from_kubeconfig(tmp_path / "nothing")


def test_outside_a_cluster_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="does not run inside a cluster"):
        Connection.in_cluster()


async def test_inside_a_cluster_the_pods_service_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "ca.crt").write_bytes(CA.cert_pem.bytes())
    (tmp_path / "token").write_text("mounted")
    (tmp_path / "namespace").write_text("multimirror-system")
    connection = Connection.in_cluster(account=tmp_path)
    assert connection.server == "https://[fd00::1]:443"
    assert connection.namespace == "multimirror-system"
    assert await connection.credentials.authorization() == "Bearer mounted"


def test_a_process_in_a_pod_uses_its_service_account_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(ConfigError, match=r"serviceaccount/ca\.crt cannot be read"):
        Connection.own(name="it")
    named = tmp_path / "named"
    with pytest.raises(ConfigError, match=f"there is no kubeconfig at {named}"):
        Connection.own(named, name="it")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "listed"))
    with pytest.raises(ConfigError, match=f"there is no kubeconfig at {tmp_path / 'listed'}"):
        Connection.own(name="it")


def test_a_command_in_a_pod_uses_its_service_account_where_there_is_no_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"serviceaccount/ca\.crt cannot be read"):
        Connection.as_kubectl()
    with pytest.raises(ConfigError, match="there is no kubeconfig at"):
        Connection.as_kubectl(context="other")
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(yaml.safe_dump(a_kubeconfig()))
    assert Connection.as_kubectl().server == "https://127.0.0.1:6443", "as kubectl, which looks there first"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "listed"))
    with pytest.raises(ConfigError, match=f"there is no kubeconfig at {tmp_path / 'listed'}"):
        Connection.as_kubectl()


class TestExecPlugin:
    """A program of a person's own kubeconfig."""

    @staticmethod
    def program(path: Path, status: dict[str, Any]) -> dict[str, Any]:
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        path.write_text(f"#!/bin/sh\necho run >> {path}.runs\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return {"command": str(path), "apiVersion": answer["apiVersion"], "interactiveMode": "Never"}

    async def test_gives_the_token_once_and_again_when_the_server_rejects_it(
        self, server: Server, tmp_path: Path
    ) -> None:
        spec = self.program(tmp_path / "login", {"token": "fresh"})
        config = a_kubeconfig(exec=spec)
        config["clusters"][0]["cluster"] = {"server": server.connection().server}

        async def check(seen: Seen, wire: Wire) -> None:
            assert seen.headers["authorization"] == "bearer fresh"
            await wire.answer(200, a_thing("a"))

        server.then(check)
        server.then(check)
        server.then_answer(401, status(401, "Unauthorized", "expired"))
        async with Client(Connection.from_kubeconfig(config, name="worker-1")) as client:
            await client.get(THINGS, "a", "default")
            await client.get(THINGS, "a", "default")
            assert (tmp_path / "login.runs").read_text().count("run") == 1
            with pytest.raises(Unauthorized, match="cluster worker-1: expired"):
                await client.get(THINGS, "a", "default")
        assert (tmp_path / "login.runs").read_text().count("run") == 2
        assert len(server.seen) == 4

    async def test_that_expires_is_run_again(self, tmp_path: Path) -> None:
        spec = self.program(tmp_path / "login", {"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"})
        credentials = Connection.from_kubeconfig(a_kubeconfig(exec=spec)).credentials
        assert await credentials.authorization() == "Bearer t"
        assert await credentials.authorization() == "Bearer t"
        assert (tmp_path / "login.runs").read_text().count("run") == 2

    async def test_may_give_a_client_certificate(self, tmp_path: Path) -> None:
        pair = {
            "clientCertificateData": CERTIFICATE.cert_chain_pems[0].bytes().decode(),
            "clientKeyData": CERTIFICATE.private_key_pem.bytes().decode(),
        }
        credentials = Connection.from_kubeconfig(a_kubeconfig(exec=self.program(tmp_path / "l", pair))).credentials
        assert await credentials.authorization() is None

    async def test_that_cannot_be_run_is_told(self, server: Server, tmp_path: Path) -> None:
        spec = {"command": str(tmp_path / "nothing"), "apiVersion": "client.authentication.k8s.io/v1"}
        config = a_kubeconfig(exec=spec)
        config["clusters"][0]["cluster"] = {"server": server.connection().server}
        async with Client(Connection.from_kubeconfig(config, name="worker-1")) as client:
            with pytest.raises(Unauthorized, match=r"cluster worker-1: users\[\]\.user\.exec: .*nothing cannot be run"):
                await client.get(THINGS, "a", "default")


def bomb() -> str:
    """A merge of merges of merges: a few hundred bytes that take half a minute."""
    lines = ["kind: Config", "x0: &x0 {a: b}"]
    lines += [f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 9)}]}}" for n in range(1, 9)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(bomb(), "anchors or aliases", id="a merge bomb"),
        pytest.param("kind: Config\na: &a b\nc: *a\n", "anchors or aliases", id="an alias"),
        pytest.param("kind: Config\n<<: {a: b}\n", "merge keys", id="a merge key"),
        pytest.param("kind: Config\na: !!int '1'\n", "tags", id="a tag"),
        pytest.param("kind: Config\na: " + "[" * 30_000, "nested deeper", id="a deep one"),
        pytest.param("kind: Config\na:\n" + "- b\n" * 15_000, "more than 5000 values", id="many values"),
        pytest.param("kind: Config\na: " + "x" * 70_000, "larger than 64 KiB", id="a large one"),
        pytest.param('{"a": ' * 2000 + "1" + "}" * 2000, "nested deeper", id="deep JSON"),
    ],
)
def test_a_kubeconfig_that_costs_more_than_it_shows_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Connection.strict(text.encode())


def test_numbers_that_take_long_to_read_are_texts() -> None:
    config = a_kubeconfig(token="TOKEN")
    text = yaml.safe_dump(config).replace("TOKEN", ":".join(["1"] * 10_000))
    assert Connection.strict(text.encode()).credentials is not None


def test_a_kubeconfig_in_json_is_taken() -> None:
    assert Connection.strict(json.dumps(a_kubeconfig()).encode()).server == "https://127.0.0.1:6443"


def test_a_persons_own_kubeconfig_may_have_aliases_and_be_larger(tmp_path: Path) -> None:
    config = a_kubeconfig(token="t") | {"extensions": [{"name": "x", "extension": "y" * 100_000}]}
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(config) + "a: &a b\nc: *a\n")
    assert Connection.from_kubeconfig(file).server == "https://127.0.0.1:6443"
    file.write_text("x" * 2_000_000)
    with pytest.raises(ConfigError, match="larger than 1024 KiB"):
        Connection.from_kubeconfig(file)


@pytest.mark.parametrize(
    "address",
    [
        f"https://{'a' * 64}.example:6443",
        "https://a..b",
        "https://.a",
        "https://a\0b",
        "https://a b",
        "https://a/\x1b[31m",
        "https://a/→",
        "https://a/x HTTP/1.1 y",
    ],
)
def test_an_address_that_no_request_can_go_to_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="server"):
        Connection.strict(with_cluster(server=address), name="worker-1")


@pytest.mark.parametrize("name", [".a", "a..b", "a\0b", "a" * 300])
def test_a_server_name_that_no_certificate_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="tls-server-name"):
        Connection.strict(with_cluster(**{"tls-server-name": name}), name="worker-1")


@pytest.mark.parametrize("scheme", ["https", "socks5"])
async def test_a_proxys_password_goes_to_no_proxy_that_expects_it_otherwise(scheme: str, server: Server) -> None:
    config = with_cluster(**{"proxy-url": f"{scheme}://me:secret@127.0.0.1:{server.port}"})
    async with Client(Connection.from_kubeconfig(config), timeout=5.0) as client:
        with pytest.raises(Unreachable, match="only http:// is"):
            await client.get(THINGS, "x", "team-a")
    assert server.connections == 0

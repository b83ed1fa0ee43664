"""Command lines, log excerpts, ports."""

import socket
from pathlib import Path

import pytest

from clusters.local import components
from clusters.local.components import Layout, Ports
from clusters.local.logs import telling_lines
from clusters.local.options import LocalOptions
from clusters.local.ports import free_ports

LAYOUT = Layout(Path("/home/worker-1"))
PORTS = Ports(etcd=1, etcd_peer=2, apiserver=3, controller_manager=4, scheduler=5)


def test_the_api_server_trusts_only_its_own_authority_and_authorizes_by_rbac() -> None:
    flags = components.apiserver(LAYOUT, PORTS, LocalOptions(), ["*"])
    assert "--authorization-mode=RBAC" in flags
    assert "--client-ca-file=/home/worker-1/pki/cluster-ca.crt" in flags
    assert "--etcd-servers=https://127.0.0.1:1" in flags
    assert not [flag for flag in flags if "insecure" in flag or flag.endswith("=0.0.0.0")]


@pytest.mark.parametrize(
    ("options", "component", "expected"),
    [
        pytest.param(
            LocalOptions(feature_gates={"B": False, "A": True}),
            "apiserver",
            "--feature-gates=A=true,B=false",
            id="feature gates",
        ),
        pytest.param(
            LocalOptions(runtime_config={"scheduling.k8s.io/v1alpha1": True}),
            "apiserver",
            "--runtime-config=scheduling.k8s.io/v1alpha1=true",
            id="runtime config",
        ),
        pytest.param(
            LocalOptions(audit_log=True), "apiserver", "--audit-log-path=/home/worker-1/audit.log", id="audit"
        ),
        pytest.param(
            LocalOptions(controllers=()),
            "apiserver",
            "--disable-admission-plugins=ServiceAccount",
            id="without controllers pods need no service account",
        ),
        pytest.param(LocalOptions(sync_writes=False), "etcd", "--unsafe-no-fsync=true", id="throw-away state"),
        pytest.param(
            LocalOptions(controller_manager_qps=20), "controller_manager", "--kube-api-qps=20", id="client limits"
        ),
        pytest.param(
            LocalOptions(feature_gates={"A": True}),
            "controller_manager",
            "--feature-gates=A=true",
            id="gates everywhere",
        ),
        pytest.param(
            LocalOptions(extra_args={"kube-scheduler": ["--v=4"]}), "scheduler", "--v=4", id="extra flags come last"
        ),
    ],
)
def test_an_option_becomes_a_flag(options: LocalOptions, component: str, expected: str) -> None:
    argv = {
        "etcd": lambda: components.etcd(LAYOUT, PORTS, options),
        "apiserver": lambda: components.apiserver(LAYOUT, PORTS, options, options.controllers),
        "controller_manager": lambda: components.controller_manager(LAYOUT, PORTS, options, ["*"]),
        "scheduler": lambda: components.scheduler(LAYOUT, PORTS, options),
    }[component]()
    assert expected in argv


def test_the_stock_job_controller_can_be_switched_off() -> None:
    argv = components.controller_manager(LAYOUT, PORTS, LocalOptions(), ["*", "-job-controller"])
    assert "--controllers=*,-job-controller" in argv
    assert "--use-service-account-credentials=true" in argv


def test_kept_state_is_synced_to_disk() -> None:
    assert not [flag for flag in components.etcd(LAYOUT, PORTS, LocalOptions(sync_writes=True)) if "fsync" in flag]


def test_the_telling_lines_of_a_log_are_its_errors_each_once() -> None:
    log = "\n".join(
        [
            "I1116 01:02:03.000000   11 server.go:1] starting",
            *(f"E1116 01:02:0{second}.000000   11 etcd.go:9] cannot connect" for second in range(5)),
            '{"level":"fatal","ts":"2026-11-16T01:02:03Z","msg":"listen tcp: bind: address already in use"}',
            "I1116 01:02:09.000000   11 server.go:1] bye",
        ]
    )
    assert telling_lines(log) == [
        "E1116 01:02:04.000000   11 etcd.go:9] cannot connect",
        '{"level":"fatal","ts":"2026-11-16T01:02:03Z","msg":"listen tcp: bind: address already in use"}',
    ]


def test_a_log_without_errors_is_told_by_its_end() -> None:
    assert telling_lines("one\n\ntwo\nthree\n", limit=2) == ["two", "three"]


def test_ports_are_all_different_and_can_be_bound_by_number() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))

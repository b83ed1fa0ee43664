"""The command lines of a control plane: pure functions from what is wanted to what is run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusters.local.options import LocalOptions
from clusters.local.pki import Pki

SERVICE_RANGE: Final = "10.0.0.0/16"

AUDIT_POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
"""


@dataclass(frozen=True, slots=True)
class Ports:
    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the files of one cluster are."""

    directory: Path

    @property
    def pki(self) -> Pki:
        return Pki(self.directory / "pki")

    @property
    def etcd_data(self) -> Path:
        return self.directory / "etcd"

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    @property
    def audit_policy(self) -> Path:
        return self.directory / "audit-policy.yaml"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def log(self, component: str) -> Path:
        return self.directory / f"{component}.log"

    def kubeconfig_of(self, component: str) -> Path:
        return self.directory / f"{component}.kubeconfig"


def etcd(layout: Layout, ports: Ports, options: LocalOptions) -> list[str]:
    pair = layout.pki.pair("etcd")
    client, peer = f"https://127.0.0.1:{ports.etcd}", f"https://127.0.0.1:{ports.etcd_peer}"
    flags: dict[str, str | Path] = {
        "name": "default",
        "data-dir": layout.etcd_data,
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        # a kept home gets new ports at each start; a cluster of one member has nobody to confuse by that
        **({"force-new-cluster": "true"} if (layout.etcd_data / "member").exists() else {}),
        "trusted-ca-file": layout.pki.etcd_ca,
        "cert-file": pair.certificate,
        "key-file": pair.key,
        "client-cert-auth": "true",
        "peer-trusted-ca-file": layout.pki.etcd_ca,
        "peer-cert-file": pair.certificate,
        "peer-key-file": pair.key,
        "peer-client-cert-auth": "true",
        "log-level": "warn",
        "quota-backend-bytes": str(4 * 1024**3),
        **({} if options.sync_writes else {"unsafe-no-fsync": "true"}),
    }
    return _flags(flags, options.extra_args.get("etcd", ()))


def apiserver(layout: Layout, ports: Ports, options: LocalOptions, controllers: Sequence[str]) -> list[str]:
    pki = layout.pki
    serving, etcd_client = pki.pair("apiserver"), pki.pair("etcd-client")
    flags = {
        "bind-address": "127.0.0.1",
        "secure-port": str(ports.apiserver),
        "advertise-address": "127.0.0.1",
        "endpoint-reconciler-type": "none",  # endpoints must not be loopback addresses, and nobody reads these
        "tls-cert-file": serving.certificate,
        "tls-private-key-file": serving.key,
        "client-ca-file": pki.ca,
        "etcd-servers": f"https://127.0.0.1:{ports.etcd}",
        "etcd-cafile": pki.etcd_ca,
        "etcd-certfile": etcd_client.certificate,
        "etcd-keyfile": etcd_client.key,
        "authorization-mode": "RBAC",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-signing-key-file": pki.service_account_key,
        "service-account-key-file": pki.service_account_public,
        "service-cluster-ip-range": SERVICE_RANGE,
        "allow-privileged": "true",
        "profiling": "false",
        **_joined("disable-admission-plugins", _disabled_admission(options, controllers)),
        **_joined("feature-gates", _gates(options.feature_gates)),
        **_joined("runtime-config", [f"{api}={_bool(on)}" for api, on in sorted(options.runtime_config.items())]),
        **({"audit-log-path": layout.audit_log, "audit-policy-file": layout.audit_policy} if options.audit_log else {}),
    }
    return _flags(flags, options.extra_args.get("kube-apiserver", ()))


def controller_manager(layout: Layout, ports: Ports, options: LocalOptions, controllers: Iterable[str]) -> list[str]:
    flags = {
        **_delegated(layout, "kube-controller-manager", ports.controller_manager),
        "controllers": ",".join(controllers),
        "use-service-account-credentials": "true",  # each controller its own account, and its own name in the audit log
        "service-account-private-key-file": layout.pki.service_account_key,
        "root-ca-file": layout.pki.ca,
        "kube-api-qps": f"{options.controller_manager_qps:g}",
        "kube-api-burst": f"{max(1, round(options.controller_manager_qps * 1.5))}",
        "profiling": "false",
        **_joined("feature-gates", _gates(options.feature_gates)),
    }
    return _flags(flags, options.extra_args.get("kube-controller-manager", ()))


def scheduler(layout: Layout, ports: Ports, options: LocalOptions) -> list[str]:
    flags = {
        **_delegated(layout, "kube-scheduler", ports.scheduler),
        "kube-api-qps": f"{options.controller_manager_qps:g}",
        "kube-api-burst": f"{max(1, round(options.controller_manager_qps * 1.5))}",
        "profiling": "false",
        **_joined("feature-gates", _gates(options.feature_gates)),
    }
    return _flags(flags, options.extra_args.get("kube-scheduler", ()))


def _delegated(layout: Layout, component: str, port: int) -> dict[str, str | Path]:
    kubeconfig, serving = layout.kubeconfig_of(component), layout.pki.pair(component)
    return {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "client-ca-file": layout.pki.ca,
        "bind-address": "127.0.0.1",
        "secure-port": str(port),
        "tls-cert-file": serving.certificate,
        "tls-private-key-file": serving.key,
        "leader-elect": "false",
    }


def _disabled_admission(options: LocalOptions, controllers: Sequence[str]) -> list[str]:
    """Pods need a service account, which a controller makes: without controllers there is none to need."""
    without = [] if controllers else ["ServiceAccount"]
    return [*without, *(plugin for plugin in options.disable_admission_plugins if plugin not in without)]


def _gates(gates: Mapping[str, bool]) -> list[str]:
    return [f"{gate}={_bool(on)}" for gate, on in sorted(gates.items())]


def _joined(flag: str, values: list[str]) -> dict[str, str | Path]:
    return {flag: ",".join(values)} if values else {}


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _flags(flags: Mapping[str, str | Path], extra: Iterable[str]) -> list[str]:
    return [*(f"--{name}={value}" for name, value in flags.items()), *extra]

"""One control plane: etcd, kube-apiserver, kube-controller-manager and, when asked, kube-scheduler.

Ready means that the API server says so at /readyz, that the other components say so at /healthz and, where service
accounts are made at all, that the default namespace has its own: pods can be created.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from clusters.fleet import FleetError, Kubeconfig
from clusters.kubeconfigs import write_kubeconfig
from clusters.local import components, probe
from clusters.local.binaries import Binaries
from clusters.local.components import Layout, Ports
from clusters.local.options import LocalOptions
from clusters.local.pki import Pair
from clusters.local.ports import free_ports
from clusters.local.processes import Process, Processes

ETCD: Final = "etcd"
APISERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"

_READY_SECONDS: Final = 120.0
_PROBE_SECONDS: Final = 0.1
_PORT_TRIES: Final = 3

_Check = Callable[[], Awaitable[str | None]]


class StartError(FleetError):
    """A component did not come up; carries the lines of its log that say why."""


class PortTakenError(StartError):
    """Somebody else got the port between our choice and the component's start."""


class LocalCluster:
    def __init__(
        self, name: str, directory: Path, binaries: Binaries, options: LocalOptions, processes: Processes
    ) -> None:
        self.name = name
        self.binaries = binaries
        self.layout = Layout(directory)
        self._options = options
        self._controllers = tuple(options.controllers_of.get(name, options.controllers))
        self._all = processes
        self._ports: Ports | None = None
        self._tls: ssl.SSLContext | None = None
        self.processes: dict[str, Process] = {}

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports.apiserver}"

    @property
    def ports(self) -> Ports:
        if self._ports is None:
            raise RuntimeError(f"cluster {self.name} is not started")
        return self._ports

    @property
    def kubeconfig(self) -> Kubeconfig:
        return self._kubeconfig(_inline(self.layout.pki.pair("admin")))

    @property
    def kubeconfig_file(self) -> Path:
        """The administrator's kubeconfig as a file, for kubectl and others; as short-lived as the cluster."""
        return self.layout.kubeconfig

    @property
    def audit_log(self) -> Path:
        return self.layout.audit_log

    def kubeconfig_with_token(self, token: str) -> Kubeconfig:
        """For a service account, or whoever else has a bearer token."""
        return self._kubeconfig({"token": token})

    async def start(self) -> None:
        self.layout.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        await asyncio.to_thread(self.layout.pki.make)
        self.layout.audit_policy.write_text(components.AUDIT_POLICY)
        self._tls = probe.tls(str(self.layout.pki.ca), self.layout.pki.pair("admin"))
        for attempt in range(1, _PORT_TRIES + 1):
            self._ports = Ports(*free_ports(5))
            try:
                await self._start_components()
            except PortTakenError:
                for process in self.processes.values():
                    await process.kill()
                if attempt == _PORT_TRIES:
                    raise
            else:
                return

    async def _start_components(self) -> None:
        self._write_kubeconfigs()
        self._define()
        # The API server waits for etcd by itself, so that the two come up side by side.
        await self.processes[ETCD].start()
        await self.processes[APISERVER].start()
        await self._until(self._apiserver_ready, ETCD, APISERVER)
        others = [name for name in (CONTROLLER_MANAGER, SCHEDULER) if name in self.processes]
        for name in others:
            await self.processes[name].start()
        for name in others:
            await self._until(self._health_of(name), *self.processes)
        if self._makes_service_accounts():
            await self._until(self._default_account, *self.processes)

    async def restart(self, component: str) -> None:
        """Stop it in order and start it again, on the same port and data; on return it answers."""
        await self.processes[component].stop()
        await self.start_again(component)

    async def start_again(self, component: str) -> None:
        """After `kill` or `stop` of a single component."""
        await self.processes[component].start()
        if component in (ETCD, APISERVER):
            await self._until(self._apiserver_ready, component)
        else:
            await self._until(self._health_of(component), component)

    async def get(self, path: str) -> dict[str, Any]:
        """A GET as administrator, for those who come before any client does."""
        assert self._tls is not None
        answer = await probe.ask(self.ports.apiserver, path, self._tls)
        body: dict[str, Any] = json.loads(answer.body)
        return body

    def _define(self) -> None:
        layout, ports, options = self.layout, self.ports, self._options
        argv = {
            ETCD: components.etcd(layout, ports, options),
            APISERVER: components.apiserver(layout, ports, options, self._controllers),
        }
        if self._controllers:
            argv[CONTROLLER_MANAGER] = components.controller_manager(layout, ports, options, self._controllers)
        if options.scheduler:
            argv[SCHEDULER] = components.scheduler(layout, ports, options)
        self.processes = {
            component: self._all.process(
                f"{self.name}/{component}", [str(self.binaries[component]), *flags], layout.log(component)
            )
            for component, flags in argv.items()
        }

    def _write_kubeconfigs(self) -> None:
        write_kubeconfig(self.layout.kubeconfig, self.kubeconfig)
        for component in (CONTROLLER_MANAGER, SCHEDULER):
            pair = self.layout.pki.pair(component)
            write_kubeconfig(self.layout.kubeconfig_of(component), self._kubeconfig(_inline(pair)))

    def _kubeconfig(self, user: dict[str, str]) -> Kubeconfig:
        ca = base64.b64encode(self.layout.pki.ca.read_bytes()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.name, "cluster": {"server": self.server, "certificate-authority-data": ca}}],
            "users": [{"name": self.name, "user": user}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": self.name}}],
            "current-context": self.name,
        }

    def _makes_service_accounts(self) -> bool:
        chosen = self._controllers
        return "serviceaccount-controller" in chosen or (
            "*" in chosen and "-serviceaccount-controller" not in chosen and "-*" not in chosen
        )

    async def _apiserver_ready(self) -> str | None:
        assert self._tls is not None
        answer = await probe.ask(self.ports.apiserver, "/readyz?verbose", self._tls)
        if answer.status == 200:
            return None
        failing = [line for line in answer.body.decode(errors="replace").splitlines() if line.startswith("[-]")]
        return "; ".join(failing) or f"/readyz answers {answer.status}"

    def _health_of(self, component: str) -> _Check:
        port = self.ports.scheduler if component == SCHEDULER else self.ports.controller_manager

        async def check() -> str | None:
            assert self._tls is not None
            answer = await probe.ask(port, "/healthz", self._tls)
            return None if answer.status == 200 else f"/healthz answers {answer.status}"

        return check

    async def _default_account(self) -> str | None:
        assert self._tls is not None
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        answer = await probe.ask(self.ports.apiserver, path, self._tls)
        return None if answer.status == 200 else "namespace default has no service account yet"

    async def _until(self, check: _Check, *components_needed: str) -> None:
        """Until the check passes. A component that ends in the meantime is an error at once, not after the timeout."""
        watched = [self.processes[name] for name in components_needed]
        last: str | None = "no answer yet"
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while last is not None:
                    for process in watched:
                        if not process.running:
                            raise _ended(process)
                    try:
                        last = await check()
                    except (OSError, ssl.SSLError) as error:
                        last = str(error) or type(error).__name__
                    if last is not None:
                        await asyncio.sleep(_PROBE_SECONDS)
        except TimeoutError:
            lines = [line for process in watched for line in _quoted(process)]
            told = f"cluster {self.name} was not ready after {_READY_SECONDS:g} s: {last}"
            raise StartError("\n".join([told, *lines])) from None


def _ended(process: Process) -> StartError:
    lines = _quoted(process)
    told = f"{process.name} ended with exit code {process.exit_code} while starting"
    kind = PortTakenError if any("address already in use" in line for line in lines) else StartError
    return kind("\n".join([told, *lines]))


def _quoted(process: Process) -> list[str]:
    return [f"  {process.log}:", *(f"    {line}" for line in process.why())]


def _inline(pair: Pair) -> dict[str, str]:
    return {
        "client-certificate-data": base64.b64encode(pair.certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(pair.key.read_bytes()).decode(),
    }

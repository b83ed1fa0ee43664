"""The command line: what to do, and the flags for it. `multimirror run --help` lists them."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import prometheus_client

from clusters.fleet import FleetError
from multimirror.admission import PATH, Registration, Service
from multimirror.api import MANAGED_BY
from multimirror.cli.admitting import AdmissionSettings
from multimirror.cli.running import Settings, serve
from multimirror.dispatch import DispatcherOptions
from multimirror.kube import ConfigError, KubeError, LeadershipLost, configure_logging, run


def main(arguments: Sequence[str] | None = None) -> int:
    """0 after a regular end, 1 when leadership was lost (start again), 2 when it could not start."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command == "demo":
        return _demo(given)
    try:
        settings = _settings(given)
    except ValueError as error:
        parser.error(str(error))
    configure_logging("json" if given.log_format == "json" else "text", given.log_level)
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
    try:
        run(lambda stop: serve(settings, stop))
    except LeadershipLost:
        return 1
    except (ConfigError, KubeError, OSError) as error:
        print(f"multimirror: {error}", file=sys.stderr)  # noqa: T201 - a command tells why it does not start
        return 2
    return 0


def _demo(given: argparse.Namespace) -> int:
    from multimirror.cli.demo import demo  # noqa: PLC0415 - the controller in its pod needs no fleets

    try:
        return asyncio.run(demo(given.fleet, given.workers, keep=given.keep))
    except (FleetError, KubeError, OSError) as error:
        print(f"multimirror: {error}", file=sys.stderr)  # noqa: T201 - a command tells why it does not start
        return 2
    except KeyboardInterrupt:
        return 0


def _settings(given: argparse.Namespace) -> Settings:
    host, port = _address("--health-address", given.health_address)
    return Settings(
        kubeconfig=given.kubeconfig,
        context=given.context,
        identity=given.identity,
        leader_elect=not given.no_leader_election,
        health_host=host,
        health_port=port,
        concurrency=given.concurrency,
        dispatcher=DispatcherOptions(
            managed_by=given.managed_by,
            namespace=given.namespace,
            kubeconfig_directory=given.kubeconfig_directory,
            concurrency=given.concurrency,
            worker_concurrency=given.worker_concurrency,
        ),
        admission=_admission(given),
    )


def _admission(given: argparse.Namespace) -> AdmissionSettings | None:
    service, url = given.admission_service, given.admission_url
    if service is None and url is None:
        return None
    if service is not None and url is not None:
        raise ValueError("--admission-service and --admission-url: give only one of them")
    if url is not None and (not url.startswith("https://") or not url.endswith(PATH)):
        raise ValueError(f"--admission-url: must be https://HOST:PORT{PATH}, not {url!r}")
    host, port = _address("--admission-address", given.admission_address)
    return AdmissionSettings(
        host=host,
        port=port,
        registration=Registration(
            service=Service(given.namespace, service) if service is not None else None,
            url=url,
            manager=given.managed_by,
        ),
        namespace=given.namespace,
    )


def _address(flag: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit():
        raise ValueError(f"{flag}: {text!r} has no port; write :8080 or 127.0.0.1:8080")
    return host or "0.0.0.0", int(port)  # noqa: S104 - kubelets, Prometheus and API servers are outside the pod


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="multimirror", description="Runs Jobs on worker clusters, and mirrors them.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    runs = commands.add_parser(
        "run",
        help="run the dispatcher",
        description="Runs the dispatcher: Jobs of the management cluster get a worker, a copy there, and its status.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    runs.add_argument("--kubeconfig", type=Path, help="of the management cluster; without it: as kubectl, or our pod's")
    runs.add_argument("--context", help="the kubeconfig's context; without it: the current one")
    runs.add_argument("--identity", help="our name as a candidate for leadership; without it: the host's, and a number")
    runs.add_argument("--no-leader-election", action="store_true", help="be the only one; nothing checks that it is so")
    runs.add_argument("--namespace", default="multimirror-system", help="our own: Secrets of workers, and the lease")
    runs.add_argument(
        "--kubeconfig-directory", type=Path, help="where WorkerClusters may name files; without it: nowhere"
    )
    runs.add_argument("--managed-by", default=MANAGED_BY, help="the spec.managedBy of the Jobs that are ours")
    runs.add_argument("--concurrency", type=_positive, default=16, help="calls in flight to the management cluster")
    runs.add_argument("--worker-concurrency", type=_positive, default=16, help="calls in flight to each worker")
    runs.add_argument("--health-address", default=":8080", help="where /healthz, /readyz and /metrics are")
    runs.add_argument("--admission-service", help="serve the admission webhook behind this Service of our namespace")
    runs.add_argument("--admission-url", help=f"serve it at this URL (https://HOST:PORT{PATH}), outside of the cluster")
    runs.add_argument("--admission-address", default=":9443", help="where the admission webhook listens")
    runs.add_argument("--log-format", choices=("json", "text"), default="json")
    runs.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    shows = commands.add_parser(
        "demo",
        help="a fleet on this machine, and a few dozen Jobs on it",
        description="Brings up a management cluster and workers on this machine, lets a few dozen Jobs run, cuts a "
        "worker off on the way, and counts what became of them. Takes less than a minute.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    shows.add_argument(
        "--fleet", choices=("embedded", "local"), default="embedded", help="what the clusters are made of"
    )
    shows.add_argument("--workers", type=_positive, default=3, help="how many worker clusters")
    shows.add_argument("--keep", action="store_true", help="leave the fleet up until Ctrl-C, to look around in it")
    return parser


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)

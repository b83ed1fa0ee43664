"""The command line: flags in the words of kube-controller-manager, checked before anything starts."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builtin_controller.options import GATES, LOCKED, Options
from multimirror.batch.durations import DurationError, parse_duration
from multimirror.kube.addresses import parse_address


@dataclass(frozen=True, slots=True)
class Flags:
    """The command line, read."""

    options: Options
    kubeconfig: Path | None
    context: str | None
    metrics_host: str | None
    metrics_port: int
    qps: float | None
    burst: int | None
    concurrency: int
    leader_elect: bool
    lease_duration: float
    renew_deadline: float
    retry_period: float
    lease_name: str
    lease_namespace: str
    log_format: str
    log_level: str
    unknown_gates: Sequence[str] = ()


def parse(arguments: Sequence[str] | None = None) -> Flags:
    """Read the command line; what is wrong with it is told on stderr, with exit code 2."""
    line = parser()
    given = line.parse_args(arguments)
    try:
        gates, unknown = _gates(given.feature_gates)
        options = Options(
            controller_name=given.controller_name,
            workers=given.workers,
            sync_batch_period=given.sync_batch_period,
            pod_backoff_base=given.pod_backoff_base,
            pod_backoff_max=given.pod_backoff_max,
            max_uncounted_pods=given.max_uncounted_pods,
            max_pods_per_sync=given.max_pods_per_sync,
            namespace=given.namespace or None,
            gates=gates,
        )
        host, port = _address(given.metrics_bind_address)
        _check_lease(given)
    except ValueError as error:
        line.error(str(error))
    return Flags(
        options=options,
        kubeconfig=given.kubeconfig,
        context=given.context,
        metrics_host=host,
        metrics_port=port,
        qps=given.kube_api_qps if given.kube_api_qps > 0 else None,
        burst=given.kube_api_burst if given.kube_api_burst > 0 else None,
        concurrency=given.kube_api_concurrency,
        leader_elect=given.leader_elect,
        lease_duration=given.leader_elect_lease_duration,
        renew_deadline=given.leader_elect_renew_deadline,
        retry_period=given.leader_elect_retry_period,
        lease_name=given.leader_elect_resource_name,
        lease_namespace=given.leader_elect_resource_namespace,
        log_format=given.log_format,
        log_level=given.log_level,
        unknown_gates=unknown,
    )


def _check_lease(given: argparse.Namespace) -> None:
    retry, renew = given.leader_elect_retry_period, given.leader_elect_renew_deadline
    if not 0 < retry < renew < given.leader_elect_lease_duration:
        raise ValueError(
            "--leader-elect-retry-period must be shorter than --leader-elect-renew-deadline, "
            "and that shorter than --leader-elect-lease-duration"
        )


def duration(text: str) -> float:
    """`1m30s`, `100ms`, or a plain number of seconds."""
    try:
        return float(text)
    except ValueError:
        try:
            return parse_duration(text).total_seconds()
        except DurationError:
            raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 100ms, 1.5s or 2m30s") from None


def _truth(text: str) -> bool:
    if text.lower() in ("true", "t", "1"):
        return True
    if text.lower() in ("false", "f", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def _gates(texts: Sequence[str]) -> tuple[dict[str, bool], list[str]]:
    """`A=true,B=false`: the gates that mean something here, and the names of those that do not."""
    gates: dict[str, bool] = {}
    unknown: list[str] = []
    for part in (part.strip() for text in texts for part in text.split(",") if part.strip()):
        name, equals, value = part.partition("=")
        try:
            on = _truth(value)
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"--feature-gates: {part!r}: {error}; write {name}=true or {name}=false") from None
        if not equals:
            raise ValueError(f"--feature-gates: {part!r} has no value; write {name}=true")
        if name in LOCKED:
            if not on:
                raise ValueError(f"--feature-gates: {name} cannot be switched off; it is locked on since v1.36")
        elif name in GATES:
            gates[name] = on
        else:
            unknown.append(name)
    return gates, unknown


def _address(text: str) -> tuple[str | None, int]:
    """`host:port`, `:port`, or 0 for no server at all."""
    if text == "0":
        return None, 0
    try:
        return parse_address(text)
    except ValueError as error:
        raise ValueError(f"--metrics-bind-address: {error}, or 0 for none") from None


def parser() -> argparse.ArgumentParser:
    """The command line."""
    line = argparse.ArgumentParser(
        prog="builtin-controller",
        description="Runs the Jobs of a cluster whose own Job controller is switched off.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    default = Options()
    add = line.add_argument
    add("--kubeconfig", type=Path, help="a kubeconfig file; without it $KUBECONFIG, then the pod's own service account")
    add("--context", help="the context of the kubeconfig to use instead of its current one")
    add("--namespace", help="serve one namespace only")
    add("--controller-name", default=default.controller_name, help="serve the Jobs whose spec.managedBy says this")
    add(
        "--workers",
        "--concurrent-job-syncs",
        type=int,
        default=default.workers,
        help="how many Jobs are synced at once",
    )
    add(
        "--feature-gates",
        action="append",
        default=[],
        metavar="A=true,B=false",
        help=f"gates that matter here: {', '.join(GATES)}",
    )
    add(
        "--metrics-bind-address",
        default="127.0.0.1:8080",
        help="where /metrics, /healthz and /readyz are served; 0 for nowhere",
    )
    add(
        "--sync-batch-period",
        type=duration,
        default=default.sync_batch_period,
        help="changes of pods and status are looked at after that long, many at a time",
    )
    add("--pod-backoff-base", type=duration, default=default.pod_backoff_base, help="wait after a pod's first failure")
    add("--pod-backoff-max", type=duration, default=default.pod_backoff_max, help="longest wait after failures")
    add("--max-uncounted-pods", type=int, default=default.max_uncounted_pods, help="pods counted in one sync at most")
    add(
        "--max-pods-per-sync",
        type=int,
        default=default.max_pods_per_sync,
        help="pods created or deleted in one sync at most",
    )
    add("--kube-api-qps", type=float, default=0.0, help="requests per second in the long run; 0 for no limit")
    add(
        "--kube-api-burst",
        type=int,
        default=0,
        help="requests that may exceed the rate at once; 0 for two seconds' worth",
    )
    add("--kube-api-concurrency", type=int, default=16, help="requests in flight at once")
    add("--leader-elect", nargs="?", const=True, default=False, type=_truth, help="work only while holding a Lease")
    add("--leader-elect-lease-duration", type=duration, default=15.0, help="how long a Lease lasts without renewal")
    add(
        "--leader-elect-renew-deadline", type=duration, default=10.0, help="stop when it could not be renewed that long"
    )
    add("--leader-elect-retry-period", type=duration, default=2.0, help="time between renewals")
    add("--leader-elect-resource-name", default="builtin-controller", help="the Lease's name")
    add("--leader-elect-resource-namespace", default="kube-system", help="the Lease's namespace")
    add("--log-format", choices=("json", "text"), default="json")
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return line

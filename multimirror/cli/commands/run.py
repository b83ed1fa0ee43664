"""`multimirror run`: the flags of the dispatcher as a process."""

from pathlib import Path
from typing import Any, Literal

import click
import prometheus_client

from multimirror.admission import PATH, Registration, Service
from multimirror.api import MANAGED_BY
from multimirror.cli.admitting import AdmissionSettings
from multimirror.cli.connecting import SYSTEM_NAMESPACE
from multimirror.cli.errors import Exit, told
from multimirror.cli.running import Settings, serve
from multimirror.dispatch import DispatcherOptions
from multimirror.kube import KubeError, LeadershipLost, configure_logging, run

EXAMPLES = """\b
Examples:
  multimirror run --kubeconfig management.yaml --no-leader-election
  multimirror run --admission-service multimirror
"""


class Address(click.ParamType[tuple[str, int]]):
    """HOST:PORT, or :PORT for every address of this host."""

    name = "[host]:port"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Split, or say what is missing."""
        if isinstance(value, tuple):
            return value
        host, _, port = value.rpartition(":")
        if not port.isdigit():
            self.fail(f"{value!r} has no port; write :8080 or 127.0.0.1:8080", param, ctx)
        return host or "0.0.0.0", int(port)  # noqa: S104 - kubelets, Prometheus and API servers are outside the pod


@click.command(epilog=EXAMPLES)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Of the management cluster.  [default: as kubectl]")
@click.option("--context", help="The kubeconfig's context.  [default: the current one]")
@click.option("--identity", help="Our name as a candidate for leadership.  [default: the host's, and a number]")
@click.option("--no-leader-election", is_flag=True, help="Be the only one; nothing checks that it is so.")
@click.option(
    "--namespace", default=SYSTEM_NAMESPACE, show_default=True, help="Our own: Secrets of workers, the lease."
)
@click.option(
    "--kubeconfig-directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where WorkerClusters may name files.  [default: nowhere]",
)
@click.option(
    "--managed-by", default=MANAGED_BY, show_default=True, help="The spec.managedBy of the Jobs that are ours."
)
@click.option(
    "--concurrency", type=click.IntRange(1), default=16, show_default=True, help="Calls in flight to our cluster."
)
@click.option(
    "--worker-concurrency", type=click.IntRange(1), default=16, show_default=True, help="Calls in flight to a worker."
)
@click.option(
    "--health-address", type=Address(), default=":8080", show_default=True, help="/healthz, /readyz and /metrics."
)
@click.option("--admission-service", help="Serve the admission webhook behind this Service of our namespace.")
@click.option("--admission-url", help=f"Serve it at this URL, outside of the cluster: https://HOST:PORT{PATH}.")
@click.option(
    "--admission-address", type=Address(), default=":9443", show_default=True, help="Where the webhook listens."
)
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def command(log_format: Literal["json", "text"], log_level: str, **given: Any) -> int:
    """Run the dispatcher.

    Jobs of the management cluster get a worker, a copy there, and its status back. Ends with 1 when leadership was
    lost: start it again.
    """
    settings = _settings(**given)
    configure_logging(log_format, log_level)
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
    try:
        run(lambda stop: serve(settings, stop))
    except LeadershipLost:
        return Exit.NOT_SO
    except KubeError as error:
        raise told(error) from error
    return Exit.OK


def _settings(**given: Any) -> Settings:
    host, port = given["health_address"]
    return Settings(
        kubeconfig=given["kubeconfig"],
        context=given["context"],
        identity=given["identity"],
        leader_elect=not given["no_leader_election"],
        health_host=host,
        health_port=port,
        concurrency=given["concurrency"],
        dispatcher=DispatcherOptions(
            managed_by=given["managed_by"],
            namespace=given["namespace"],
            kubeconfig_directory=given["kubeconfig_directory"],
            concurrency=given["concurrency"],
            worker_concurrency=given["worker_concurrency"],
        ),
        admission=_admission(**given),
    )


def _admission(**given: Any) -> AdmissionSettings | None:
    service, url = given["admission_service"], given["admission_url"]
    if service is None and url is None:
        return None
    if service is not None and url is not None:
        raise click.UsageError("--admission-service and --admission-url: give only one of them")
    if url is not None and (not url.startswith("https://") or not url.endswith(PATH)):
        raise click.UsageError(f"--admission-url: must be https://HOST:PORT{PATH}, not {url!r}")
    host, port = given["admission_address"]
    return AdmissionSettings(
        host=host,
        port=port,
        registration=Registration(
            service=Service(given["namespace"], service) if service is not None else None,
            url=url,
            manager=given["managed_by"],
        ),
        namespace=given["namespace"],
    )

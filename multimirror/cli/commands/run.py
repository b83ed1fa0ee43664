"""`multimirror run`: the flags of the dispatcher as a process."""

import asyncio
from pathlib import Path
from typing import Any, Final, Literal

import click
import prometheus_client

from multimirror.admission import PATH
from multimirror.api import MANAGED_BY
from multimirror.api.limits import MAX_JOB_BYTES
from multimirror.cli.admission import AdmissionOptions, registration
from multimirror.cli.configuration import Configurable, as_yaml, effective, setting
from multimirror.cli.dispatcher_lease import LEASE
from multimirror.cli.doctor.findings import Level
from multimirror.cli.doctor.prerequisites import check_prerequisites, permissions
from multimirror.cli.errors import CommandError, Exit, command_error
from multimirror.cli.flags import Address
from multimirror.cli.output import echo, show
from multimirror.cli.process import RunOptions, serve
from multimirror.cli.process_flags import CLUSTER, FILE, cluster_flags, existing_file, health_flags
from multimirror.kube import Client, Connection, KubeError, run
from multimirror.kube.errors import LeadershipLost
from multimirror.kube.logs import configure_logging
from multimirror.kube.supervise import TaskEnded
from multimirror.options import DispatcherOptions

_PREFIX: Final = "MULTIMIRROR_RUN"
_CHECK_SECONDS: Final = 15.0
EXAMPLES = """\b
Examples:
  multimirror run --leader-election --lease-seconds 15
  multimirror run --config multimirror.yaml --check
"""


_WORK, _ADMISSION = "Work", "Admission webhook, beside it"


@click.command(cls=Configurable, epilog=EXAMPLES, context_settings={"auto_envvar_prefix": _PREFIX})
@click.option("--check", is_flag=True, help="Check it and the cluster, print it, and end.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="Print it like this.", show_default=True
)
@cluster_flags
@setting(
    "--leader-election/--no-leader-election",
    default=True,
    help="One of several works; exit 1 when lost.",
    group=CLUSTER,
)
@setting(
    "--lease-seconds",
    type=click.IntRange(1),
    default=15,
    metavar="N",
    help="How long a leader that died is waited for.",
    group=CLUSTER,
)
@setting("--identity", metavar="NAME", help="Our name as a candidate.", otherwise="host and number", group=CLUSTER)
@setting("--managed-by", default=MANAGED_BY, metavar="NAME", help="Our mark on Jobs.", group=_WORK)
@setting(
    "--concurrency",
    type=click.IntRange(1),
    default=16,
    metavar="N",
    help="Calls in flight to our cluster.",
    group=_WORK,
)
@setting(
    "--worker-concurrency",
    type=click.IntRange(1),
    default=16,
    metavar="N",
    help="Calls in flight to each worker.",
    group=_WORK,
)
@setting(
    "--max-job-bytes",
    type=click.IntRange(1024),
    default=MAX_JOB_BYTES,
    metavar="N",
    help="Larger Jobs are not placed.",
    group=_WORK,
)
@setting(
    "--kubeconfig-directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where WorkerClusters may name files.",
    otherwise="none",
    group=_WORK,
)
@setting("--admission-service", metavar="NAME", help="Serve it behind this Service of ours.", group=_ADMISSION)
@setting("--admission-url", metavar="URL", help=f"Or at https://HOST:PORT{PATH}.", group=_ADMISSION)
@setting(
    "--admission-address",
    type=Address(),
    default=":9443",
    metavar="ADDRESS",
    help="Where it listens.",
    group=_ADMISSION,
)
@setting(
    "--admission-client-ca",
    type=FILE,
    metavar="FILE",
    help="Of API servers' certificates.",
    otherwise="they show none",
    group=_ADMISSION,
)
@health_flags
@click.pass_context
def command(
    ctx: click.Context,
    /,
    log_format: Literal["json", "text"],
    log_level: str,
    *,
    check: bool,
    output: str,
    **given: Any,
) -> int:
    """Run the dispatcher.

    Jobs get a worker, a copy there, and its status back. A flag wins over its
    variable (MULTIMIRROR_RUN_LOG_LEVEL and so on), and that over the file.
    """
    options = _options(**given)
    try:
        if check:
            return _check(ctx, options, output)
        configure_logging(log_format, log_level)
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
        run(lambda stop: serve(options, stop))
    except (LeadershipLost, TaskEnded):  # the log says why
        return Exit.NOT_SO
    except KubeError as error:
        raise command_error(error) from error
    return Exit.OK


def _check(ctx: click.Context, options: RunOptions, output: str) -> int:
    """The configuration on standard output, what was found on standard error."""
    if output == "yaml":
        echo(as_yaml(ctx))
    else:
        show({key: value for key, value, _ in effective(ctx)}, output)

    async def ask() -> int:
        namespace, lease = options.dispatcher.namespace, LEASE if options.leader_elect else None
        needed = permissions(namespace, lease=lease, admission=options.admission is not None)
        connection = Connection.own(options.kubeconfig, options.context, name="management")
        async with Client(connection, user_agent="multimirror-cli", timeout=_CHECK_SECONDS) as client:
            findings = await check_prerequisites(client, namespace, needed)
        for finding in findings:
            if finding.level is Level.OK:
                echo(f"ok: {finding.message}", err=True)
            elif finding.level is Level.WARNING:
                echo(f"warning: {finding.message}\n  {finding.remedy}", err=True)
        failed = [CommandError(each.message, each.remedy) for each in findings if each.level is Level.FAULT]
        for error in failed:
            error.show()
        return Exit.NOT_SO if failed else Exit.OK

    return asyncio.run(ask())


def _options(**given: Any) -> RunOptions:
    kubeconfig = existing_file("--kubeconfig", given["kubeconfig"])
    host, port = given["health_address"]
    return RunOptions(
        kubeconfig=kubeconfig,
        context=given["context"],
        identity=given["identity"],
        leader_elect=given["leader_election"],
        lease_seconds=given["lease_seconds"],
        health_host=host,
        health_port=port,
        concurrency=given["concurrency"],
        dispatcher=DispatcherOptions(
            managed_by=given["managed_by"],
            namespace=given["namespace"],
            kubeconfig_directory=given["kubeconfig_directory"],
            concurrency=given["concurrency"],
            worker_concurrency=given["worker_concurrency"],
            max_job_bytes=given["max_job_bytes"],
        ),
        admission=_admission(**given),
    )


def _admission(**given: Any) -> AdmissionOptions | None:
    service, url = given["admission_service"], given["admission_url"]
    if service is None and url is None:
        return None
    if service is not None and url is not None:
        raise click.UsageError("--admission-service and --admission-url: give only one of them")
    host, port = given["admission_address"]
    return AdmissionOptions(
        host=host,
        port=port,
        registration=registration(given["namespace"], service, url, given["managed_by"]),
        namespace=given["namespace"],
        client_authority=existing_file("--admission-client-ca", given["admission_client_ca"]),
        max_job_bytes=given["max_job_bytes"],
    )

"""`multimirror admission`: the flags of the webhook as a process of its own."""

from pathlib import Path
from typing import Any, Final, Literal

import click
import prometheus_client

from multimirror.admission import PATH
from multimirror.api import MANAGED_BY
from multimirror.api.limits import MAX_JOB_BYTES
from multimirror.cli.admission import AUTHORITY, SERVICE, AdmissionOptions, AdmissionProcess, registration, serve_alone
from multimirror.cli.configuration import Configurable, setting
from multimirror.cli.errors import Exit, command_error
from multimirror.cli.flags import Address
from multimirror.cli.process_flags import FILE, cluster_flags, existing_file, health_flags
from multimirror.kube import KubeError, run
from multimirror.kube.logs import configure_logging
from multimirror.kube.supervise import TaskEnded

_PREFIX: Final = "MULTIMIRROR_ADMISSION"
_WEBHOOK: Final = "Webhook"
EXAMPLES = """\b
Examples:
  multimirror admission --namespace multimirror-system
  multimirror admission --client-ca api-servers.crt
"""


@click.command(cls=Configurable, epilog=EXAMPLES, context_settings={"auto_envvar_prefix": _PREFIX})
@cluster_flags
@setting("--service", metavar="NAME", help="The Service in front of it.", otherwise=SERVICE, group=_WEBHOOK)
@setting("--url", metavar="URL", help=f"Or it is reached at https://HOST:PORT{PATH}.", group=_WEBHOOK)
@setting("--address", type=Address(), default=":9443", metavar="ADDRESS", help="Where it listens.", group=_WEBHOOK)
@setting("--secret", default=AUTHORITY, metavar="NAME", help="Its CA, or its certificate.", group=_WEBHOOK)
@setting(
    "--client-ca",
    type=FILE,
    metavar="FILE",
    help="Of API servers' certificates.",
    otherwise="they show none",
    group=_WEBHOOK,
)
@setting("--managed-by", default=MANAGED_BY, metavar="NAME", help="Our mark on Jobs.", group=_WEBHOOK)
@setting(
    "--max-job-bytes",
    type=click.IntRange(1024),
    default=MAX_JOB_BYTES,
    metavar="N",
    help="Larger Jobs are refused.",
    group=_WEBHOOK,
)
@health_flags
def command(
    log_format: Literal["json", "text"], log_level: str, client_ca: Path | None, kubeconfig: Path | None, **given: Any
) -> int:
    """Serve the admission webhook.

    Jobs that ask for a queue become ours, or are refused in words. Its certificate is from a CA that the installation
    has stored; the registration is the installation's too (`multimirror install`). It writes nothing.
    """
    if given["service"] is not None and given["url"] is not None:
        raise click.UsageError("--service and --url: give only one of them")
    (host, port), (health_host, health_port) = given["address"], given["health_address"]
    service = None if given["url"] is not None else given["service"] or SERVICE
    options = AdmissionProcess(
        kubeconfig=existing_file("--kubeconfig", kubeconfig),
        context=given["context"],
        health_host=health_host,
        health_port=health_port,
        admission=AdmissionOptions(
            host=host,
            port=port,
            registration=registration(given["namespace"], service, given["url"], given["managed_by"], flag="--url"),
            namespace=given["namespace"],
            secret=given["secret"],
            client_authority=existing_file("--client-ca", client_ca),
            max_job_bytes=given["max_job_bytes"],
        ),
    )
    try:
        configure_logging(log_format, log_level)
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
        run(lambda stop: serve_alone(options, stop))
    except TaskEnded:  # the log says why
        return Exit.NOT_SO
    except KubeError as error:
        raise command_error(error) from error
    return Exit.OK

"""The process: flags, signals, health, leadership. `builtin-controller --help` lists the flags."""

import asyncio
import sys
from collections.abc import Sequence

import prometheus_client
import structlog

from builtin_controller.controller import COMPONENT, JobController
from builtin_controller.flags import Flags, parse
from multimirror.kube import Connection, run
from multimirror.kube.errors import ConfigError, LeadershipLost
from multimirror.kube.health import HealthServer
from multimirror.kube.logs import configure_logging
from multimirror.kube.manager import Election, Manager
from multimirror.kube.supervise import TaskEnded

_log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until told to stop. 0 after a regular end, 1 when leadership or a task was lost, 2 if it could not start."""
    flags = parse(arguments)
    configure_logging("json" if flags.log_format == "json" else "text", flags.log_level)
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
    for gate in flags.unknown_gates:
        _log.warning("a feature gate that means nothing to this controller", gate=gate)
    try:
        run(lambda stop: _serve(flags, stop))
    except (LeadershipLost, TaskEnded):  # the log says why
        return 1
    except (ConfigError, OSError) as error:
        print(f"builtin-controller: {error}", file=sys.stderr)  # noqa: T201 - a command tells why it does not start
        return 2
    return 0


async def _serve(flags: Flags, stop: asyncio.Event) -> None:
    manager = Manager(
        Connection.own(flags.kubeconfig, flags.context, name="cluster"),
        COMPONENT,
        concurrency=flags.concurrency,
        qps=flags.qps,
        burst=flags.burst,
        election=_election(flags) if flags.leader_elect else None,
        health=HealthServer(flags.metrics_host, flags.metrics_port) if flags.metrics_host is not None else None,
    )
    async with manager:
        await manager.run(JobController(manager.writer, flags.options, width=flags.concurrency), stop)


def _election(flags: Flags) -> Election:
    return Election(
        flags.lease_name,
        flags.lease_namespace,
        lease_duration=flags.lease_duration,
        renew_deadline=flags.renew_deadline,
        retry_period=flags.retry_period,
    )

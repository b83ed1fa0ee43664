"""The process: flags, signals, health, leadership. `builtin-controller --help` lists the flags."""

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import prometheus_client
import structlog

from builtin_controller.controller import COMPONENT, JobController
from builtin_controller.flags import Flags, parse
from multimirror.kube import (
    Client,
    ConfigError,
    Connection,
    HealthServer,
    LeaderElector,
    LeadershipLost,
    configure_logging,
    run,
)

_log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until told to stop. 0 after a regular end, 1 when leadership was lost, 2 when it could not start."""
    flags = parse(arguments)
    configure_logging("json" if flags.log_format == "json" else "text", flags.log_level)
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no types for it
    for gate in flags.unknown_gates:
        _log.warning("a feature gate that means nothing to this controller", gate=gate)
    try:
        run(lambda stop: _serve(flags, stop))
    except LeadershipLost:
        return 1
    except (ConfigError, OSError) as error:
        print(f"builtin-controller: {error}", file=sys.stderr)  # noqa: T201 - a command tells why it does not start
        return 2
    return 0


async def _serve(flags: Flags, stop: asyncio.Event) -> None:
    connection = _connection(flags)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(connection, concurrency=flags.concurrency, qps=flags.qps, burst=flags.burst, user_agent=COMPONENT)
        )
        elector = _elector(flags, client) if flags.leader_elect else None
        writer = client.guarded(elector.check) if elector is not None else client
        controller = JobController(writer, flags.options, width=flags.concurrency)
        if flags.metrics_host is not None:
            health = HealthServer(flags.metrics_host, flags.metrics_port)
            health.add_ready_check("caches", lambda: None if controller.has_synced else "not filled yet")
            await stack.enter_async_context(health)
            _log.info("serves metrics and health", host=health.host, port=health.port)
        await stack.enter_async_context(controller.following())
        await _until(stop, elector.run(controller.work) if elector is not None else controller.work(), controller)


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None], controller: JobController) -> None:
    """Work until told to stop; then let the syncs that run come to their end, and give the Lease back."""
    working = asyncio.ensure_future(work)
    told = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([working, told], return_when=asyncio.FIRST_COMPLETED)
        controller.stop()
        if not controller.working and not working.done():
            working.cancel()  # it waits for its caches or its turn, and has nothing to finish
        with suppress(asyncio.CancelledError):
            await working
    finally:
        told.cancel()
        working.cancel()


def _connection(flags: Flags) -> Connection:
    return Connection.from_kubeconfig(flags.kubeconfig, context=flags.context, name="cluster")


def _elector(flags: Flags, client: Client) -> LeaderElector:
    return LeaderElector(
        client,
        flags.lease_name,
        flags.lease_namespace,
        lease_duration=flags.lease_duration,
        renew_deadline=flags.renew_deadline,
        retry_period=flags.retry_period,
    )

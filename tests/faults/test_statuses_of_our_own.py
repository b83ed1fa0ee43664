"""What `kubectl get workerclusters` shows, after writes that failed."""

import asyncio
import contextlib

import pytest

from faults.grounds import MANAGEMENT, EmbeddedGround
from faults.plan import Fault
from faults.stage import Stage
from multimirror.api import WORKER_CLUSTERS
from multimirror.options import DispatcherOptions
from tests.waiting import DEADLINE


@pytest.mark.cluster_kind("embedded")
@pytest.mark.parametrize("kind", ["error", "reset", "wrong"])
async def test_a_workers_status_whose_write_failed_is_written_again(kind: str) -> None:
    """Found on real control planes: a worker showed as cordoned for good, because one write was lost."""
    fault = Fault(kind=kind, link="dispatcher/management", verb="patch", resource="workerclusters/status")
    options = DispatcherOptions(report_seconds=0.1)
    async with EmbeddedGround(1) as ground, Stage(ground, [fault], options=options) as stage:
        await stage.start()
        async with (
            asyncio.timeout(DEADLINE),
            contextlib.aclosing(stage.people[MANAGEMENT].watch(WORKER_CLUSTERS)) as changes,
        ):
            async for change in changes:
                conditions = (change.object.get("status") or {}).get("conditions") or ()
                if {"Connected", "Ready"} <= {each["type"] for each in conditions if each["status"] == "True"}:
                    break
        assert stage.record.counts() == {kind: 1}

"""One simulation for all tests of a worker process: starting it costs more than a run."""

from collections.abc import AsyncIterator

import pytest_asyncio

from faults.simulator import Simulator


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def simulator() -> AsyncIterator[Simulator]:
    """Runs scenarios."""
    async with Simulator() as simulator:
        yield simulator

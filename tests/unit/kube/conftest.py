from collections.abc import AsyncIterator

import pytest

from multimirror.kube import Client
from tests.unit.kube.servers import Server, running


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running() as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(server.connection()) as client:
        yield client

"""A management cluster and two workers of kind, with multimirror installed from its image: once for the whole run.

`make test-kind` runs these tests, and nothing else does. MULTIMIRROR_KEEP_FLEET=1 leaves the clusters up, and uses them
in the next run.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from clusters.background import BackgroundFleet
from clusters.kind import KindOptions
from tests.kind.installation import Installation, Stage, a_stage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.cluster_kind("kind"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def image() -> str:
    """Built from the Dockerfile."""
    return os.environ["MULTIMIRROR_TEST_IMAGE"]


@pytest.fixture(scope="session")
def kind_fleet(image: str) -> Iterator[BackgroundFleet]:
    options = KindOptions(
        workers=2,
        prefix=os.environ.get("MULTIMIRROR_TEST_PREFIX", "multimirror-test"),
        images=[image],
        keep=bool(os.environ.get("MULTIMIRROR_KEEP_FLEET")),
        node_image=os.environ.get("MULTIMIRROR_NODE_IMAGE"),
    )
    with BackgroundFleet("kind", options) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def installation(kind_fleet: BackgroundFleet, image: str) -> Installation:
    """By command; workers are joined."""
    made = Installation(kind_fleet, image)
    asyncio.run(made.install())
    return made


@pytest_asyncio.fixture
async def stage(installation: Installation) -> AsyncIterator[Stage]:
    """One test's namespace and queue; whatever a test is about, all promises must have been kept."""
    async with a_stage(installation) as stage:
        yield stage

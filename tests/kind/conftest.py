"""A management cluster and two workers of kind, with multimirror installed from its image: once for the whole run.

`make test-kind` runs these tests, and nothing else does. Where no kind cluster can be made the run ends at once with a
code of its own: tests that were left out would look as if they had passed. Environment:

    MULTIMIRROR_NODE_IMAGE     the nodes' image; without it, the one that clusters.kind chooses
    MULTIMIRROR_BASE_IMAGE     the base of our image (clusters/kind/image.py)
    MULTIMIRROR_TEST_IMAGE     our image, where it is not to be built
    MULTIMIRROR_TEST_PREFIX    of the clusters' names
    MULTIMIRROR_KEEP_FLEET=1   leaves the clusters up, and uses them in the next run

Files are run in the order of ORDER: first what has clusters of its own, while ours are not up; then what installs and
removes; then all that uses the one installation; last what breaks clusters.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from clusters.background import BackgroundFleet
from clusters.kind import KindOptions, unavailable
from clusters.kind.image import image_for_tests
from clusters.local import BinariesMissingError, find_kubectl
from tests.kind.installation import Installation, Stage, a_stage

Tell = Callable[[str], None]
ROOT: Final = Path(__file__).parents[2]
CANNOT_RUN: Final = 69
"""The exit code (EX_UNAVAILABLE of sysexits.h): it is about this machine, and says nothing about the product."""
ORDER: Final = (
    "nothing_left",
    "quickstart",
    "demo",
    "installing",
    "",
    "admission_under_load",
    "containers_node",
    "faults",
)
"""How the names of files begin; empty: all others."""
_SECONDS: Final = 1800.0  # for one test with all that is made for it: only what hangs takes so long
_FIGURES: Final = pytest.StashKey[list[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_FIGURES] = []
    if session.config.option.collectonly:
        return
    if reason := unavailable():
        pytest.exit(reason, returncode=CANNOT_RUN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what is up is taken down


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.cluster_kind("kind"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SECONDS))
    items.sort(key=lambda item: _place(item.path.stem.removeprefix("test_")))


def _place(name: str) -> int:
    named = [place for place, start in enumerate(ORDER) if start and name.startswith(start)]
    return named[0] if named else ORDER.index("")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if figures := terminalreporter.config.stash.get(_FIGURES, []):
        terminalreporter.section("real clusters")
        for line in figures:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tell(request: pytest.FixtureRequest) -> Tell:
    """Says at once what takes long; it is said again at the end, with the figures."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    began = time.monotonic()

    def tell(text: str) -> None:
        line = f"{time.monotonic() - began:6.0f} s  {text}"
        request.config.stash[_FIGURES].append(line)
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(line)

    return tell


@pytest.fixture(scope="session", autouse=True)
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A `kubectl` of a version that suits is in PATH, wherever it comes from."""
    directory = tmp_path_factory.mktemp("tools")
    try:
        (directory / "kubectl").symlink_to(find_kubectl())
    except BinariesMissingError as error:
        pytest.exit(str(error), returncode=CANNOT_RUN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(directory), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def image(tell: Tell) -> str:
    """Built from the Dockerfile, if something in it has changed."""
    found = os.environ.get("MULTIMIRROR_TEST_IMAGE") or asyncio.run(image_for_tests(ROOT, tell))
    tell(f"image: {found}")
    return found


@pytest.fixture(scope="session")
def kind_fleet(image: str, tell: Tell) -> Iterator[BackgroundFleet]:
    """The clusters, with our image on the management cluster, and nothing of ours installed."""
    prefix = os.environ.get("MULTIMIRROR_TEST_PREFIX", "multimirror-test")
    options = KindOptions(
        workers=2,
        prefix=prefix,
        images=[image],
        keep=bool(os.environ.get("MULTIMIRROR_KEEP_FLEET")),
    )
    tell(f"clusters {prefix}-*: being made")
    with BackgroundFleet("kind", options) as fleet:
        tell(f"clusters {prefix}-*: up")
        yield fleet
        for line in _memory(prefix):
            tell(line)


def _memory(prefix: str) -> list[str]:
    form = "{{.Name}}: {{.MemUsage}}"
    nodes = subprocess.run(
        ["docker", "ps", "--format", "{{.Names}}", "--filter", f"name=^{prefix}-"], capture_output=True, check=False
    ).stdout.split()
    told = subprocess.run(
        ["docker", "stats", "--no-stream", "--format", form, *nodes], capture_output=True, text=True, check=False
    ).stdout
    return [f"memory of {line.partition(' / ')[0]}" for line in sorted(told.splitlines())] if nodes else []


@pytest.fixture(scope="session")
def installation(kind_fleet: BackgroundFleet, image: str, tell: Tell) -> Installation:
    """By command; workers are joined."""
    made = Installation(kind_fleet, image)
    asyncio.run(made.install())
    tell("multimirror is installed, workers are joined")
    return made


@pytest_asyncio.fixture
async def stage(installation: Installation) -> AsyncIterator[Stage]:
    """One test's namespace and queue; whatever a test is about, all promises must have been kept."""
    async with a_stage(installation) as stage:
        yield stage

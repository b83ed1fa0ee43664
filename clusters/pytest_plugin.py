"""Fleets for tests, for any project that uses pytest: see docs/pytest-fleet.md.

    fleet              one management cluster and two workers, fresh for each test
    shared_fleet       the same, made once for the whole test run
    kind_fleet         real clusters in Docker, made once; `kind_fleet_options` says how, and is there to be overridden
    embedded_cluster   a single embedded cluster, fresh for each test

`@pytest.mark.fleet(workers=3, nodes=False)` says how a test wants its fleet; `--fleet-kind local` runs the same tests
on real control planes. The fleets live on a thread of their own: tests may be synchronous or asynchronous, and may
block.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusters.background import BackgroundFleet
    from clusters.fleet import Cluster
    from clusters.kind import KindOptions


def pytest_addoption(parser: pytest.Parser) -> None:
    """How to choose the kind of cluster."""
    group = parser.getgroup("fleet", "fleets of Kubernetes clusters")
    group.addoption(
        "--fleet-kind",
        default="embedded",
        choices=("embedded", "local", "kind"),
        help="what the clusters of the fixtures `fleet` and `shared_fleet` are made of (default: %(default)s)",
    )
    group.addoption(
        "--node-image",
        metavar="IMAGE",
        help="what the nodes of kind clusters are made of (or set MULTIMIRROR_NODE_IMAGE)",
    )
    group.addoption(
        "--keep-fleet",
        action="store_true",
        help="leave the kind clusters of `kind_fleet` and `shared_fleet` up, and use them in the next run; "
        "`python -m clusters.kind list` and `delete --prefix` are for their end",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line(
        "markers",
        "fleet(kind=None, workers=2, nodes=True, ...): how the fixture `fleet` is made; keywords as in FleetOptions "
        "and in the options of its kind (LocalOptions, KindOptions)",
    )


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Iterator[BackgroundFleet]:
    """One management cluster and some workers, up for this test."""
    with _open(request, _wishes(request)) as running:
        yield running


@pytest.fixture(scope="session")
def shared_fleet(request: pytest.FixtureRequest) -> Iterator[BackgroundFleet]:
    """One management cluster and two workers for the whole test run: use a namespace of your own in each test."""
    with _open(request, {}) as running:
        yield running


@pytest.fixture(scope="session")
def kind_fleet_options() -> KindOptions:
    """How `kind_fleet` is made: override it in your conftest.py."""
    from clusters.kind import KindOptions  # noqa: PLC0415 - tests without fleets do not pay for it

    return KindOptions()


@pytest.fixture(scope="session")
def kind_fleet(request: pytest.FixtureRequest, kind_fleet_options: KindOptions) -> Iterator[BackgroundFleet]:
    """Real clusters in Docker for the whole test run: use a namespace of your own in each test."""
    wishes = {each.name: getattr(kind_fleet_options, each.name) for each in dataclasses.fields(kind_fleet_options)}
    with _open(request, {**wishes, "kind": "kind"}) as running:
        yield running


@pytest.fixture
def embedded_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A single embedded cluster, up for this test."""
    with _open(request, {"workers": 0, **_wishes(request), "kind": "embedded"}) as running:
        yield running.management


def _wishes(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("fleet")
    if marker is None:
        return {}
    if marker.args:
        raise pytest.UsageError("the marker `fleet` takes keywords only, such as fleet(workers=3)")
    return dict(marker.kwargs)


def _open(request: pytest.FixtureRequest, wishes: dict[str, Any]) -> BackgroundFleet:
    from clusters.background import BackgroundFleet  # noqa: PLC0415 - tests without fleets do not pay for it
    from clusters.fleet import fleet_options, unavailable  # noqa: PLC0415 - nor for this

    kind = wishes.pop("kind", None) or request.config.getoption("--fleet-kind")
    if kind == "kind":
        wishes = {**wishes, **_kind_wishes(request, wishes)}
    try:
        options = fleet_options(kind, **{"job_controller": True, **wishes})
    except TypeError as error:
        raise pytest.UsageError(f"the marker `fleet` of {request.node.nodeid}: {error}") from error
    reason = unavailable(kind)
    if reason:
        pytest.skip(reason)
    return BackgroundFleet(kind, options)


def _kind_wishes(request: pytest.FixtureRequest, wishes: dict[str, Any]) -> dict[str, Any]:
    """What the command line adds to the wishes for a kind fleet."""
    added = {}
    if not wishes.get("kubernetes_version"):
        added["node_image"] = wishes.get("node_image") or request.config.getoption("--node-image")
    if request.scope == "session" and request.config.getoption("--keep-fleet"):
        added["keep"] = True
        if not wishes.get("prefix"):  # one for this project, and for each process of pytest-xdist
            project = hashlib.sha256(str(request.config.rootpath).encode()).hexdigest()[:6]
            worker = os.environ.get("PYTEST_XDIST_WORKER", "")
            added["prefix"] = f"mm-{project}{worker and f'-{worker}'}-{str(request.fixturename).removesuffix('_fleet')}"
    return added

"""Real Kubernetes control planes as processes on this machine: no Docker, nothing installed, nothing left behind.

    async with open_fleet("local", LocalOptions(workers=2, audit_log=True)) as fleet:
        await fleet.workers["worker-1"].restart("kube-apiserver")

`LocalFleet` needs the binaries (`find_binaries`); `python -m clusters.local install` gets them.
"""

from clusters.local.binaries import Binaries, BinariesMissingError, find_binaries, find_kubectl
from clusters.local.cluster import LocalCluster, StartError
from clusters.local.fleet import LocalFleet
from clusters.local.homes import HomeError, sweep
from clusters.local.options import LocalOptions
from clusters.local.processes import Process

__all__ = [
    "Binaries",
    "BinariesMissingError",
    "HomeError",
    "LocalCluster",
    "LocalFleet",
    "LocalOptions",
    "Process",
    "StartError",
    "find_binaries",
    "find_kubectl",
    "sweep",
    "unavailable",
]


def unavailable() -> str | None:
    """Why no local fleet can be opened here; None when the binaries are there."""
    try:
        find_binaries()
    except BinariesMissingError as error:
        return str(error)
    return None

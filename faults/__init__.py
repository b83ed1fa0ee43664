"""The fault suite: whole fleets in which things go wrong as planned, and a checker of what must hold all the same.

    plan, scenario, workload    what will happen: data, made from a seed or written down (plans)
    simulation                  a fleet in one process on counted time: the same seed is the same run
    proxy, injecting            the way from one client to one API server, on which faults strike
    record                      every write, every change, every fault, as it happened
    invariants                  what must hold of a record: pure functions
    stage, running, shrinking   a run, and the shortest story of one that went wrong

Proxy, record and checks work over HTTP from outside, on embedded and on real clusters, so they can be put before any
controller that reads a kubeconfig; `python -m faults` runs our own through them. Nothing that is imported here may keep
a clock (see simulation).
"""

from faults.injecting import Injector
from faults.invariants import check
from faults.labels import CopyLabels
from faults.plan import Fault
from faults.proxy import Proxy
from faults.record import Record, Watcher
from faults.rules import Rules, Violation

__all__ = ["CopyLabels", "Fault", "Injector", "Proxy", "Record", "Rules", "Violation", "Watcher", "check"]

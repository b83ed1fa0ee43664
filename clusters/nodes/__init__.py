"""The simulated node: takes pods through their life where no kubelet runs, on embedded clusters and on real API
servers.
"""

from clusters.nodes.behaviour import PREFIX, Behaviour, BehaviourError
from clusters.nodes.pool import NodeOptions, SimulatedNodes

__all__ = ["PREFIX", "Behaviour", "BehaviourError", "NodeOptions", "SimulatedNodes"]

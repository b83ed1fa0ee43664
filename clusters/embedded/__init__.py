"""A Kubernetes API in this Python process: nothing to install."""

from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.fleet import EmbeddedFleet, EmbeddedOptions
from clusters.embedded.server import ApiServer, ServerOptions

__all__ = ["ApiServer", "EmbeddedCluster", "EmbeddedFleet", "EmbeddedOptions", "ServerOptions"]

"""How clusters come to be: embedded, local and kind, behind one interface."""

from clusters.fleet import Cluster, Fleet, FleetError, FleetOptions, Kubeconfig, open_fleet, unavailable

__all__ = ["Cluster", "Fleet", "FleetError", "FleetOptions", "Kubeconfig", "open_fleet", "unavailable"]

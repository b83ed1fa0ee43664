"""What `kubectl get` shows of each kind: columns and cells, as Kubernetes 1.36 has them."""

from typing import Final

from clusters.embedded.kinds import Kind
from clusters.embedded.printers.columns import NAME, Column, Printer
from clusters.embedded.printers.custom import custom_printer
from clusters.embedded.printers.jobs import CRONJOBS, JOBS
from clusters.embedded.printers.others import PRINTERS
from clusters.embedded.printers.pods import PODS

__all__ = ["Column", "Printer", "printer_for"]

_PLAIN: Final = Printer(
    (NAME, Column("Created At", "date", description="When the object was created.")),
    lambda obj, _now: [obj["metadata"]["name"], obj["metadata"].get("creationTimestamp")],
)
_BY_RESOURCE: Final = {"pods": PODS, "jobs.batch": JOBS, "cronjobs.batch": CRONJOBS, **PRINTERS}


def printer_for(kind: Kind) -> Printer:
    """The printer of a kind."""
    if kind.custom:
        return custom_printer(kind.columns)
    return _BY_RESOURCE.get(kind.resource, _PLAIN)

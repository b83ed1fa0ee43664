"""Who owns which field: sets of field paths, what changed between two objects, managedFields, server-side apply."""

from clusters.embedded.fields.applying import Applier
from clusters.embedded.fields.ownership import Ownership, keep_entries

__all__ = ["Applier", "Ownership", "keep_entries"]

"""Custom resources: their definitions, schemas and objects."""

from clusters.embedded.custom.definitions import GROUP, CustomKinds, Definitions
from clusters.embedded.custom.strategy import CustomResources

__all__ = ["GROUP", "CustomKinds", "CustomResources", "Definitions"]

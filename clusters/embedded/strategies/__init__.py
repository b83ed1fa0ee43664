"""What the server does to objects of each built-in kind."""

from clusters.embedded.strategies.builtin import builtin_kinds

__all__ = ["builtin_kinds"]

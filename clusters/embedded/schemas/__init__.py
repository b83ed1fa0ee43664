"""The shapes of objects: built-in kinds from a table, custom resources from their CRDs."""

import functools
from importlib import resources

import orjson

from clusters.embedded.schemas.decoding import Findings, MismatchError, clean
from clusters.embedded.schemas.model import (
    ANYTHING,
    GRANULAR,
    Anything,
    Field,
    Library,
    Listed,
    Mapped,
    Scalar,
    Shape,
    Struct,
)

__all__ = [
    "ANYTHING",
    "GRANULAR",
    "Anything",
    "Field",
    "Findings",
    "Library",
    "Listed",
    "Mapped",
    "MismatchError",
    "Scalar",
    "Shape",
    "Struct",
    "builtin",
    "clean",
]


@functools.cache
def builtin() -> Library:
    """The built-in kinds of Kubernetes 1.36."""
    text = resources.files(__package__).joinpath("types.json").read_bytes()
    return Library(orjson.loads(text))

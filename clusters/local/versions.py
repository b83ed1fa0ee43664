"""Kubernetes versions: how they are written, which are known here, and which etcd goes with them."""

import re
from dataclasses import dataclass
from typing import Final, Self


@dataclass(frozen=True, slots=True, order=True)
class Version:
    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The first `1.36.4` in a text such as `Kubernetes v1.36.4`; None where there is none."""
        found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
        return cls(*map(int, found.groups())) if found else None

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


# The newest patch that was tried, for each minor: fixed here, so that two machines test the same thing.
NEWEST: Final = {(1, 34): Version(1, 34, 4), (1, 35): Version(1, 35, 4), (1, 36): Version(1, 36, 4)}
DEFAULT: Final = NEWEST[1, 36]
OLDEST: Final = Version(1, 34, 0)
ETCD: Final = Version(3, 6, 16)
OLDEST_ETCD: Final = Version(3, 6, 0)  # with 3.5 and older, watches without a resourceVersion fail


def wanted(text: str | None) -> Version:
    """`1.36.4`, `1.36`, with or without `v`; None means the default. ValueError says what would do."""
    if text is None:
        return DEFAULT
    found = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    if not found:
        raise ValueError(
            f"{text!r} is not a Kubernetes version: write it like {DEFAULT} or {DEFAULT.major}.{DEFAULT.minor}"
        )
    major, minor = int(found[1]), int(found[2])
    if found[3] is not None:
        version = Version(major, minor, int(found[3]))
    elif (major, minor) in NEWEST:
        version = NEWEST[major, minor]
    else:
        known = ", ".join(f"{a}.{b}" for a, b in NEWEST)
        raise ValueError(f"no patch version is known for {text}: name it in full, or choose one of {known}")
    if version < OLDEST:
        raise ValueError(f"Kubernetes {version} is too old: {OLDEST} or newer is supported")
    return version

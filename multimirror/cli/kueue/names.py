"""Names of Kueue's that are none for us, made into names that are.

Ours are values of labels: at most 63 characters. Cohorts are also named without dots. A name that has to be changed
stays as near to the old one as it can, and never becomes one that another object has.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from multimirror.batch.names import dns_label, dns_subdomain
from multimirror.cli.kueue.findings import Findings

_LONGEST: Final = 63
_DIGEST: Final = 8
_NOT_IN_LABELS: Final = re.compile(r"[^a-z0-9]+")


class Names:
    """Old names of one kind to new ones."""

    def __init__(self, names: Iterable[str], *, kind: str, dots: bool) -> None:
        self._kind, self._dots = kind, dots
        self._new: dict[str, str] = {}
        wanted = sorted(set(names))
        taken = {name for name in wanted if self._is_good(name)}
        for name in wanted:
            self._new[name] = name if name in taken else self._renamed(name, taken)
            taken.add(self._new[name])

    def __getitem__(self, name: str) -> str:
        return self._new[name]

    def tell(self, findings: Findings) -> None:
        """Name those that changed."""
        for old, new in self._new.items():
            if old != new:
                form = "at most 63 characters" + ("" if self._dots else ", without dots")
                findings.changed(f"{self._kind} {old}", "name", f"is called {new} here: names of ours have {form}")

    def _is_good(self, name: str) -> bool:
        return len(name) <= _LONGEST and not (dns_subdomain(name) if self._dots else dns_label(name))

    def _renamed(self, name: str, taken: set[str]) -> str:
        plain = _NOT_IN_LABELS.sub("-", name.lower()).strip("-")
        if plain and len(plain) <= _LONGEST and plain not in taken:
            return plain
        digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:_DIGEST]
        return f"{plain[: _LONGEST - _DIGEST - 1].strip('-') or 'x'}-{digest}"


def label_of(labels: Mapping[str, str]) -> str:
    """Labels as people write them."""
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))

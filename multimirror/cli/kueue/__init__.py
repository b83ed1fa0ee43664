"""Kueue's objects, read and translated into ours: `translate` decides, and does no I/O."""

from multimirror.cli.kueue.findings import Finding, Outcome
from multimirror.cli.kueue.objects import KueueObjects, Sourced
from multimirror.cli.kueue.reading import BadObject, read_objects
from multimirror.cli.kueue.translate import Translation, translate

__all__ = ["BadObject", "Finding", "KueueObjects", "Outcome", "Sourced", "Translation", "read_objects", "translate"]

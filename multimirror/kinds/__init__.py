"""The kinds of object that are mirrored, one module each, behind one protocol. Pure: no I/O, no clock."""

from multimirror.kinds.job import JOB
from multimirror.kinds.kind import CopyOptions, InStep, Kind, Kinds, Outcome, Ref, Rejection, is_held, ref_of
from multimirror.kinds.pod_sets import PodSet
from multimirror.kinds.registry import KINDS

__all__ = [
    "JOB",
    "KINDS",
    "CopyOptions",
    "InStep",
    "Kind",
    "Kinds",
    "Outcome",
    "PodSet",
    "Ref",
    "Rejection",
    "is_held",
    "ref_of",
]

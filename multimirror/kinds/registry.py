"""The kinds that are mirrored: a new one is added here."""

from typing import Final

from multimirror.kinds.job import JOB
from multimirror.kinds.kind import Kinds

KINDS: Final = Kinds((JOB,))

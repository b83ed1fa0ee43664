"""What became of the Jobs, counted on what every cluster told of every Job."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from multimirror.api import ORIGIN_UID_LABEL
from multimirror.batch import Json, is_finished
from multimirror.cli.demonstration.scene import JobView, Phase
from multimirror.kube import Change


@dataclass(slots=True)
class Record:
    """Of copies that ended, by original."""

    ended: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    changes: int = 0

    def copy_changed(self, change: Change) -> None:
        """On a worker."""
        self.changes += 1
        job: Json = change.object
        original = (job["metadata"].get("labels") or {}).get(ORIGIN_UID_LABEL)
        if original and is_finished(job.get("status") or {}):
            self.ended[original].add(job["metadata"]["uid"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The numbers of the last screen."""

    jobs: int
    done: int
    failed: int
    moved: int
    lost: int
    twice: int
    places: Counter[str]


def count(jobs: Iterable[JobView], record: Record) -> Count:
    """Pure."""
    found = tuple(jobs)
    phases = Counter(job.phase for job in found)
    return Count(
        jobs=len(found),
        done=phases[Phase.DONE],
        failed=phases[Phase.FAILED],
        moved=sum(1 for job in found if job.attempt > 1),
        lost=sum(1 for job in found if not job.over),
        twice=sum(1 for copies in record.ended.values() if len(copies) > 1),
        places=Counter(job.cluster for job in found if job.over and job.cluster),
    )

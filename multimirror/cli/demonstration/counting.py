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
    """Of copies that live, by original."""

    out_of_reach: set[str] = field(default_factory=set)
    """Workers that are cut off: what they do is found out when they are back."""
    twice: set[str] = field(default_factory=set)
    """Originals of which two copies lived at once on workers within reach."""
    _live: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))

    def copy_changed(self, worker: str, change: Change) -> None:
        """A Job on a worker."""
        job: Json = change.object
        original = (job["metadata"].get("labels") or {}).get(ORIGIN_UID_LABEL)
        if original is None:
            return
        copies, uid = self._live[original], job["metadata"]["uid"]
        over = change.new is None or "deletionTimestamp" in job["metadata"]
        if over or is_finished(job.get("status") or {}) or job["spec"].get("suspend"):
            copies.pop(uid, None)
        elif uid not in copies:
            if any(where not in self.out_of_reach for where in copies.values()):
                self.twice.add(original)
            copies[uid] = worker


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
        twice=len(record.twice),
        places=Counter(job.cluster for job in found if job.over and job.cluster),
    )

"""The story of a Job over both clusters, put together from what they still know: objects, conditions, events. Pure.

Events are kept for an hour and pods go with their copy, so an old story has holes; nothing is invented to fill them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from multimirror.api import ATTEMPT_LABEL, QUEUE_LABEL
from multimirror.batch import Json
from multimirror.cli.rows import is_ours, time_of

HERE: Final = "management"
_MOST_PODS: Final = 12
"""So many pods are told one by one; of more, only those that failed."""
_REDUNDANT: Final = frozenset({"SuccessfulCreate", "Completed", "Suspended", "Resumed"})
"""Events that say what the objects themselves say better."""
_WORDS: Final = {"Waiting": "waits", "Assigned": "placed", "Refused": "refused"}
_RANKS: Final = {"Waiting": 1, "Assigned": 3}
_EVENT_DELAY: Final = timedelta(seconds=2)
_ORDER: Final = ("Suspended", "SuccessCriteriaMet", "FailureTarget", "Complete", "Failed")


@dataclass(frozen=True, slots=True)
class Entry:
    timestamp: datetime
    cluster: str
    what: str
    rank: int = 0

    def as_json(self) -> dict[str, str]:
        return {"time": self.timestamp.isoformat(), "cluster": self.cluster, "what": self.what}


def timeline(
    job: Json,
    events: Iterable[Json] = (),
    *,
    cluster: str = HERE,
    copy: Json | None = None,
    pods: Iterable[Json] = (),
    events_there: Iterable[Json] = (),
) -> list[Entry]:
    """Everything that is known, oldest first. `cluster` is the cluster that has the copy and the pods."""
    found = [_created(job), *_events(events, HERE), *_conditions(job)]
    status = job.get("status") or {}
    if copy is not None and is_ours(job):
        attempt = (copy["metadata"].get("labels") or {}).get(ATTEMPT_LABEL, "1")
        copied = _entry(copy["metadata"]["creationTimestamp"], cluster, f"copy made (attempt {attempt})", 4)
        found = [*(_cause_first(entry, copied) for entry in found), copied]
    if status.get("startTime"):
        found.append(_entry(status["startTime"], cluster if is_ours(job) else HERE, "started", 5))
    found += _pods(list(pods), cluster)
    found += _events((event for event in events_there if _is_informative(event)), cluster)
    known = [entry for entry in found if entry is not None]
    # Most times on the wire have whole seconds; within one, things are told in the order in which they come about.
    return sorted(known, key=lambda entry: (entry.timestamp.replace(microsecond=0), entry.rank, entry.timestamp))


def _cause_first(entry: Entry | None, made: Entry | None) -> Entry | None:
    """An event is written after what it tells of, so the copy of a Job that was placed may be a second older."""
    if entry is None or made is None or entry.rank != _RANKS["Assigned"]:
        return entry
    late = timedelta(0) < entry.timestamp - made.timestamp <= _EVENT_DELAY
    return replace(entry, timestamp=made.timestamp) if late else entry


def _created(job: Json) -> Entry | None:
    metadata = job["metadata"]
    queue = (metadata.get("labels") or {}).get(QUEUE_LABEL)
    if is_ours(job):
        what = f"created; admitted as {job['spec']['managedBy']}'s" + (f", queue {queue}" if queue else "")
    elif queue:
        what = f"created; asks for queue {queue}, but was not made multimirror's: it runs on this cluster"
    else:
        what = "created; it asks for no queue and runs on this cluster"
    return _entry(metadata.get("creationTimestamp"), HERE, what)


def _events(events: Iterable[Json], cluster: str) -> Iterable[Entry | None]:
    for event in events:
        reason, count = str(event.get("reason", "")), (event.get("series") or {}).get("count") or event.get("count")
        subject = event.get("involvedObject") or {}
        about = f"pod {subject.get('name')}: " if subject.get("kind") == "Pod" else ""
        times = f" ({count} times)" if count and count > 1 else ""
        message = " ".join(str(event.get("message", "")).split())
        rank = _RANKS.get(reason, 2) if cluster == HERE else 8
        yield _entry(time_of(event), cluster, f"{about}{_WORDS.get(reason, reason)}: {message}{times}", rank)


def _is_informative(event: Json) -> bool:
    if event.get("type") == "Warning":
        return True
    return (event.get("involvedObject") or {}).get("kind") == "Job" and event.get("reason") not in _REDUNDANT


def _conditions(job: Json) -> Iterable[Entry | None]:
    conditions = (job.get("status") or {}).get("conditions") or ()
    for condition in sorted(conditions, key=lambda each: _ORDER.index(each["type"]) if each["type"] in _ORDER else 9):
        if condition.get("status") != "True":
            continue
        reason, message = condition.get("reason"), condition.get("message")
        why = ": ".join(part for part in (reason, message) if part)
        yield _entry(condition.get("lastTransitionTime"), HERE, condition["type"] + (f" ({why})" if why else ""), 9)


def _pods(pods: list[Json], cluster: str) -> Iterable[Entry | None]:
    many = len(pods) > _MOST_PODS
    for pod in pods:
        phase, name = (pod.get("status") or {}).get("phase"), pod["metadata"]["name"]
        if many and phase != "Failed":
            continue
        index = (pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index")
        about = f"pod {name}" + (f" (index {index})" if index is not None else "")
        node = (pod.get("spec") or {}).get("nodeName")
        made = f"{about} made" + (f" on {node}" if node else "")
        yield _entry(pod["metadata"].get("creationTimestamp"), cluster, made, 6)
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            yield from _container(container, about, cluster)
    if many:
        counted = Counter(str((pod.get("status") or {}).get("phase", "Pending")).lower() for pod in pods)
        last = max(pod["metadata"].get("creationTimestamp", "") for pod in pods)
        parts = ", ".join(f"{count} {phase}" for phase, count in sorted(counted.items()))
        yield _entry(last, cluster, f"{len(pods)} pods: {parts}; those that failed are told one by one", 8)


def _container(container: Json, about: str, cluster: str) -> Iterable[Entry | None]:
    for state in (container.get("lastState") or {}, container.get("state") or {}):
        ended: dict[str, Any] | None = state.get("terminated")
        if ended:
            code, reason = ended.get("exitCode", 0), ended.get("reason") or ""
            how = "succeeded" if code == 0 else f"failed with exit code {code}"
            extra = f" ({reason})" if reason not in {"", "Completed", "Error"} else ""
            yield _entry(ended.get("finishedAt"), cluster, f"{about} {how}{extra}", 7)
        waiting: dict[str, Any] | None = state.get("waiting")
        if waiting and waiting.get("reason") not in {None, "", "ContainerCreating", "PodInitializing"}:
            text = ": ".join(str(waiting[key]) for key in ("reason", "message") if waiting.get(key))
            yield Entry(datetime.now(UTC), cluster, f"{about} waits: {text}", 8)


def _entry(timestamp: str | None, cluster: str, what: str, rank: int = 0) -> Entry | None:
    try:
        return Entry(datetime.fromisoformat(timestamp or "").astimezone(UTC), cluster, what, rank)
    except ValueError:
        return None

"""Completion indexes: which are done, which failed, which come next, and who stands in for whom.

Statuses may have been damaged by somebody else: `read_indexes` takes what can be read and never fails. Sets stay
intervals all the way, so that a Job with 100,000 completions costs as much as its number of gaps.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from builtin_controller import failure_policy
from builtin_controller.job import Job
from builtin_controller.pods import NO_INDEX, Pod
from builtin_controller.removal import cheapest_first
from builtin_controller.vocabulary import SUCCEEDED
from multimirror.batch import IndexSet
from multimirror.batch.caching import TextCache

_NUMBER: Final = re.compile(r"\+?[0-9]{1,18}")
_REMEMBERED_CHARACTERS: Final = 2 * 2**20  # read, a text takes up to fifteen times its size


def read_indexes(text: str | None, completions: int) -> IndexSet:
    """The indexes of a status or a success rule: bad fragments are passed over, reading stops at the first one that
    starts beyond `completions`, ends are clipped."""
    return _remembered(text or "", completions)


def _fragments(text: str, completions: int) -> Iterator[tuple[int, int]]:
    for fragment in text.split(","):
        first, dash, last = fragment.partition("-")
        last = last.partition("-")[0]
        if not _NUMBER.fullmatch(first):
            continue
        start = int(first)
        if start >= completions:
            return
        if dash and not _NUMBER.fullmatch(last):
            continue
        end = min(int(last), completions - 1) if dash else start
        if start <= end:
            yield start, end


def _intervals(text: str, completions: int) -> IndexSet:
    return IndexSet.of_intervals(_fragments(text, completions))


_remembered: Final = TextCache(_intervals, characters=_REMEMBERED_CHARACTERS)


def succeeded_indexes(job: Job, pods: Iterable[Pod]) -> tuple[IndexSet, IndexSet]:
    """Those that the status knows, and those together with what succeeded since."""
    before = read_indexes(job.status.get("completedIndexes"), job.index_count)
    fresh = [pod.index for pod in pods if pod.phase == SUCCEEDED and pod.tracked and job.has_index(pod.index)]
    return before, (before | IndexSet.of(fresh)) if fresh else before


def failed_indexes(job: Job, pods: Iterable[Pod]) -> IndexSet:
    """The indexes that will not be tried again."""
    before = read_indexes(job.status.get("failedIndexes"), job.index_count)
    fresh = [pod.index for pod in pods if pod.tracked and job.has_index(pod.index) and _fails_index(job, pod)]
    return (before | IndexSet.of(fresh)) if fresh else before


def _fails_index(job: Job, pod: Pod) -> bool:
    if not pod.counts_as_failed(only_failed_replaced=job.only_failed_replaced):
        return False
    match = failure_policy.match(job.pod_failure_policy, pod)
    if match.action == failure_policy.FAIL_INDEX:
        return True
    assert job.backoff_limit_per_index is not None
    return match.counted and pod.failure_count >= job.backoff_limit_per_index


def kept_back(
    job: Job, pods: Iterable[Pod], removing: frozenset[str] | set[str], done: IndexSet, failed: IndexSet
) -> dict[int, Pod]:
    """For each index that waits for its next pod, the failed pod that keeps its finalizer until that pod exists: the
    number of failures so far is written on it, and has to be handed on."""
    pods = list(pods)
    running = {pod.index for pod in pods if pod.active}
    kept: dict[int, Pod] = {}
    for pod in pods:
        index = pod.index
        if not pod.tracked or pod.uid in removing or not job.has_index(index):
            continue
        if not pod.counts_as_failed(only_failed_replaced=job.only_failed_replaced):
            continue
        if index in running or index in done or index in failed:
            continue
        other = kept.get(index)
        if other is None or (
            failures_so_far(other) <= failures_so_far(pod) and pod.finish_time() >= other.finish_time()
        ):
            kept[index] = pod
    return kept


def failures_so_far(pod: Pod) -> int:
    """The failures of this index before this pod, counted and ignored ones."""
    return pod.failure_count + pod.ignored_failure_count


def pending_indexes(
    job: Job, pods: Iterable[Pod], succeeded: IndexSet, failed: IndexSet | None, count: int
) -> list[int]:
    """The `count` lowest indexes that need a pod."""
    taken = [pod.index for pod in pods if pod.active or (job.only_failed_replaced and pod.terminating)]
    busy = succeeded | IndexSet.of(index for index in taken if index != NO_INDEX)
    if failed is not None:
        busy |= failed
    found: list[int] = []
    candidate = 0
    for first, last in busy.intervals():
        found += range(candidate, min(first, job.index_count, candidate + count - len(found)))
        candidate = max(candidate, last + 1)
        if len(found) >= count:
            return found
    found += range(candidate, min(job.index_count, candidate + count - len(found)))
    return found


def split_surplus(job: Job, pods: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
    """Active pods of an Indexed Job that must go (no index, out of range, all but one of an index), and the others."""
    go: list[Pod] = []
    stay: list[Pod] = []
    for index, group in groupby(sorted(pods, key=lambda pod: pod.index), key=lambda pod: pod.index):
        same = list(group)
        if not job.has_index(index):
            go += same
        elif len(same) == 1:
            stay += same
        else:
            same = cheapest_first(same)
            go += same[:-1]
            stay.append(same[-1])
    return go, stay

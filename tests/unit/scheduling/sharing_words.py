"""P14: what a reason says, word by word: every number in its sentence is looked up, by what the sentence says it is.

The words are read, and not what they were made of: a number that was compared rightly may still be told wrongly. What
is right is found in the reference of quotas, and in what ran when the pass began.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from multimirror.kinds.pod_sets import nanos
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.claim_words import HasClaim
from multimirror.scheduling.filters import QuotaUsed, WorkerInfo
from multimirror.scheduling.preempting import RunningState
from multimirror.scheduling.preemption_words import Nobody, NotYet, RoomOnItsWay, WaitsFor
from multimirror.scheduling.refusals import AboveMost, CohortShort, KeptForOthers, Overtaken, OwnOnly, QueueShort
from tests.unit.scheduling.reference_quota import Place, Reference

_ASKS: Final = re.compile(r"it asks for (\d+) (\S+?)[.;,:]? ")
_USES: Final = re.compile(r"(queue|cohort) (\S+) uses (\S+) of its (own )?(\d+)")
_BORROWED: Final = re.compile(r"Queue (\S+) has (\d+) left: own (\d+) all used, (\d+) more borrowed of at most (\d+)")
_HAS_LEFT: Final = re.compile(r"cohort (\S+) has (\d+) left(?: \(own (\d+), borrow (\d+)\))?")
_AT_MOST: Final = re.compile(r"queue (\S+) can have (\d+) at most \(own (\d+)(?:, borrow (\d+))?")
_FREE: Final = re.compile(r"and (\d+) of the (\d+) of queue (\S+) are free")
_SHARES: Final = re.compile(
    r"was next for what is shared: its share is (\d+) of 1000(?: and (\d+) of 1000 for what it used before)?, "
    r"that of \S+ \S+ would be (\d+) of 1000(?: and (\d+) of 1000)?"
)
_TAKES: Final = re.compile(
    r"could take from \S+ \S+: its share is (\d+) of 1000, that of \S+ \S+ would be (\d+) of 1000"
)
_ROUNDED: Final = 1
"""Each of two numbers is rounded up."""
_PLACES: Final = re.compile(r"^has (\d+) free places? for pods of ")
_THERE: Final = re.compile(r"queue (\S+) has (\d+) (\S+?) there")
_WITHIN: Final = re.compile(
    r"queue (\S+) has \d+ \S+?(?: there)?, all of it within its own quota \((\d+) of (\d+) used\)"
)


def unwrapped(why: object) -> object:
    """What is said of quota, without what is said of victims, and of what is kept."""
    while isinstance(why, RoomOnItsWay | Nobody | HasClaim):
        why = why.why
    return why


def resource_of(why: object) -> str:
    """Of which the numbers are; nothing: of none."""
    match why:
        case (
            QueueShort(short=short)
            | CohortShort(short=short)
            | Overtaken(short=short)
            | KeptForOthers(short=short)
            | AboveMost(short=short)
            | OwnOnly(short=short)
        ):
            return short.resource
        case QuotaUsed(resource=name):
            return name
    return ""


def wrong_words(candidate: Candidate, why: object, there: Reference) -> list[str]:
    """What a sentence about quota says that is not so."""
    words, name = str(unwrapped(why)), resource_of(unwrapped(why))
    if not name:
        return []
    asked = [(nanos(amount), candidate.requests.get(resource)) for amount, resource in _ASKS.findall(words)]
    pairs = [*asked, *_standing(words, name, there), *_limits(words, name, there)]
    wrong = [f"{said} is told, and {so} is so" for said, so in pairs if said != so]
    for has, before, would, ours_before in _SHARES.findall(words):
        if int(has) + int(before or 0) > int(would) + int(ours_before or 0) + _ROUNDED:
            wrong.append(f"one with a share of {has} is told to come before one of {would}")
    for has, would in _TAKES.findall(words):
        if int(would) > int(has):
            wrong.append(f"one whose share would be {would} is told that it could take from one of {has}")
    return wrong


def _standing(words: str, name: str, there: Reference) -> Iterator[tuple[object, object]]:
    """What queues and cohorts are said to use, and to have left; and what is so."""
    for kind, place, used, own, whole in _USES.findall(words):
        node = Place(kind == "queue", place)
        has = there.own(node, name) if own else there.subtree(node, name)
        yield (nanos(used), nanos(whole)), (there.usage(node, name), has)
    for cohort, left, own, borrow in _HAS_LEFT.findall(words):
        node = Place(False, cohort)
        yield nanos(left), max(0, there.left_at(node, name))
        if own:
            yield (nanos(own), nanos(borrow)), (there.subtree(node, name), there.borrow(node, name) or 0)
    for free, own, queue in _FREE.findall(words):
        node = Place(True, queue)
        yield (nanos(free), nanos(own)), (max(0, -there.over(node, name)), there.own(node, name))


def _limits(words: str, name: str, there: Reference) -> Iterator[tuple[object, object]]:
    """What they are said to be allowed."""
    for queue, left, own, more, most in _BORROWED.findall(words):
        node = Place(True, queue)
        borrowed = max(0, there.usage(node, name) - there.own(node, name))
        so = (there.available(queue, name), there.own(node, name), borrowed, there.borrow(node, name))
        yield tuple(nanos(each) for each in (left, own, more, most)), so
    for queue, most, own, borrow in _AT_MOST.findall(words):
        node = Place(True, queue)
        yield (nanos(most), nanos(own)), (there.most(queue, name), there.own(node, name))
        if borrow:
            yield nanos(borrow), there.borrow(node, name)


def wrong_victims(why: object, there: Reference, state: RunningState) -> Iterator[str]:
    """What a sentence about victims says that is not so: who is leaving, who has what, who has not run for long."""
    match why:
        case WaitsFor(awaited=awaited):
            leaving = {job.name for job in state.leaving}
            gone = [job.name for job in awaited.leaving if job.name not in leaving]
            if gone:
                yield f"{gone} are said to be stopped, and are not"
        case NotYet(found=found, now=now):
            for job in found.jobs:
                least = there.queues[job.queue].min_runtime
                if not now < found.until or found.until > found.jobs[0].placed + least or now - job.placed >= least:
                    yield f"{job.name} has run for {now - job.placed} s, of {least}"
        case Nobody():
            words = str(why).removeprefix(str(why.why))
            if why.found.room is not None:
                yield from _wrong_room(words, why.found.room[0], state)
            for queue, used, own in _WITHIN.findall(words):
                node, name = Place(True, queue), why.lacking
                said, so = (nanos(used), nanos(own)), (there.usage(node, name), there.subtree(node, name))
                if said != so or said[0] > said[1]:
                    yield f"{node} uses {so[0]} of {so[1]}, and is said to be within its quota with {used} of {own}"


def _wrong_room(words: str, worker: str, state: RunningState) -> Iterator[str]:
    for queue, amount, name in _THERE.findall(words):
        so = sum(job.requests.get(name, 0) for job in state.running.of(queue, worker))
        if nanos(amount) != so:
            yield f"queue {queue} has {so} {name} on {worker}, not {amount}"
    if not _THERE.search(words):
        yield f"nobody may be stopped on {worker}, where nobody runs"


def wrong_places(candidate: Candidate, info: WorkerInfo, words: str) -> Iterator[str]:
    """What is said of places on the nodes of a worker, as they were known to the one who said it."""
    for told in _PLACES.findall(words):
        if info.free is not None and len(candidate.gang) == 1:
            (asked, _), *_ = candidate.gang
            so = sum(_places_on(node.free, asked.asked) for _, node in info.free.table.nodes())
            if int(told) != so:
                yield f"{info.name} has {so} places for its pods, not {told}"


def _places_on(free: Mapping[str, int], asked: Iterable[tuple[str, int]]) -> int:
    """What is no resource of all nodes is there only where it is listed."""
    counted = [(name, amount) for name, amount in asked if amount > 0 and (name in free or "/" in name)]
    return min(max(0, free.get(name, 0)) // amount for name, amount in counted)

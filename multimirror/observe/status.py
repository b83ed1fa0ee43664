"""The statuses of WorkerClusters, MirrorQueues and Cohorts: pure functions of a view and of the status that is there.

What others have written into a status stays. Conditions keep the time of their last transition.

Each status is made in two parts, which are written apart: its conditions, on which people and other programs rely, and
its numbers. So nothing that is wrong with a number, or that the API server refuses of one, keeps a condition from being
told. A part names its fields, None for one that is to go.

Texts and amounts come from workers, nodes and tenants. What is made of them here is within what the schemas allow,
whatever they say: reasons are words, messages have an end, and there are so many resources and no more.
"""

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Final

from multimirror.api import READY, RENEWED
from multimirror.api.mirror_queue_status import BORROWING, HELD, OVERUSED
from multimirror.batch import Json
from multimirror.batch.quantities import canonical
from multimirror.batch.times import format_time, seconds_of, utc_datetime
from multimirror.observe.cohorts import CohortView
from multimirror.observe.sharing import (
    QuotaView,
    are_about_the_same,
    hold_conditions,
    past_use_is_news,
    recent_numbers,
    share_text,
    sharing_conditions,
)
from multimirror.observe.snapshot import MirrorQueueView, QueueHead, QueueOnWorker, WorkerClusterView
from multimirror.workers import TokenState, WorkerState, conditions, merged_conditions

_LONGEST_MESSAGE: Final = 1024
_LONGEST_NAME: Final = 253
_LONGEST_UID: Final = 64
_MOST_CONDITIONS: Final = 16
_MOST_WORKERS: Final = 1000
_MOST: Final = 2**31 - 1
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?", re.ASCII)
_NO_WORD: Final = "BadAnswer"
"""The reason of a worker whose own is no word."""


def worker_cluster_conditions(view: WorkerClusterView, before: Json, now: float, *, contact_seconds: float) -> Json:
    """`contact_seconds`: so much older may the last contact be in the status than it is."""
    state = view.state
    if state is None:
        return {}
    wanted = conditions(state, cordoned=view.cordoned, token=view.token)
    return {
        "observedGeneration": view.generation,
        "conditions": _conditions(_but_the_tokens(before, view.token), wanted, now, view.generation),
        "misbehaviour": state.misbehaviour.written() if state.misbehaviour is not None else None,
        **(_identities(state) if state.identity else {}),
        **_token(view.token),
        **_contact(state, before, contact_seconds),
    }


def _identities(state: WorkerState) -> Json:
    """In one write: whoever reads the new one has to know which copies were signed for the one before."""
    former = [_words(each, _LONGEST_UID) for each in state.former]
    return {"identity": _words(state.identity, _LONGEST_UID), "formerIdentities": former or None}


def worker_cluster_numbers(view: WorkerClusterView) -> Json:
    state = view.state
    if state is None:
        return {}
    numbers: Json = {
        "jobs": _whole(view.jobs),
        "used": _quantities(view.used),
        "kinds": list(view.kinds),
    }
    if state.version:
        numbers["version"] = _words(state.version, _LONGEST_NAME)
    if view.capacity is not None:
        numbers["capacity"] = _quantities(view.capacity)
    return numbers


def _but_the_tokens(before: Json, token: TokenState | None) -> Json:
    """A credential that is not ours to renew has no such condition any more."""
    if token is None or token.renewable:
        return before
    return _but(before, {RENEWED})


def _but(before: Json, types: Collection[str]) -> Json:
    """Without conditions that there are not any more."""
    kept = [each for each in before.get("conditions") or () if each.get("type") not in types]
    return {**before, "conditions": kept}


def _token(token: TokenState | None) -> Json:
    """Nothing while nobody has looked at it."""
    if token is None:
        return {}
    return {"tokenExpires": format_time(utc_datetime(token.expires)) if token.expires is not None else None}


def _contact(state: WorkerState, before: Json, contact_seconds: float) -> Json:
    """The last contact, when what is written about it is too old; of a worker that is lost, the first time at once."""
    written = seconds_of(before.get("lastContact"), 0.0)
    if state.last_contact is None or (
        state.last_contact <= written + contact_seconds and (state.connected or written != 0)
    ):
        return {}
    contact: Json = {"lastContact": format_time(utc_datetime(state.last_contact))}
    if state.latency is not None:
        contact["latencyMilliseconds"] = _whole(round(state.latency * 1000))
    return contact


def mirror_queue_conditions(view: MirrorQueueView, before: Json, now: float) -> Json:
    ready = (READY, False, "InvalidSpec", view.problem) if view.problem else (READY, True, "Ready", "Jobs are taken")
    wanted = [ready, *hold_conditions(view.hold), *sharing_conditions(view.quota)]
    if view.quota is not None or view.problem:
        before = _but(before, {BORROWING, OVERUSED} - {each[0] for each in wanted})
    before = _but(before, {HELD} - {each[0] for each in wanted})
    return {
        "observedGeneration": view.generation,
        "conditions": _conditions(before, wanted, now, view.generation),
    }


def mirror_queue_numbers(view: MirrorQueueView, before: Json) -> Json:
    """What happened in the last hour slips out of it by and by: that alone is written now and then."""
    numbers: Json = {
        "pending": _whole(view.pending),
        "running": _whole(view.running),
        "finished": _whole(view.finished),
        "workers": [
            {"name": each.name, "running": _whole(each.running), "finished": _whole(each.finished)}
            for each in _busiest(view.workers)
        ],
        "head": _head(view.head) if view.head is not None else None,
        **_quota(view.quota, gone=bool(view.problem)),
    }
    recent = recent_numbers(view.starts)
    past, is_news = _past_use(view.quota, before, gone=bool(view.problem))
    same = all(before.get(field) == value for field, value in numbers.items())
    if same and are_about_the_same(recent, before) and not is_news:
        return numbers
    return numbers | recent | past


def _past_use(view: QuotaView | None, before: Json, *, gone: bool = False) -> tuple[Json, bool]:
    """What was used before changes all the time, and follows from what is written: so it is written with other numbers,
    and alone only if that does not hold any more. Whether it is so."""
    if view is None and not gone:
        return {}, False
    past = view.past_use if view is not None else None
    return {"pastUse": past}, past_use_is_news(past, before.get("pastUse"))


def _quota(view: QuotaView | None, *, gone: bool = False) -> Json:
    """The fields that tell of quota: none of them while nothing is known; `gone`: they are to go."""
    if view is None:
        return dict.fromkeys(("own", "used", "borrowed", "lent", "share", "fairShare")) if gone else {}
    fair_share = _whole(view.fair_share) if view.fair_share is not None else None
    return {**_amounts(view), "share": share_text(view) if view.shares else None, "fairShare": fair_share}


def _amounts(view: QuotaView) -> Json:
    parts = {"own": view.own, "used": view.used, "borrowed": view.borrowed, "lent": view.lent}
    return {field: _quantities(amounts) or None for field, amounts in parts.items()}


def cohort_conditions(view: CohortView, before: Json, now: float) -> Json:
    if view.problem:
        ready = (READY, False, "InvalidSpec", f"{view.problem}. Until then it is a name alone, without a parent")
    elif view.cycle:
        around = " in ".join((*view.cycle, view.cycle[0]))
        message = f"cohorts are in one another: {around}. Change or remove spec.parent of one of them"
        ready = (READY, False, "Cycle", message)
    else:
        ready = (READY, True, "Ready", "its queues share what they do not use")
    return {
        "observedGeneration": view.generation,
        "conditions": _conditions(before, [ready], now, view.generation),
    }


def cohort_numbers(view: CohortView, before: Json) -> Json:
    numbers = {"queues": _whole(view.queues), **(_amounts(view.quota) if view.quota is not None else {})}
    past, is_news = _past_use(view.quota, before)
    same = all(before.get(field) == value for field, value in numbers.items())
    return numbers if same and not is_news else numbers | past


def _conditions(before: Json, wanted: list[tuple[str, bool, str, str]], now: float, generation: int) -> list[Json]:
    told = [(kind, holds, _reason(reason), _words(message)) for kind, holds, reason, message in wanted]
    merged = merged_conditions(
        before.get("conditions") or [], told, now=format_time(utc_datetime(now)), generation=generation
    )
    return merged[:_MOST_CONDITIONS]  # ours are the first


def _head(head: QueueHead) -> Json:
    found = {"job": _words(head.job, 320), "reason": _reason(head.reason), "message": _words(head.message)}
    return found | ({"since": head.since} if head.since else {})


def _busiest(workers: tuple[QueueOnWorker, ...]) -> list[QueueOnWorker]:
    """In the order that they have; of very many, those that run most."""
    if len(workers) <= _MOST_WORKERS:
        return list(workers)
    kept = sorted(workers, key=lambda each: (-each.running, -each.finished, each.name))[:_MOST_WORKERS]
    return sorted(kept, key=lambda each: each.name)


def _quantities(amounts: Mapping[str, Decimal]) -> dict[str, str]:
    return {
        name: canonical(f"{max(amount, Decimal(0)).normalize():f}")
        for name, amount in sorted(amounts.items())
        if amount
    }


def _whole(number: int) -> int:
    return min(max(number, 0), _MOST)


def _reason(reason: str) -> str:
    return reason if _REASON.fullmatch(reason) else _NO_WORD


def _words(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """One line, and not too long."""
    line = text if len(text) <= longest else text[: longest - 3] + "..."
    return line if line.isprintable() else "".join([each if each.isprintable() else " " for each in line])

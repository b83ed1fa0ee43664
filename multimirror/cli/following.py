"""What `logs -f` shows next, and what it says: a Job is followed from worker to worker, to its end. Pure.

The original on the management cluster decides: where it is (attempt and worker) is where logs are read, whatever an
older copy still writes. It waits as long as the Job does, goes along when the Job moves, and ends when the Job has
ended and everything is read, or when that takes too long (its worker is gone).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from multimirror.api.placement import attempt_of, cluster_of
from multimirror.batch import Json, is_finished
from multimirror.cli import rows

LEFTOVERS_SECONDS: Final = 30.0
"""How long the rest of the logs may take when the Job has ended."""
REASON_SECONDS: Final = 2.0
"""How long the event that says why a Job waits, or was moved, is waited for before that is said without a reason."""
_MOVES: Final = {
    "WorkerLost": "{worker} was lost",
    "FenceExpired": "{worker} had no contact and ended it, as its fence says",
    "CopyVanished": "it was deleted on {worker}",
    "Refused": "{worker} did not take it",
    "TemplateChanged": "its template was changed",
    "NotAdmitted": "no queue had admitted it to {worker}",
}
"""Why a Job is somewhere else, by the reason of the event."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where logs are read: an attempt on a worker; of a Job of the management cluster's own, there."""

    attempt: int
    worker: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is known now."""

    original: Json | None
    """None: it was deleted."""
    events: Sequence[Json] | None = ()
    """About it; None: they have not been read yet."""
    at: Place | None = None
    """Where it is read now; what follows is about that place."""
    trouble: str = ""
    """Why nothing can be read there."""
    drained: bool = False
    """All that there is, and will be, was read."""
    unread: Sequence[str] = ()
    """What was not read to its end, in words."""
    management_trouble: str = ""
    """Why the original cannot be watched."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What was done and said so far."""

    place: Place | None = None
    """Where it was read last."""
    unexplained_since: float | None = None
    """Since when it has waited, or been elsewhere, without a reason that we know of."""
    moves_told: int | None = None
    """So many events about moves were there when its place began; None: that is not known yet."""
    ended_at: float | None = None
    waits: str | None = None
    """Why it waits, as it was said."""
    trouble: bool = False
    management_trouble: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do: read at `follow`, and nowhere else; `say` this; look again `again_in` seconds at the latest."""

    follow: Place | None
    memory: Memory
    say: tuple[str, ...] = ()
    ending: bool = False
    """What is there is all there will be."""
    done: bool = False
    again_in: float | None = None


def decide(observed: Observed, memory: Memory, now: float) -> Decision:
    """Level-based: whatever happened in between, it is the present that counts."""
    said, memory = _about_management(observed, memory)
    original = observed.original
    if original is None or is_finished(original.get("status") or {}):
        decision = _ended(observed, memory, now)
    elif (place := place_of(original)) is None:
        decision = _waiting(original, observed, memory, now)
    elif memory.place is not None and place != memory.place:
        decision = _moved(place, observed, memory, now)
    else:
        decision = _there(original, place, observed, memory)
    return replace(decision, say=(*said, *decision.say))


def place_of(original: Json) -> Place | None:
    """None: it has none yet."""
    if not rows.is_ours(original):
        return Place(0, None)
    worker = cluster_of(original)
    return Place(attempt_of(original), worker) if worker is not None else None


def _about_management(observed: Observed, memory: Memory) -> tuple[tuple[str, ...], Memory]:
    trouble = observed.management_trouble
    if bool(trouble) == memory.management_trouble:
        return (), memory
    how = f"does not answer ({trouble}); trying again" if trouble else "answers again"
    text = f"the management cluster {how}"
    return (text,), replace(memory, management_trouble=bool(trouble))


def _ended(observed: Observed, memory: Memory, now: float) -> Decision:
    """Read what is left, for a while."""
    original, say = observed.original, []
    # One that was deleted is where it was last: its pods have a moment to end.
    place = place_of(original) if original is not None else memory.place
    if memory.ended_at is None:
        memory = replace(memory, ended_at=now)
        if original is None:
            say.append("the Job was deleted")
        elif place is None:
            say.append("the Job ended without a worker" + _reason(rows.why(original, rows.JobContext())))
        elif memory.place is not None and place != memory.place:
            say.append(_announcement(place, _why_moved(observed.events, memory)))
    assert memory.ended_at is not None
    here = observed.at == place
    if place is None or (here and observed.drained):
        return Decision(None, memory, tuple(say), done=True)
    left = memory.ended_at + LEFTOVERS_SECONDS - now
    memory = replace(memory, place=place)
    if left > 0:
        return Decision(place, memory, tuple(say), ending=True, again_in=left)
    where = place.worker or "the management cluster"
    why = f"{where} cannot be reached ({observed.trouble})" if observed.trouble else "; ".join(observed.unread)
    say.append("the rest of the logs could not be read" + _reason(why))
    return Decision(None, memory, tuple(say), done=True)


def _waiting(original: Json, observed: Observed, memory: Memory, now: float) -> Decision:
    """For a worker."""
    waiting = rows.newest(event for event in observed.events or () if event.get("reason") == rows.WAITING)
    why = rows.why(original, rows.JobContext(waiting))
    moved = _why_moved(observed.events, memory) if memory.place is not None else ""
    since = now if memory.unexplained_since is None else memory.unexplained_since
    left = since + REASON_SECONDS - now
    memory = replace(memory, unexplained_since=since, trouble=False)
    if not why and left > 0:
        return Decision(None, memory, again_in=left)  # mostly it is placed at once
    text = "the Job waits to be placed" + (f" again ({moved})" if moved else "") + _reason(why)
    return Decision(None, replace(memory, waits=text), (text,) if memory.waits != text else ())


def _moved(place: Place, observed: Observed, memory: Memory, now: float) -> Decision:
    """The old attempt is of no interest any more, whatever it still writes."""
    why = _why_moved(observed.events, memory)
    since = now if memory.unexplained_since is None else memory.unexplained_since
    left = since + REASON_SECONDS - now
    if not why and left > 0:
        return Decision(None, replace(memory, unexplained_since=since), again_in=left)
    begun = Memory(place, moves_told=_count(observed.events), management_trouble=memory.management_trouble)
    return Decision(place, begun, (_announcement(place, why),))


def _there(original: Json, place: Place, observed: Observed, memory: Memory) -> Decision:
    say: list[str] = []
    if memory.place is None:
        memory = replace(memory, place=place)
        if memory.waits is not None:
            say.append(_announcement(place, ""))
    if memory.moves_told is None:
        memory = replace(memory, moves_told=_count(observed.events))
    waits = "the Job is suspended" if rows.state_of(original) == "Suspended" else None
    if waits is not None and waits != memory.waits:
        say.append(waits)
    memory = replace(memory, unexplained_since=None, waits=waits)
    if observed.at == place and bool(observed.trouble) != memory.trouble:
        where = place.worker or "the management cluster"
        trouble = f"{where} cannot be reached ({observed.trouble}); trying again"
        say.append(trouble if observed.trouble else f"{where} answers again")
        memory = replace(memory, trouble=bool(observed.trouble))
    return Decision(place, memory, tuple(say))


def _announcement(place: Place | None, why: str) -> str:
    if place is None or place.worker is None:
        return "the Job runs on the management cluster itself now"
    return f"attempt {place.attempt}, on {place.worker}" + (f" ({why})" if why else "")


def _why_moved(events: Iterable[Json] | None, memory: Memory) -> str:
    """Empty: nobody has said, since its last place began."""
    count, last = _moves(events or ())
    if last is None or memory.moves_told is None or count <= memory.moves_told:
        return ""
    worker = memory.place.worker if memory.place is not None else None
    return _MOVES[str(last.get("reason"))].format(worker=worker or "its worker")


def _count(events: Iterable[Json] | None) -> int | None:
    return None if events is None else _moves(events)[0]


def _moves(events: Iterable[Json]) -> tuple[int, Json | None]:
    """How many times a reason for a move was told, repeated ones included; and the last one."""
    about = [event for event in events if event.get("reason") in _MOVES]
    count = sum((event.get("series") or {}).get("count") or event.get("count") or 1 for event in about)
    return count, max(about, key=rows.time_of, default=None)


def _reason(why: str) -> str:
    return f": {why}" if why else ""

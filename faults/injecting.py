"""The faults of a plan at work: which of them strike now, and what state each link is in.

One injector serves all proxies of a run. It keeps count for each fault that waits for its turn, switches the states of
links on and off, and asks whoever runs the fleet (`hands`) for what no proxy can do: killing processes, replacing
clusters.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from faults.plan import AT_A_MOMENT, LINKS, REQUESTS, WATCHES, Fault
from faults.record import Record, Struck
from faults.wire import Call

_ONE_REQUEST: Final = frozenset((*REQUESTS, "crash", "crash_after", "gone", "replay"))
_ONE_EVENT: Final = frozenset(WATCHES) - _ONE_REQUEST

Hands = Callable[[Fault], Awaitable[None]]


@dataclass(slots=True)
class _Waiting:
    fault: Fault
    count: int = 0


@dataclass(slots=True)
class LinkState:
    """What is wrong with a link as a whole."""

    fault: Fault
    place: int
    """Of what was noted about it, in the record."""
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Injector:
    """A plan, from `start` on."""

    def __init__(self, plan: Iterable[Fault], record: Record, hands: Hands | None = None) -> None:
        self.plan = tuple(plan)
        self.record = record
        self.states: dict[str, LinkState] = {}
        self.on_state: Callable[[str], None] = lambda _: None
        """Told the link whose state has changed."""
        self._hands = hands
        self._began = 0.0
        self._waiting = [_Waiting(fault) for fault in self.plan if fault.kind in _ONE_REQUEST | _ONE_EVENT]
        self._tasks: asyncio.TaskGroup | None = None
        self._stopped = False
        self.spent = asyncio.Event()
        """Set when no fault waits for its request any more."""
        if not self._waiting:
            self.spent.set()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return asyncio.get_running_loop().time() - self._began

    async def run(self) -> None:
        """Let all faults that have a time strike, each at its own; returns when the last of them is over."""
        self._began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as self._tasks:
            for fault in self.plan:
                if fault.kind in LINKS:
                    self._tasks.create_task(self._spoil(fault))
                elif fault.kind in AT_A_MOMENT:
                    self._tasks.create_task(self._at(fault))

    def stop(self) -> None:
        """From now on nothing goes wrong any more."""
        self._stopped = True
        for link in tuple(self.states):
            self.mend(link)

    def expect(self, fault: Fault) -> None:
        """One more that waits for its request, or its event, from now on."""
        self._waiting.append(_Waiting(fault))
        self.spent.clear()

    def spoil(self, fault: Fault) -> LinkState:
        """Put a link in that state, until it is mended."""
        if fault.link in self.states:
            self.mend(fault.link)
        self.struck(fault, fault.seconds)
        state = self.states[fault.link] = LinkState(fault, len(self.record.struck) - 1)
        self.on_state(fault.link)
        return state

    def mend(self, link: str) -> None:
        """Nothing is wrong with that link as a whole any more; the record says until when it was."""
        state = self.states.pop(link)
        struck, now = self.record.struck, asyncio.get_running_loop().time()
        struck[state.place] = replace(struck[state.place], until=min(now, struck[state.place].until))
        state.over.set()
        self.on_state(link)

    def on_request(self, link: str, call: Call) -> Fault | None:
        """What is to happen to this request."""
        return self._strike(_ONE_REQUEST, link, call)

    def on_event(self, link: str, call: Call) -> Fault | None:
        """What is to happen to this event of a watch."""
        return self._strike(_ONE_EVENT, link, call)

    def struck(self, fault: Fault, seconds: float = 0.0) -> None:
        """Note that it took effect, for that long."""
        now = asyncio.get_running_loop().time()
        self.record.struck.append(Struck(now, fault, now + seconds))

    async def ask(self, fault: Fault) -> None:
        """Have it done by whoever runs the fleet."""
        if self._hands is not None:
            await self._hands(fault)

    def _strike(self, kinds: frozenset[str], link: str, call: Call) -> Fault | None:
        if self._stopped:
            return None
        now = self.now
        due: _Waiting | None = None
        for waiting in self._waiting:
            fault = waiting.fault
            if fault.kind in kinds and fault.link == link and now >= fault.at:
                if fault.matches(call.verb, call.resource):
                    waiting.count += 1
                    if due is None and waiting.count >= fault.nth:
                        due = waiting
        if due is None:
            return None
        self._waiting.remove(due)
        if not self._waiting:
            self.spent.set()
        self.struck(due.fault, due.fault.seconds)
        return due.fault

    async def _spoil(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        if self._stopped:
            return
        state = self.spoil(fault)
        try:
            async with asyncio.timeout(fault.seconds):
                await state.over.wait()
        except TimeoutError:
            pass
        if self.states.get(fault.link) is state:
            self.mend(fault.link)

    async def _at(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        if not self._stopped:
            self.struck(fault, fault.seconds)
            await self.ask(fault)
            if fault.kind == "pause":
                await asyncio.sleep(fault.seconds)  # it is over when its process goes on

"""Nobody waits for the event loop while a pass begins or ends: what costs much is done in slices, as the rest of it."""

import asyncio
import time
from dataclasses import replace
from typing import Any, cast
from unittest import mock

from multimirror.kinds import JOB, KINDS
from multimirror.kube import Client
from multimirror.observe.what_if import Changes, WhatIf
from multimirror.scheduling import slots
from multimirror.scheduling.announcements import Announcements
from multimirror.scheduling.assignments import Assignments
from multimirror.scheduling.candidates import Candidate
from multimirror.scheduling.scheduler import Scheduler
from multimirror.scheduling.usage import Reservation
from multimirror.scheduling.writers import Objects
from multimirror.workers import WorkerState
from multimirror.workers.node_table import NodesView, NodeTable
from tests.unit.scheduling.builders import a_candidate, queue, ref, worker
from tests.unit.scheduling.test_free_plan import gang, requests
from tests.unit.scheduling.test_slots import a_node

LONG = 0.006
"""Seconds that one step takes: longer than a slice."""


class Turns:
    """How often others had the event loop."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


class Told:
    """Announcements that take long to be put into words."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.at: list[int] = []

    def knows_why_it_waits(self, ref: Any, reason: str) -> bool:
        return False

    def room(self, namespace: str) -> int:
        return 1000

    def tell_why_it_waits(self, kind: Any, obj: Any, decision: Any) -> None:
        self.at.append(self.turns.count)
        time.sleep(LONG)


class Jobs:
    def get(self, ref: Any) -> Any:
        return {"metadata": {"name": ref.uid, "namespace": "team"}, "spec": {}, "status": {}}

    def kind(self, ref: Any) -> Any:
        return JOB


def a_scheduler(assignments: Assignments, told: Told, *waiting: Candidate) -> Scheduler:
    nodes = NodesView(NodeTable.of([a_node("n", gpu=1)]))
    there = replace(worker("w1", WorkerState(connected=True)), nodes=nodes)
    scheduler = Scheduler(
        cast("Client", None),
        cast("Objects", Jobs()),
        assignments,
        cast("Announcements", told),
        queues=lambda: {"q": queue()},
        workers=lambda: {"w1": there},
        worker=lambda name: there,
        clock=lambda: 1_800_000_000.0,
    )
    for each in waiting:
        scheduler.offer(each)
    return scheduler


async def a_pass(assignments: Assignments, told: Told, *waiting: Candidate) -> None:
    scheduler = a_scheduler(assignments, told, *waiting)
    task = asyncio.get_running_loop().create_task(told.turns.run())
    await scheduler._pass()
    task.cancel()


async def test_others_have_the_loop_while_many_are_told_why_they_wait() -> None:
    told = Told(Turns())
    waiting = [a_candidate(f"x{number}", requests=requests(2), gang=gang(2)) for number in range(10)]
    await a_pass(Assignments(KINDS, lambda obj: "q", lambda ref: None), told, *waiting)
    assert len(told.at) == len(set(told.at)) == 10, "between any two of them"


def many_that_show_no_pods() -> Assignments:
    assignments = Assignments(KINDS, lambda obj: "q", lambda ref: None)
    for number in range(10):
        assignments.usage.put(ref(f"r{number}"), Reservation("q", "team", "w1", requests(1), gang(1)))
    return assignments


async def test_others_have_the_loop_while_room_is_made_for_jobs_that_show_no_pods() -> None:
    told, made_at = Told(Turns()), list[int]()
    with mock.patch.object(slots, "put_all", slowly(told, made_at)):
        await a_pass(many_that_show_no_pods(), told)
    assert len(made_at) == len(set(made_at)) == 10


async def test_others_have_the_loop_while_room_is_made_for_what_would_be_if() -> None:
    told, made_at = Told(Turns()), list[int]()
    waits = a_candidate("x", requests=requests(2), gang=gang(2))
    what_if = WhatIf(a_scheduler(many_that_show_no_pods(), told, waits), lambda *_: None)
    task = asyncio.get_running_loop().create_task(told.turns.run())
    with mock.patch.object(slots, "put_all", slowly(told, made_at)):
        answer = await what_if.plan("x", Changes(priority=5))
    task.cancel()
    assert answer["priority"] == 5
    assert len(made_at) == len(set(made_at)) == 10


def slowly(told: Told, made_at: list[int]) -> Any:
    def slow(table: NodeTable, *_: Any) -> Any:
        made_at.append(told.turns.count)
        time.sleep(LONG)
        return table, ()

    return slow

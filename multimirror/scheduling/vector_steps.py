"""Recorded situations in several steps: what each step does, and what is looked at after it.

Everything settles after each step: passes are repeated until nothing more happens, and those that are stopped are gone
at once, unless the case says that this takes time (`slowEvictions`, `evictionDone`).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from multimirror.api import Hold
from multimirror.batch import Json
from multimirror.scheduling.shares import share_of_queue
from multimirror.scheduling.vector_cases import REASONS, a_cohort, a_job, a_queue, a_simulation, amounts, several
from multimirror.scheduling.victims import Victim


class UnknownStepError(Exception):
    """The case asks for something that cannot be replayed."""


class StepReplay:
    """One case, from its first step to its last."""

    def __init__(self, case: Json) -> None:
        self._case, self._fair = case, "fairSharing" in case
        self._simulation = a_simulation(case)
        self._queues: dict[str, Json] = {each["name"]: each for each in case["queues"]}
        self._cohorts: dict[str, Json] = {each["name"]: each for each in case["cohorts"]}
        self._seen = 0
        """How many of those that were stopped an earlier step has looked at."""

    def differences(self) -> list[str]:
        """What is otherwise than the case says."""
        found: list[str] = []
        for number, step in enumerate(self._case["steps"]):
            for verb, given in step.items():
                if verb == "expect":
                    continue
                act = _VERBS.get(verb)
                if act is None:
                    raise UnknownStepError(f"step {number}: there is no rule for {verb}")
                act(self, given)
            if not self._simulation.settle():
                found.append(f"step {number}: it does not come to rest")
            if "expect" in step:
                found += [f"step {number}: {each}" for each in self._compare(step["expect"])]
        return found

    def _compare(self, expect: Json) -> Iterator[str]:
        for field, wanted in expect.items():
            check = _CHECKS.get(field)
            if check is None:
                raise UnknownStepError(f"there is no rule for {field}")
            yield from check(self, wanted)
        self._seen = len(self._simulation.stopped)

    def _create(self, given: list[Json]) -> None:
        for each in given:
            for one in several(each):
                job = a_job(one)
                if "created" not in one:
                    job.age = self._simulation.tick()
                self._simulation.jobs[job.name] = job

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self._simulation.remove(name)

    def _update(self, given: list[Json]) -> None:
        for each in given:
            job = self._simulation.jobs[each["name"]]
            job.requests = amounts(each["requests"]) if "requests" in each else job.requests
            job.priority = each.get("priority", job.priority)

    def _set_queue(self, given: list[Json]) -> None:
        queues = self._simulation.queues
        for each in given:
            name = each["name"]
            spec = self._queues[name] = self._queues.get(name, {}) | each
            hold = queues[name].hold if name in queues else Hold.NONE
            queues[name] = replace(a_queue(spec, fair=self._fair), hold=hold)

    def _set_cohort(self, given: list[Json]) -> None:
        for each in given:
            spec = self._cohorts[each["name"]] = self._cohorts.get(each["name"], {}) | each
            self._simulation.cohorts[each["name"]] = a_cohort(spec)

    def _remove_queue(self, names: list[str]) -> None:
        for name in names:
            del self._simulation.queues[name], self._queues[name]

    def _remove_cohort(self, names: list[str]) -> None:
        for name in names:
            del self._simulation.cohorts[name], self._cohorts[name]

    def _hold(self, names: list[str], hold: Hold = Hold.HOLD) -> None:
        for name in names:
            self._simulation.queues[name] = replace(self._simulation.queues[name], hold=hold)

    def _drain(self, names: list[str]) -> None:
        self._hold(names, Hold.DRAIN)
        for job in list(self._simulation.jobs.values()):
            if job.queue in names:
                self._stop(job.name)

    def _stop(self, name: str) -> None:
        self._simulation.stop(name)
        if not self._simulation.slow_evictions and self._simulation.jobs[name].leaving:
            self._simulation.finish_evictions([name])

    def _not_ready(self, names: list[str]) -> None:
        """It waits at the end of its queue, after a while."""
        for name in names:
            self._stop(name)
            job = self._simulation.jobs[name]
            job.backing_off, job.age = True, self._simulation.tick()

    def _activate(self, names: list[str], *, active: bool = True) -> None:
        for name in names:
            self._simulation.jobs[name].backing_off = not active
            if not active:
                self._stop(name)

    def _slow_evictions(self, slow: bool) -> None:
        self._simulation.slow_evictions = slow

    def _eviction_done(self, names: list[str]) -> None:
        self._simulation.finish_evictions(names)

    def _names(self, *, running: bool) -> list[str]:
        jobs = self._simulation.jobs.values()
        return sorted(job.name for job in jobs if (job.runs if running else job.waits))

    def _check_running(self, wanted: list[str]) -> Iterator[str]:
        if self._names(running=True) != sorted(wanted):
            yield f"running {self._names(running=True)} vs {sorted(wanted)}"

    def _check_also_running(self, wanted: list[str]) -> Iterator[str]:
        yield from (f"{name} does not run" for name in wanted if name not in self._names(running=True))

    def _check_waiting(self, wanted: list[str]) -> Iterator[str]:
        yield from (f"{name} does not wait" for name in wanted if name not in self._names(running=False))

    def _check_one_of(self, wanted: Any) -> Iterator[str]:
        count, names = wanted
        found = [name for name in names if name in self._names(running=True)]
        if len(found) != count:
            yield f"of {names} {found} run, not {count}"

    def _check_evicting(self, wanted: list[str]) -> Iterator[str]:
        found = sorted(job.name for job in self._simulation.jobs.values() if job.leaving)
        if found != sorted(wanted):
            yield f"evicting {found} vs {sorted(wanted)}"

    def _check_count(self, wanted: Mapping[str, int], *, running: bool) -> Iterator[str]:
        found = Counter(self._simulation.jobs[name].queue for name in self._names(running=running))
        for queue, count in wanted.items():
            if found[queue] != count:
                yield f"in {queue} {found[queue]} {'run' if running else 'wait'}, not {count}"

    def _check_share(self, wanted: Mapping[str, float | str]) -> Iterator[str]:
        usage = self._simulation.usage()
        for queue, share in wanted.items():
            found = float(share_of_queue(usage, queue)) * 1000
            if not (math.isinf(found) if share == "infinite" else math.isclose(found, float(share), abs_tol=1e-6)):
                yield f"the share of {queue} is {found}, not {share}"

    def _stopped(self) -> Iterator[list[Victim]]:
        """Since the last look, or since the beginning: the cases mean the one or the other."""
        yield self._simulation.stopped[self._seen :]
        yield self._simulation.stopped

    def _check_preempted(self, wanted: list[Any]) -> Iterator[str]:
        """By name, or by name and reason."""
        expected = {
            (each, None) if isinstance(each, str) else (each["name"], REASONS.get(each["reason"], each["reason"]))
            for each in wanted
        }
        with_reasons = any(reason is not None for _, reason in expected)
        found = [
            {(each.job.name, str(each.reason) if with_reasons else None) for each in stopped}
            for stopped in self._stopped()
        ]
        if expected not in found:
            yield f"preempted {sorted(map(str, found[0]))} vs {sorted(map(str, expected))}"

    def _check_preempted_count(self, wanted: Mapping[str, int]) -> Iterator[str]:
        found = [Counter(each.job.queue for each in stopped) for stopped in self._stopped()]
        for queue, count in wanted.items():
            if count not in {each[queue] for each in found}:
                yield f"of {queue} {found[0][queue]} were preempted, not {count}"


_VERBS: Final[Mapping[str, Callable[[StepReplay, Any], None]]] = {
    "create": StepReplay._create,
    "finish": StepReplay._remove,
    "delete": StepReplay._remove,
    "shrink": StepReplay._update,
    "update": StepReplay._update,
    "setQueue": StepReplay._set_queue,
    "setCohort": StepReplay._set_cohort,
    "removeQueue": StepReplay._remove_queue,
    "removeCohort": StepReplay._remove_cohort,
    "hold": StepReplay._hold,
    "drain": StepReplay._drain,
    "release": lambda replay, names: replay._hold(names, Hold.NONE),
    "notReady": StepReplay._not_ready,
    "backoffOver": StepReplay._activate,
    "deactivate": lambda replay, names: replay._activate(names, active=False),
    "activate": StepReplay._activate,
    "slowEvictions": StepReplay._slow_evictions,
    "evictionDone": StepReplay._eviction_done,
}

_CHECKS: Final[Mapping[str, Callable[[StepReplay, Any], Iterator[str]]]] = {
    "running": StepReplay._check_running,
    "alsoRunning": StepReplay._check_also_running,
    "waiting": StepReplay._check_waiting,
    "oneOf": StepReplay._check_one_of,
    "evicting": StepReplay._check_evicting,
    "runningCount": lambda replay, wanted: replay._check_count(wanted, running=True),
    "waitingCount": lambda replay, wanted: replay._check_count(wanted, running=False),
    "share": StepReplay._check_share,
    "preempted": StepReplay._check_preempted,
    "preemptedCount": StepReplay._check_preempted_count,
}

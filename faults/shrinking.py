"""The shortest story that still goes wrong: faults and steps are dropped, one after the other, while it does."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from faults.rules import Violation
from faults.scenario import Scenario

Try = Callable[[Scenario], list[Violation]]


def shrink(scenario: Scenario, violations: list[Violation], run: Try, *, tries: int = 80) -> Scenario:
    """A scenario with as few faults and steps as it takes to break one of the same invariants."""
    broken = {violation.invariant for violation in violations}
    left = tries
    progress = True
    while progress and left > 0:
        progress = False
        for candidate in _shorter(scenario):
            left -= 1
            if any(violation.invariant in broken for violation in run(candidate)):
                scenario, progress = candidate, True
                break
            if left <= 0:
                break
    return scenario


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    """Half of the faults, then all about one Job, then one fault or step at a time."""
    plan, steps = list(scenario.plan), list(scenario.steps)
    if len(plan) > 2:
        yield replace(scenario, plan=plan[: len(plan) // 2])
        yield replace(scenario, plan=plan[len(plan) // 2 :])
    tricks = list(scenario.tricks)
    for number in range(len(tricks)):
        yield replace(scenario, tricks=tricks[:number] + tricks[number + 1 :])
    for name in dict.fromkeys(step.name for step in steps):
        yield replace(scenario, steps=[step for step in steps if step.name != name])
    for number in range(len(plan)):
        yield replace(scenario, plan=plan[:number] + plan[number + 1 :])
    for number, step in enumerate(steps):
        if step.do != "submit":
            yield replace(scenario, steps=steps[:number] + steps[number + 1 :])

"""Recorded situations of queueing, and what we make of them:

    python -m multimirror.scheduling.vectors FILE

FILE is JSON, and explains its own format. Prints where we decide otherwise than is expected of us (the first few), and
ends with `N cases, D disagreements, S not offered`. Exit code 1: there are disagreements; 2: FILE cannot be read.

What is expected of a case: what its `proposal` says of our rules. `offered` false: it uses what we do not offer.
`same`: as the other scheduler decided (`expect`), but for `reasons` that the proposal gives. Not the same: what the
proposal gives instead (`preempted` and `admitted`, or where the steps differ). Without a proposal: `expect`, unless
what is asked is no rule of ours:

- whether to stop one of the same priority that is newer (a policy LowerOrNewerEqualPriority, or `withinNewer`),
- taking own quota back from lower priorities only (`reclaimLower`), stopping others in order to borrow
  (`borrowWithinCohort` without shares, and what a head that would borrow keeps free), fewer pods than asked
  (`partial`),
- an order, or a choice of victims, by what namespaces used in the past (`namespaceUsage`).

Of a pass, what was placed is compared, and who was stopped for what reason. Not which of the others are `parked`: with
us, a Job that fits once those are gone who are being stopped waits for them, whoever they are stopped for. (The rule by
which Jobs are parked has cases of its own, of kind `park`.)
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from multimirror.batch import Json
from multimirror.scheduling.vector_cases import ANSWERS, REASONS, expected_reserve
from multimirror.scheduling.vector_steps import StepReplay, UnknownStepError

_SHOWN: Final = 20
_NOT_OFFERED: Final = frozenset({"withinNewer", "reclaimLower", "borrowWithinCohort", "partial", "namespaceUsage"})
_STEP: Final = re.compile(r"step (\d+):")
_WORDED_ALIKE: Final = re.compile(r"step \d+: (evicting \[|\S+ does not (wait|run)$)")
"""Differences of steps that a case words as we do."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A case that we decide otherwise."""

    case: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.case}\n  expected: {_line(self.expected)}\n  got:      {_line(self.got)}"


NOT_OFFERED: Final = "not offered"


def replay(case: Json) -> Disagreement | str | None:
    """How a case comes out: None, as expected; NOT_OFFERED; or the disagreement."""
    name = str(case.get("name", "(without a name)"))
    if not _is_offered(case):
        return NOT_OFFERED
    try:
        expected, got = _steps(case) if case["kind"] == "steps" else _decision(case)
    except UnknownStepError as error:
        return Disagreement(name, "a case that can be replayed", str(error))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        return Disagreement(name, "a case that can be read", f"{type(error).__name__}: {error}")
    return None if expected == got else Disagreement(name, expected, got)


def _is_offered(case: Json) -> bool:
    if "proposal" in case:
        return bool(case["proposal"].get("offered"))
    needs = set(case.get("needs") or ())
    if "fairSharing" in case:
        needs.discard("borrowWithinCohort")  # of no effect where shares decide
    newer = case.get("policy") == "LowerOrNewerEqualPriority"
    borrows = case.get("kind") == "reserve" and case["head"].get("mode") != "Fit" and case["head"].get("borrows")
    return not (needs & _NOT_OFFERED or newer or borrows)


def _steps(case: Json) -> tuple[Any, Any]:
    proposal = case.get("proposal") or {"same": True}
    got = StepReplay(case).differences()
    if proposal["same"]:
        return [], got
    expected = proposal["differs"]
    if all(_WORDED_ALIKE.match(each) for each in expected):
        return sorted(expected), sorted(got)
    return _numbers(expected), _numbers(got)


def _numbers(differences: Sequence[str]) -> list[int]:
    return sorted({int(found[1]) for each in differences if (found := _STEP.match(each))})


def _decision(case: Json) -> tuple[Any, Any]:
    kind, expect = case["kind"], case["expect"]
    answer = ANSWERS.get(kind)
    if answer is None:
        raise UnknownStepError(f"there is no rule for cases of kind {kind}")
    got = answer(case)
    if kind == "reserve":
        return expected_reserve(expect), got
    if kind not in ("preempt", "cycle"):
        return expect, got
    proposal = case.get("proposal") or {"same": True}
    given = expect if proposal["same"] else proposal
    expected: dict[str, Any] = {"preempted": _reasons(given.get("preempted", ())) | proposal.get("reasons", {})}
    if kind == "cycle":
        expected |= {"admitted": sorted(given.get("admitted", ()))}
    return expected, {field: got[field] for field in expected}


def _reasons(victims: Sequence[Any]) -> dict[str, str]:
    return {each["name"]: REASONS.get(each["reason"], each["reason"]) for each in victims}


def read(path: Path) -> list[Json]:
    """The cases of a file. Raises OSError, ValueError."""
    found = orjson.loads(path.read_bytes())
    cases = found.get("cases") if isinstance(found, dict) else None
    if not isinstance(cases, list) or not all(isinstance(each, dict) for each in cases):
        raise ValueError("it is no object with a list of cases")
    return cases


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m multimirror.scheduling.vectors", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path)
    path: Path = parser.parse_args(arguments).file
    try:
        cases = read(path)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{path} cannot be read: {error}\n")
        return 2
    results = [replay(case) for case in cases]
    disagreements = [each for each in results if isinstance(each, Disagreement)]
    for line in _report(disagreements):
        sys.stdout.write(f"{line}\n")
    offered_not = sum(each == NOT_OFFERED for each in results)
    sys.stdout.write(f"{len(cases)} cases, {len(disagreements)} disagreements, {offered_not} not offered\n")
    return 1 if disagreements else 0


def _report(disagreements: Sequence[Disagreement]) -> Iterator[str]:
    yield from map(str, disagreements[:_SHOWN])
    if len(disagreements) > _SHOWN:
        yield f"and {len(disagreements) - _SHOWN} more"


def _line(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS, default=str).decode()


if __name__ == "__main__":
    sys.exit(main())

"""The rules of a status update, from every state that a stored status can be in."""

from typing import Any

import pytest

from multimirror.batch import Json, validate_job_status
from tests.unit.batch.builders import T0, T1, T2, a_stored_job, causes, conditions, indexed

C, F, FT, SCM = "Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"
CONDITIONS = ("Invalid", "status.conditions")
TIMES = {"startTime": T0, "completionTime": T1}


def status(*types: str, **fields: Any) -> Json:
    return {"conditions": conditions(*types), **fields} if types else fields


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, status(C, F, **TIMES), [CONDITIONS] * 3, id="complete and failed at once, out of nothing"),
        pytest.param({}, status(C, **TIMES), [CONDITIONS], id="complete without its interim condition"),
        pytest.param({}, status(F, startTime=T0), [CONDITIONS], id="failed without its interim condition"),
        pytest.param({"completionTime": T1}, {}, [], id="a stray completionTime may be taken back"),
        pytest.param(status(FT), status(FT, F), [("Required", "status.startTime")], id="failed without having started"),
        pytest.param(
            status(SCM),
            status(SCM, C, completionTime=T1),
            [("Required", "status.startTime")],
            id="complete without having started",
        ),
        pytest.param(
            status(SCM, startTime=T0, active=1),
            status(SCM, C, active=1, **TIMES),
            [("Invalid", "status.active")],
            id="complete with a pod running",
        ),
        pytest.param(
            status(FT, startTime=T0, terminating=1),
            status(FT, F, startTime=T0, terminating=1),
            [("Invalid", "status.terminating")],
            id="failed with a pod terminating",
        ),
        pytest.param(
            status(FT, startTime=T0, uncountedTerminatedPods={"failed": ["a"]}),
            status(FT, F, startTime=T0, uncountedTerminatedPods={"failed": ["a"]}),
            [("Invalid", "status.uncountedTerminatedPods")],
            id="failed with a pod uncounted",
        ),
        pytest.param(
            status(C, uncountedTerminatedPods={"failed": ["a"]}, **TIMES),
            status(C, uncountedTerminatedPods={"failed": ["b"]}, **TIMES),
            [("Invalid", "status.uncountedTerminatedPods")],
            id="the uncounted pods of a complete Job change",
        ),
        pytest.param(
            status(C, uncountedTerminatedPods={"failed": ["a"]}, **TIMES),
            status(C, "Custom", uncountedTerminatedPods={"failed": ["a"]}, **TIMES),
            [],
            id="what was wrong before and stays does not stand in the way",
        ),
        pytest.param(
            status(SCM, startTime=T0),
            status(SCM, C, startTime=T0),
            [("Required", "status.completionTime")],
            id="complete without completionTime",
        ),
        pytest.param(
            status(C, completionTime=T1),
            status(C, startTime=T0),
            [("Required", "status.completionTime")],
            id="completionTime taken from a complete Job",
        ),
        pytest.param(
            status(SCM, startTime=T1),
            status(SCM, C, startTime=T1, completionTime=T0),
            [("Invalid", "status.completionTime")],
            id="completed before it started",
        ),
        pytest.param(
            status(C, **TIMES),
            status(C, startTime=T0, completionTime=T2),
            [("Invalid", "status.completionTime")],
            id="completionTime changes",
        ),
        pytest.param(status(F), {}, [CONDITIONS], id="failed taken back"),
        pytest.param(status(C), {}, [CONDITIONS], id="complete taken back"),
        pytest.param(status(FT), {}, [CONDITIONS], id="failure target taken back"),
        pytest.param(
            status(C, **TIMES),
            dict(TIMES),
            [("Invalid", "status.completionTime"), CONDITIONS],
            id="complete taken back, completionTime left behind",
        ),
        pytest.param(status(C, **TIMES), status(C, FT, **TIMES), [CONDITIONS], id="complete meets failure target"),
        pytest.param({}, {"completionTime": T1}, [("Invalid", "status.completionTime")], id="done but not complete"),
        pytest.param({"completionTime": T1}, {"completionTime": T1, "active": 1}, [], id="that, left alone"),
        pytest.param({}, {"completedIndexes": "0"}, [("Invalid", "status.completedIndexes")], id="indexes, NonIndexed"),
        pytest.param(
            {"completedIndexes": "0"}, {"completedIndexes": "0", "active": 1}, [], id="indexes, NonIndexed, left alone"
        ),
        pytest.param({"failed": 3}, {"failed": 1}, [("Invalid", "status.failed")], id="failed goes down"),
        pytest.param({"succeeded": 3}, {"succeeded": 1}, [("Invalid", "status.succeeded")], id="succeeded goes down"),
        pytest.param(
            {"active": 1, "ready": 2}, {"active": 1, "ready": 2, "succeeded": 1}, [], id="more ready, left alone"
        ),
        pytest.param({}, {"active": 1, "ready": 2}, [("Invalid", "status.ready")], id="more ready than active"),
        pytest.param({}, status(C, FT, **TIMES), [CONDITIONS] * 2, id="complete with failure target, out of nothing"),
        pytest.param(status(F), status(F, SCM), [CONDITIONS], id="failed, then success criteria met"),
        pytest.param(status(FT), status(FT, SCM), [CONDITIONS], id="failure target, then success criteria met"),
        pytest.param(status(SCM), status(SCM, FT), [CONDITIONS], id="success criteria met, then failure target"),
        pytest.param(
            status(SCM), status(SCM, F, startTime=T0), [CONDITIONS] * 2, id="success criteria met, then failed"
        ),
        pytest.param(
            status(C, **TIMES), status(C, SCM, **TIMES), [CONDITIONS], id="old complete Job gets its interim too late"
        ),
        pytest.param(status(SCM, startTime=T0), status(SCM, C, **TIMES), [], id="success criteria met, then complete"),
        pytest.param({}, status(SCM, C, **TIMES), [], id="both at once"),
        pytest.param({}, status(FT, F, startTime=T0), [], id="failure target and failed at once"),
        pytest.param(status(SCM), {}, [CONDITIONS], id="success criteria taken back"),
        pytest.param({}, status(SCM), [], id="success criteria met without a policy"),
        pytest.param({}, {"active": -1}, [("Invalid", "status.active")], id="less than no pods"),
        pytest.param(
            {},
            {"uncountedTerminatedPods": {"succeeded": ["a", "", "a"], "failed": ["a"]}},
            [
                ("Invalid", "status.uncountedTerminatedPods.succeeded[1]"),
                ("Duplicate", "status.uncountedTerminatedPods.succeeded[2]"),
                ("Duplicate", "status.uncountedTerminatedPods.failed[0]"),
            ],
            id="empty and repeated uids",
        ),
    ],
)
def test_a_status_update(old: Json, new: Json, expected: list[tuple[str, str]]) -> None:
    assert causes(validate_job_status(new, old, a_stored_job()["spec"])) == expected


@pytest.mark.parametrize(
    ("spec", "old", "new", "expected"),
    [
        pytest.param({"suspend": True}, {"startTime": T0}, {}, [], id="startTime goes while suspended"),
        pytest.param({}, {"startTime": T0}, {}, [("Invalid", "status.startTime")], id="startTime goes"),
        pytest.param({}, {"startTime": T0}, {"startTime": T1}, [("Invalid", "status.startTime")], id="it changes"),
        pytest.param({}, {}, {"startTime": T1}, [], id="it comes"),
        pytest.param(
            {},
            {"startTime": T0, "conditions": conditions("Suspended")},
            {"startTime": T1, "conditions": conditions(Suspended="False")},
            [],
            id="it changes in the write that resumes",
        ),
        pytest.param(
            {},
            {"startTime": T0, "conditions": conditions("Suspended")},
            {"startTime": T1},
            [("Invalid", "status.startTime")],
            id="to drop the Suspended condition is not to resume",
        ),
        pytest.param(
            {"suspend": True, "completions": 0},
            {},
            status(SCM, C, completionTime=T1),
            [],
            id="nothing to do and suspended: complete without having started",
        ),
    ],
)
def test_start_time(spec: Json, old: Json, new: Json, expected: list[tuple[str, str]]) -> None:
    assert causes(validate_job_status(new, old, a_stored_job(**spec)["spec"])) == expected


PER_INDEX = {"backoffLimitPerIndex": 1}
FAILED_INDEXES = ("Invalid", "status.failedIndexes")
COMPLETED_INDEXES = ("Invalid", "status.completedIndexes")


@pytest.mark.parametrize(
    ("spec", "old", "new", "expected"),
    [
        pytest.param({}, {}, {"completedIndexes": "0-1,4"}, [], id="completed indexes"),
        pytest.param({}, {}, {"completedIndexes": "5"}, [COMPLETED_INDEXES], id="beyond the last one"),
        pytest.param({}, {"completedIndexes": "9"}, {"completedIndexes": "9", "active": 1}, [], id="that, left alone"),
        pytest.param({}, {}, {"failedIndexes": "0"}, [FAILED_INDEXES], id="failed indexes without a limit per index"),
        pytest.param({}, {}, {"failedIndexes": ""}, [FAILED_INDEXES], id="even none of them"),
        pytest.param(PER_INDEX, {}, {"failedIndexes": ""}, [], id="failed indexes with a limit per index"),
        pytest.param(PER_INDEX, {}, {"failedIndexes": "1,1"}, [FAILED_INDEXES], id="malformed"),
        pytest.param(
            PER_INDEX,
            {"failedIndexes": "0,2", "completedIndexes": "3,4"},
            {"failedIndexes": "0,2", "completedIndexes": "2-4"},
            [FAILED_INDEXES],
            id="an index both failed and completed",
        ),
        pytest.param(
            PER_INDEX,
            {"failedIndexes": "0,2", "completedIndexes": "2-4"},
            {"failedIndexes": "0,2", "completedIndexes": "2-4", "active": 1},
            [],
            id="that, left alone",
        ),
        pytest.param(
            {"successPolicy": {"rules": [{"succeededCount": 1}]}},
            {},
            status(C, **TIMES),
            [CONDITIONS] * 2,
            id="complete with a success policy, not by it",
        ),
        pytest.param({}, {"succeeded": 3}, {"succeeded": 2}, [("Invalid", "status.succeeded")], id="fixed size"),
    ],
)
def test_an_indexed_job(spec: Json, old: Json, new: Json, expected: list[tuple[str, str]]) -> None:
    assert causes(validate_job_status(new, old, indexed(**spec)["spec"])) == expected


def test_an_elastic_job_may_forget_successes() -> None:
    assert validate_job_status({"succeeded": 2}, {"succeeded": 3}, indexed(3, 3)["spec"]) == []


@pytest.mark.parametrize(
    ("start", "completion", "accepted"),
    [
        pytest.param("2026-01-01T01:00:00+01:00", T0, True, id="the same instant with an offset"),
        pytest.param("2026-01-01T00:00:00.5Z", T0, False, id="half a second too early"),
        pytest.param("2026-01-01T00:00:00.500Z", "2026-01-01T00:00:00.5Z", True, id="the same fraction"),
    ],
)
def test_times_are_compared_by_instant(start: str, completion: str, accepted: bool) -> None:
    new = status(SCM, C, startTime=start, completionTime=completion)

    assert (not validate_job_status(new, {}, a_stored_job()["spec"])) is accepted

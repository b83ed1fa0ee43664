"""How a Job ends: limits, policies, conditions in their order."""

from typing import Any

import pytest

from builtin_controller import failure_policy, success_policy
from builtin_controller.job import Job
from builtin_controller.pods import Pod
from multimirror.batch import IndexSet, Json
from tests.unit.builtin_controller.vectors import a_job, a_pod, at, indexed, running, sync


def condition(kind: str, status: str = "True", reason: str = "R", message: str = "M") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def rule(action: str, **match: Any) -> Json:
    return {"rules": [{"action": action, **match}]}


EXIT_42: dict[str, Any] = {"onExitCodes": {"operator": "In", "values": [42]}}
DISRUPTED: dict[str, Any] = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
SUCCESS = ("SuccessCriteriaMet", "Complete")
FAILURE = ("FailureTarget", "Failed")


@pytest.mark.parametrize(
    ("job", "pods", "ending", "reason"),
    [
        pytest.param(a_job(), [a_pod("a", "Succeeded")], SUCCESS, "CompletionsReached", id="all completions"),
        pytest.param(a_job(completions=0), [], SUCCESS, "CompletionsReached", id="none were asked for"),
        pytest.param(
            a_job(completions=None, parallelism=2),
            [a_pod("a", "Succeeded")],
            SUCCESS,
            "CompletionsReached",
            id="work queue",
        ),
        pytest.param(
            a_job(completions=0, suspend=True), [], SUCCESS, "CompletionsReached", id="suspended with nothing to do"
        ),
        pytest.param(
            a_job(backoffLimit=0), [a_pod("a", "Failed")], FAILURE, "BackoffLimitExceeded", id="no failure allowed"
        ),
        pytest.param(
            a_job(backoffLimit=2, status=running(failed=2)),
            [a_pod("a", "Failed")],
            FAILURE,
            "BackoffLimitExceeded",
            id="one failure too many",
        ),
        pytest.param(
            a_job(backoffLimit=1, status=running(uncountedTerminatedPods={"failed": ["x", "y"]})),
            [],
            FAILURE,
            "BackoffLimitExceeded",
            id="listed failures count",
        ),
        pytest.param(a_job(activeDeadlineSeconds=100), [], FAILURE, "DeadlineExceeded", id="the deadline has come"),
        pytest.param(
            a_job(activeDeadlineSeconds=1, backoffLimit=0),
            [a_pod("a", "Failed")],
            FAILURE,
            "BackoffLimitExceeded",
            id="limits before the deadline",
        ),
        pytest.param(
            a_job(podFailurePolicy=rule("FailJob", **EXIT_42)),
            [a_pod("a", "Failed", exit_code=42)],
            FAILURE,
            "PodFailurePolicy",
            id="a rule fails the Job",
        ),
        pytest.param(
            a_job(backoffLimit=0, podFailurePolicy=rule("FailJob", **EXIT_42)),
            [a_pod("a", "Failed", exit_code=42)],
            FAILURE,
            "PodFailurePolicy",
            id="the rule before the limit",
        ),
        pytest.param(
            a_job(podFailurePolicy=rule("FailJob", **EXIT_42)),
            [a_pod("a", "Failed", exit_code=42, tracked=False)],
            FAILURE,
            "PodFailurePolicy",
            id="even after its pod was counted",
        ),
        pytest.param(
            indexed(2, successPolicy={"rules": [{"succeededCount": 1}]}, podFailurePolicy=rule("FailJob", **EXIT_42)),
            [a_pod("a", "Succeeded", index=0), a_pod("b", "Failed", index=1, exit_code=42)],
            FAILURE,
            "PodFailurePolicy",
            id="failure beats success",
        ),
        pytest.param(
            indexed(3, successPolicy={"rules": [{"succeededCount": 1}]}),
            [a_pod("a", "Succeeded", index=1)],
            SUCCESS,
            "SuccessPolicy",
            id="the success policy",
        ),
    ],
)
def test_a_job_without_running_pods_ends_in_one_sync(
    job: Json, pods: list[Json], ending: tuple[str, str], reason: str
) -> None:
    result = sync(job, pods)
    assert result.finished
    assert result.reasons == [(kind, reason) for kind in ending]
    assert result.first is not None
    assert [c["type"] for c in result.first["conditions"]] == [ending[0]]
    assert ("completionTime" in result.status) is (ending == SUCCESS)


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        pytest.param(a_job(), [a_pod("a")], id="its pod runs"),
        pytest.param(a_job(completions=2), [a_pod("a", "Succeeded")], id="one is missing"),
        pytest.param(
            a_job(completions=None, parallelism=2), [a_pod("a", "Succeeded"), a_pod("b")], id="work queue not drained"
        ),
        pytest.param(a_job(backoffLimit=1), [a_pod("a", "Failed")], id="as many failures as allowed"),
        pytest.param(a_job(activeDeadlineSeconds=101), [a_pod("a")], id="the deadline is a second away"),
        pytest.param(a_job(activeDeadlineSeconds=1, suspend=True), [], id="the clock stands still while suspended"),
        pytest.param(a_job(activeDeadlineSeconds=1, status={}), [], id="the clock starts now"),
        pytest.param(
            a_job(status=running(conditions=[condition("FailureTarget", "False")])),
            [a_pod("a")],
            id="FailureTarget=False",
        ),
        pytest.param(
            a_job(status=running(conditions=[condition("SuccessCriteriaMet", "False")])),
            [a_pod("a")],
            id="SuccessCriteriaMet=False",
        ),
        pytest.param(
            a_job(backoffLimit=0, podFailurePolicy=rule("Ignore", **EXIT_42)),
            [a_pod("a", "Failed", exit_code=42)],
            id="an ignored failure",
        ),
    ],
)
def test_a_job_goes_on(job: Json, pods: list[Json]) -> None:
    result = sync(job, pods)
    assert not result.finished
    assert result.decision.verdict is None
    assert not result.killed


@pytest.mark.parametrize(
    ("limit", "restarts", "phase", "ends"),
    [
        pytest.param(2, 1, "Running", False, id="below"),
        pytest.param(2, 2, "Running", True, id="reached"),
        pytest.param(2, 2, "Pending", True, id="a pending pod's restarts count"),
        pytest.param(0, 0, "Running", False, id="limit 0, none"),
        pytest.param(0, 1, "Running", True, id="limit 0, one"),
        pytest.param(2, 2, "Unknown", False, id="not those of an unknown pod"),
    ],
)
def test_restarts_count_with_restart_policy_on_failure(limit: int, restarts: int, phase: str, ends: bool) -> None:
    job = a_job(backoffLimit=limit, template={"restartPolicy": "OnFailure"})
    assert (sync(job, [a_pod("a", phase, restarts=restarts)]).decision.verdict is not None) is ends


def test_restarts_of_all_pods_are_added_up() -> None:
    job = a_job(completions=2, parallelism=2, backoffLimit=3, template={"restartPolicy": "OnFailure"})
    assert sync(job, [a_pod("a", restarts=2), a_pod("b", restarts=1)]).killed == ["a", "b"]


def test_restarts_mean_nothing_with_restart_policy_never() -> None:
    assert sync(a_job(backoffLimit=1), [a_pod("a", restarts=9)]).decision.verdict is None


def test_an_ending_job_kills_all_of_its_pods_whatever_their_number() -> None:
    job = a_job(completions=900, parallelism=900, activeDeadlineSeconds=1)
    assert len(sync(job, [a_pod(f"p{n}") for n in range(700)]).killed) == 700


@pytest.mark.parametrize(
    ("obstacle", "conditions"),
    [
        pytest.param({"undeletable": ["b"]}, [], id="a pod could not be deleted"),
        pytest.param({"settled": False}, [], id="the cache is behind"),
        pytest.param({}, [("FailureTarget", "True")], id="nothing is in the way"),
    ],
)
def test_a_failure_is_told_only_when_all_pods_are_gone_or_going(
    obstacle: dict[str, Any], conditions: list[Any]
) -> None:
    job = a_job(completions=2, parallelism=2, backoffLimit=0)
    assert sync(job, [a_pod("a", "Failed"), a_pod("b")], **obstacle).conditions == conditions


def test_the_terminal_condition_waits_for_terminating_pods() -> None:
    job = a_job(backoffLimit=0, status=running(conditions=[condition("FailureTarget")]))
    waiting = sync(job, [a_pod("a", deleting=True, tracked=False)])
    assert not waiting.finished
    assert waiting.status["terminating"] == 1
    done = sync(job, [a_pod("a", "Failed", tracked=False)])
    assert done.finished
    assert done.status["conditions"][1] | {"lastProbeTime": "", "lastTransitionTime": ""} == condition("Failed") | {
        "lastProbeTime": "",
        "lastTransitionTime": "",
    }


def test_a_complete_job_waits_for_terminating_pods_too() -> None:
    result = sync(a_job(), [a_pod("a", "Succeeded"), a_pod("b", deleting=True, tracked=False)])
    assert result.conditions == [("SuccessCriteriaMet", "True")]
    assert not result.finished


@pytest.mark.parametrize(
    ("kind", "pods", "terminal"),
    [
        pytest.param("SuccessCriteriaMet", [a_pod("a", "Failed")], "Complete", id="success is not taken back"),
        pytest.param("FailureTarget", [a_pod("a", "Succeeded")], "Failed", id="failure is not taken back"),
    ],
)
def test_what_was_decided_stays_decided(kind: str, pods: list[Json], terminal: str) -> None:
    job = a_job(backoffLimit=0, status=running(conditions=[condition(kind)]))
    result = sync(job, pods)
    assert [c["type"] for c in result.status["conditions"]] == [kind, terminal]
    assert result.status["conditions"][1]["reason"] == "R"
    assert result.status["conditions"][1]["message"] == "M"


def test_a_stray_false_condition_stays_beside_the_new_one() -> None:
    job = a_job(backoffLimit=0, status=running(conditions=[condition("FailureTarget", "False")]))
    assert sync(job, [a_pod("a", "Failed")]).conditions == [
        ("FailureTarget", "False"),
        ("FailureTarget", "True"),
        ("Failed", "True"),
    ]


def test_a_job_is_not_finished_while_pods_are_left_to_count() -> None:
    pods = [a_pod(f"p{n}", "Failed") for n in range(5)]
    result = sync(a_job(completions=5, parallelism=5, backoffLimit=0), pods, max_uncounted_pods=2)
    assert result.conditions == [("FailureTarget", "True")]
    assert not result.finished


def test_the_deadline_wakes_the_job() -> None:
    assert sync(a_job(activeDeadlineSeconds=130), [a_pod("a")]).decision.wake_after == 30


def test_times_of_the_conditions() -> None:
    last = sync(a_job(), [a_pod("a", "Succeeded")]).status["conditions"][-1]
    assert (last["lastProbeTime"], last["lastTransitionTime"]) == (at(0), at(0))


@pytest.mark.parametrize(
    ("policy", "pod", "action"),
    [
        pytest.param(rule("Ignore", **EXIT_42), a_pod("a", "Failed", exit_code=42), "Ignore", id="In"),
        pytest.param(rule("Ignore", **EXIT_42), a_pod("a", "Failed", exit_code=1), None, id="not In"),
        pytest.param(
            rule("Count", onExitCodes={"operator": "NotIn", "values": [42]}),
            a_pod("a", "Failed", exit_code=1),
            "Count",
            id="NotIn",
        ),
        pytest.param(
            rule("Count", onExitCodes={"operator": "NotIn", "values": [42]}),
            a_pod("a", "Failed", exit_code=0),
            None,
            id="exit code 0 matches nothing",
        ),
        pytest.param(
            rule("Ignore", onExitCodes={"operator": "In", "values": [42], "containerName": "main"}),
            a_pod("a", "Failed", exit_code=42),
            "Ignore",
            id="this container",
        ),
        pytest.param(
            rule("Ignore", onExitCodes={"operator": "In", "values": [42], "containerName": "side"}),
            a_pod("a", "Failed", exit_code=42),
            None,
            id="another container",
        ),
        pytest.param(
            rule("Ignore", onExitCodes={"operator": "Like", "values": [42]}),
            a_pod("a", "Failed", exit_code=42),
            None,
            id="operator unknown",
        ),
        pytest.param(
            rule("Ignore", **DISRUPTED),
            a_pod("a", "Failed", conditions=[{"type": "DisruptionTarget", "status": "True"}]),
            "Ignore",
            id="a condition",
        ),
        pytest.param(
            rule("Ignore", **DISRUPTED),
            a_pod("a", "Failed", conditions=[{"type": "DisruptionTarget", "status": "False"}]),
            None,
            id="a condition of another status",
        ),
        pytest.param(
            {"rules": [{"action": "Dance", **EXIT_42}, {"action": "Count", **EXIT_42}]},
            a_pod("a", "Failed", exit_code=42),
            "Count",
            id="an unknown action is passed over",
        ),
        pytest.param(
            {"rules": [{"action": "Ignore", **EXIT_42}, {"action": "FailJob", **EXIT_42}]},
            a_pod("a", "Failed", exit_code=42),
            "Ignore",
            id="the first rule wins",
        ),
        pytest.param(None, a_pod("a", "Failed", exit_code=42), None, id="no policy"),
    ],
)
def test_the_first_matching_rule_decides(policy: Json | None, pod: Json, action: str | None) -> None:
    found = failure_policy.match(policy, Pod(pod))
    assert found.action == action
    assert found.counted is (action != "Ignore")


def test_an_init_container_is_looked_at_after_the_others() -> None:
    pod = a_pod("a", "Failed", exit_code=1)
    terminated = {"exitCode": 42, "finishedAt": at(0)}
    pod["status"]["initContainerStatuses"] = [{"name": "init", "state": {"terminated": terminated}}]
    message = failure_policy.match(rule("FailJob", **EXIT_42), Pod(pod)).message
    assert message == "Container init for pod ns/a failed with exit code 42 matching FailJob rule at index 0"


def test_the_message_for_a_condition() -> None:
    pod = a_pod("a", "Failed", conditions=[{"type": "DisruptionTarget", "status": "True"}])
    policy = {"rules": [{"action": "Ignore", **EXIT_42}, {"action": "FailJob", **DISRUPTED}]}
    message = failure_policy.match(policy, Pod(pod)).message
    assert message == "Pod ns/a has condition DisruptionTarget matching FailJob rule at index 1"


@pytest.mark.parametrize(
    ("policy", "exit_code", "counted", "actions"),
    [
        pytest.param("Ignore", 42, 0, {"Ignore": 1}, id="Ignore: not counted, replaced"),
        pytest.param("Count", 42, 1, {"Count": 1}, id="Count: counted"),
        pytest.param("Ignore", 1, 1, {}, id="no match: counted"),
        pytest.param("FailJob", 42, 1, {"FailJob": 1}, id="FailJob: counted"),
    ],
)
def test_what_a_policy_does_to_the_count(policy: str, exit_code: int, counted: int, actions: dict[str, int]) -> None:
    result = sync(a_job(podFailurePolicy=rule(policy, **EXIT_42)), [a_pod("a", "Failed", exit_code=exit_code)])
    assert result.status.get("failed", 0) == counted
    assert dict(result.tracking.policy_actions) == actions
    assert result.released == ["a"]


def test_an_ignored_failure_still_delays_the_next_pod() -> None:
    job = a_job(podFailurePolicy=rule("Ignore", **EXIT_42))
    assert sync(job, [a_pod("a", "Failed", exit_code=42, ended=-1)]).decision.work.wait == 9


def test_a_running_pod_is_not_judged_by_the_policy() -> None:
    job = a_job(podFailurePolicy=rule("FailJob", **DISRUPTED))
    pod = a_pod("a", conditions=[{"type": "DisruptionTarget", "status": "True"}], deleting=True)
    assert sync(job, [pod]).decision.verdict is None


@pytest.mark.parametrize(
    ("rules", "done", "message"),
    [
        pytest.param([{"succeededIndexes": "0,2"}], "0,2", "Matched rules at index 0", id="all of the named ones"),
        pytest.param([{"succeededIndexes": "0,2"}], "0", None, id="not all of them"),
        pytest.param(
            [{"succeededIndexes": "0-4", "succeededCount": 2}], "1,3", "Matched rules at index 0", id="enough of them"
        ),
        pytest.param([{"succeededIndexes": "0-4", "succeededCount": 2}], "3,7", None, id="not enough of them"),
        pytest.param([{"succeededCount": 2}], "3,7", "Matched rules at index 0", id="enough of any"),
        pytest.param([{"succeededCount": 3}], "3,7", None, id="not enough of any"),
        pytest.param(
            [{"succeededIndexes": "9"}, {"succeededCount": 1}], "0", "Matched rules at index 1", id="the second rule"
        ),
        pytest.param([{"succeededIndexes": "x"}], "0-9", None, id="a rule that cannot be read"),
        pytest.param([{"succeededIndexes": "8-20"}], "8,9", "Matched rules at index 0", id="clipped to what there is"),
        pytest.param([{"succeededCount": 0}], "", None, id="nothing succeeded yet"),
        pytest.param([], "0", None, id="no rules"),
    ],
)
def test_the_success_policy(rules: list[Json], done: str, message: str | None) -> None:
    assert success_policy.match({"rules": rules}, 10, IndexSet.parse(done, 10)) == message


def test_a_success_policy_kills_what_still_runs() -> None:
    job = indexed(3, successPolicy={"rules": [{"succeededIndexes": "0"}]})
    result = sync(job, [a_pod("a", "Succeeded", index=0), a_pod("b", index=1, ready=True)])
    assert result.killed == ["b"]
    assert result.conditions == [("SuccessCriteriaMet", "True")]
    assert (result.status["terminating"], result.status["ready"], result.status.get("failed", 0)) == (1, 0, 0)


def test_a_job_knows_its_kind() -> None:
    assert Job.of(a_job()).mode == "NonIndexed"
    assert Job.of(indexed(1)).mode == "Indexed"

"""What the ledger shows a sync, and what the controller remembers between syncs."""

import pytest

from builtin_controller.backoff import Record
from builtin_controller.job import Job
from builtin_controller.ledger import Ledger
from builtin_controller.memory import JOBS, PODS, Memory
from builtin_controller.pods import trim_pod
from multimirror.batch import Json
from multimirror.kube import Change
from tests.unit.builtin_controller.vectors import FINALIZER, a_job, a_pod

JOB = Job.of(a_job())


def shown(ledger: Ledger) -> list[str]:
    return [pod.name for pod in ledger.pods_of("job-uid")]


def ledger_of(*pods: Json) -> Ledger:
    ledger = Ledger()
    for pod in pods:
        ledger.observe(Change(None, pod))
    return ledger


def without_owner(pod: Json) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": []}}


def test_pods_are_found_by_the_uid_of_their_job() -> None:
    ledger = ledger_of(a_pod("a"), without_owner(a_pod("b")))
    assert shown(ledger) == ["a"]
    assert [pod.name for pod in ledger.ownerless("ns")] == ["b"]
    assert ledger.pods_of("another") == []


def test_a_pod_of_another_kind_of_controller_is_nobodys() -> None:
    pod = a_pod("a")
    pod["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet"
    ledger = ledger_of(pod)
    assert shown(ledger) == []
    assert ledger.ownerless("ns") == []


@pytest.mark.parametrize(
    ("pod", "closed"),
    [
        pytest.param(a_pod("a", "Succeeded", tracked=False), True, id="ended and counted"),
        pytest.param(a_pod("a", "Failed", tracked=False), True, id="failed and counted"),
        pytest.param(a_pod("a", "Succeeded"), False, id="not counted yet"),
        pytest.param(a_pod("a"), False, id="running"),
        pytest.param(a_pod("a", deleting=True, tracked=False), False, id="terminating"),
    ],
)
def test_what_can_change_nothing_is_left_out(pod: Json, closed: bool) -> None:
    ledger = ledger_of(pod)
    ledger.close(JOB, ledger.pods_of("job-uid"))
    assert shown(ledger) == ([] if closed else ["a"])
    assert ledger.count("job-uid") == 1


def test_a_failed_pod_that_fails_the_job_is_not_left_out() -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    job = Job.of(a_job(podFailurePolicy={"rules": [rule]}))
    ledger = ledger_of(a_pod("a", "Failed", exit_code=42, tracked=False), a_pod("b", "Failed", tracked=False))
    ledger.close(job, ledger.pods_of("job-uid"))
    assert shown(ledger) == ["a"]


def test_an_event_brings_a_pod_back() -> None:
    old = a_pod("a", "Succeeded", tracked=False)
    ledger = ledger_of(old)
    ledger.close(JOB, ledger.pods_of("job-uid"))
    ledger.observe(Change(old, {**old, "metadata": {**old["metadata"], "labels": {}}}))
    assert shown(ledger) == ["a"]


def test_a_pod_that_changed_during_the_sync_is_looked_at_again() -> None:
    old = a_pod("a", "Succeeded", tracked=False)
    ledger = ledger_of(old)
    seen = ledger.pods_of("job-uid")
    ledger.observe(Change(old, {**old, "metadata": {**old["metadata"], "labels": {}}}))
    ledger.close(JOB, seen)
    assert shown(ledger) == ["a"]


def test_deleted_pods_are_forgotten() -> None:
    open_pod, closed_pod = a_pod("a"), a_pod("b", "Succeeded", tracked=False)
    ledger = ledger_of(open_pod, closed_pod)
    ledger.close(JOB, ledger.pods_of("job-uid"))
    for pod in (open_pod, closed_pod):
        ledger.observe(Change(pod, None))
    assert ledger.count("job-uid") == 0
    assert ledger.tracked("ns", {}) == []


def test_pods_with_the_finalizer_are_found_whoever_owns_them() -> None:
    foreign = a_pod("c")
    foreign["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet"
    ledger = ledger_of(a_pod("a"), without_owner(a_pod("b")), foreign, a_pod("d", tracked=False))
    for selector in ({}, {"matchLabels": {"controller-uid": "job-uid"}}):
        assert [pod.name for pod in ledger.tracked("ns", selector)] == ["a", "b", "c"]
    assert ledger.tracked("ns", {"matchLabels": {"controller-uid": "other"}}) == []
    assert ledger.tracked("other", {"matchLabels": {"controller-uid": "job-uid"}}) == []
    assert ledger.tracked("ns", None) == []


@pytest.mark.parametrize(
    ("pod", "slim"),
    [
        pytest.param(a_pod("a", "Succeeded", index=1, tracked=False), True, id="counted"),
        pytest.param(a_pod("a", "Succeeded", index=1), False, id="not counted"),
        pytest.param(without_owner(a_pod("a", "Succeeded", index=1, tracked=False)), False, id="may be adopted"),
    ],
)
def test_the_cache_keeps_what_is_looked_at(pod: Json, slim: bool) -> None:
    trimmed = trim_pod(pod)
    assert ("annotations" not in trimmed["metadata"]) is slim
    assert trimmed["metadata"]["labels"] == pod["metadata"]["labels"]
    assert (FINALIZER in (trimmed["metadata"].get("finalizers") or ())) is (
        FINALIZER in (pod["metadata"].get("finalizers") or ())
    )


async def test_expectations_are_lowered_by_what_is_seen() -> None:
    memory = Memory(lifetime=300)
    assert not memory.unsettled("k", "u")
    memory.expect("k", "u", creations=2)
    memory.created("k")
    assert memory.unsettled("k", "u")
    memory.created("k")
    assert not memory.unsettled("k", "u")
    memory.expect("k", "u", deletions=1)
    assert memory.unsettled("k", "u")
    memory.deleted("k")
    assert not memory.unsettled("k", "u")


async def test_what_was_expected_for_another_job_of_the_same_name_is_not_waited_for() -> None:
    memory = Memory(lifetime=300)
    memory.expect("k", "gone", creations=1)
    assert memory.unsettled("k", "gone")
    assert not memory.unsettled("k", "new")


async def test_expectations_lapse() -> None:
    memory = Memory(lifetime=-1)
    memory.expect("k", "u", creations=1)
    assert not memory.unsettled("k", "u")


def test_writes_hold_a_sync_back_until_the_cache_has_seen_them() -> None:
    memory = Memory(lifetime=300)
    memory.wrote("k", "uid", PODS, "99")
    memory.wrote("k", "uid", PODS, "100")
    memory.wrote("k", "uid", PODS, "98")
    assert memory.behind("k", {PODS: "99", JOBS: "200"}) == PODS
    assert memory.behind("k", {PODS: None, JOBS: None}) is None
    memory.wrote("k", "uid", JOBS, "150")
    assert memory.behind("k", {PODS: "1000", JOBS: "149"}) == JOBS
    assert memory.behind("k", {PODS: "1000", JOBS: "150"}) is None


def test_a_job_made_anew_inherits_nothing() -> None:
    memory = Memory(lifetime=300)
    memory.keep_record("k", Record(3, 1.0))
    memory.wrote("k", "old", PODS, "100")
    memory.job_deleted("k", "old")
    assert memory.record("k") == Record()
    assert memory.behind("k", {PODS: "1"}) is None


def test_finalizers_that_are_being_removed() -> None:
    memory = Memory(lifetime=300)
    memory.expect_release("k", ["a", "b"])
    memory.released("k", "a")
    memory.released("k", "unknown")
    assert memory.removing("k") == {"b"}
    memory.forget("k")
    assert memory.removing("k") == frozenset()


def test_a_finalizer_that_the_server_took_off_is_gone_before_the_cache_shows_it() -> None:
    memory = Memory(lifetime=300)
    memory.expect_release("k", ["a", "b"])
    assert not memory.is_released("k", "a")
    memory.confirm_release("k", "a")
    assert memory.is_released("k", "a")
    assert not memory.is_released("k", "b")
    memory.released("k", "a")
    memory.confirm_release("k", "a")  # the cache was faster than the answer: nothing is remembered
    assert not memory.is_released("k", "a")
    assert memory.removing("k") == {"b"}

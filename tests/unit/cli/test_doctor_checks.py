"""The doctor's judgements about versions, clocks, credentials, queues and Jobs, without a cluster."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from multimirror.api import CLUSTER_ANNOTATION, MANAGED_BY, QUEUE_LABEL, WAITS_FOR_ANNOTATION
from multimirror.cli.doctor import checks, jobs
from multimirror.cli.doctor.findings import Level
from multimirror.cli.doctor.workers import check_unreachable
from multimirror.cli.placement_policy import PolicyState
from multimirror.cli.rows import JobContext
from multimirror.cli.worker_account import limits
from multimirror.kube.errors import Unreachable
from multimirror.workers.tokens import Slots, TokenClaims

Json = dict[str, Any]
NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
TEN = timedelta(minutes=10)


@pytest.mark.parametrize(
    ("version", "level"),
    [("v1.36.4", "ok"), ("v1.32.0-eks", "ok"), ("v1.31.9", "fault"), ("v1.30.1", "fault"), ("", "fault")],
)
def test_versions(version: str, level: str) -> None:
    assert checks.check_version(version).level == level


@pytest.mark.parametrize(
    ("date", "level"),
    [
        pytest.param("Mon, 16 Nov 2026 12:00:00 GMT", "ok", id="the same second"),
        pytest.param("Mon, 16 Nov 2026 12:00:08 GMT", "warning", id="eight seconds ahead"),
        pytest.param("Mon, 16 Nov 2026 11:58:00 GMT", "fault", id="two minutes behind"),
        pytest.param(None, None, id="a server that does not tell the time"),
        pytest.param("yesterday", None, id="a server that talks nonsense"),
    ],
)
def test_clocks(date: str | None, level: str | None) -> None:
    found = checks.check_skew("worker x", checks.skew(date, NOW, NOW), "the management cluster")
    assert [each.level for each in found] == ([level] if level else [])


@pytest.mark.parametrize(
    ("left", "level"),
    [(None, "ok"), (timedelta(days=90), "ok"), (timedelta(days=3), "warning"), (timedelta(seconds=-1), "fault")],
)
def test_credentials_that_end(left: timedelta | None, level: str) -> None:
    end = None if left is None else NOW + left
    assert checks.check_expiry("worker x", "x", end, NOW).level == level


SLOTS = Slots.of("origin", "x")


@pytest.mark.parametrize(
    ("issued", "expires", "secret", "level"),
    [
        pytest.param(-1, 23, SLOTS.names[0], "ok", id="fresh"),
        pytest.param(-13, 11, SLOTS.names[0], "ok", id="about to be renewed"),
        pytest.param(-18, 6, SLOTS.names[1], "warning", id="nobody has renewed it"),
        pytest.param(-30, -6, SLOTS.names[1], "fault", id="over"),
        pytest.param(-1, None, None, "warning", id="never ends"),
        pytest.param(-1, 23, "another", None, id="not ours to renew"),
    ],
)
def test_tokens_that_are_renewed(issued: float, expires: float | None, secret: str | None, level: str | None) -> None:
    now, hour = NOW.timestamp(), 3600.0
    end = None if expires is None else now + expires * hour
    claims = TokenClaims("multimirror-system", "multimirror", end, now + issued * hour, secret)
    found = checks.check_token("worker x", "x", claims, SLOTS, now)
    assert (found.level if found is not None else None) == level


def test_an_account_without_limits_is_told_of_and_how_much_that_matters() -> None:
    there = [PolicyState(each, each) for each in limits()]
    gone = [PolicyState(each, None) for each in limits()]
    assert checks.check_limits("worker x", "x", there, everywhere=True).level == "ok"
    assert checks.check_limits("worker x", "x", None, everywhere=True).level == "warning"
    found = checks.check_limits("worker x", "x", gone, everywhere=True)
    assert (found.level, "kube-system" in found.message) == ("warning", True)
    assert "multimirror-namespaces, multimirror-secrets, multimirror-tokens" in found.message


def a_cluster(ready: bool = True, **labels: str) -> Json:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {
        "metadata": {"name": "x"},
        "spec": {"kubeconfig": {"secret": {"name": "x"}}, "labels": labels},
        "status": {"conditions": [condition]},
    }


@pytest.mark.parametrize(
    ("workers", "clusters", "level", "text"),
    [
        pytest.param(None, {"a": a_cluster()}, "ok", "1 of its 1", id="every worker"),
        pytest.param(None, {}, "fault", "no worker clusters", id="there is no worker at all"),
        pytest.param({"names": ["b"]}, {"a": a_cluster()}, "fault", "no WorkerCluster b", id="a name that nobody has"),
        pytest.param(
            {"names": ["a", "b"]}, {"a": a_cluster()}, "warning", "not there: b", id="one of two names that nobody has"
        ),
        pytest.param(
            {"selector": {"matchLabels": {"gpu": "yes"}}},
            {"a": a_cluster()},
            "fault",
            "no worker",
            id="labels nobody has",
        ),
        pytest.param(None, {"a": a_cluster(ready=False)}, "fault", "none of its workers is ready", id="none is ready"),
    ],
)
def test_queues(workers: Json | None, clusters: dict[str, Json], level: str, text: str) -> None:
    spec = {"workers": workers} if workers is not None else {}
    (found,) = checks.check_queues([{"metadata": {"name": "q"}, "spec": spec}], clusters)
    assert (found.level, text in found.message) == (level, True), found


def a_cohort(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": spec}


def test_cohorts_that_make_no_tree_are_faults() -> None:
    tree = [a_cohort("a", parent="b"), a_cohort("b", parent="company")]
    assert checks.check_cohorts(tree) == []
    ring = [a_cohort("x", parent="y"), a_cohort("y", parent="x"), a_cohort("below", parent="x")]
    found = checks.check_cohorts([*tree, *ring, a_cohort("broken", weight="heavy")])
    assert [(each.level, each.subject) for each in found] == [
        ("fault", "cohort broken"),
        ("fault", "cohort x"),
        ("fault", "cohort y"),
    ]
    assert "x in y in x" in found[1].message


def a_job(*, minutes: int = 1, cluster: str | None = None, managed: bool = True, **more: Any) -> Json:
    created = (NOW - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
    metadata: Json = {
        "name": "j",
        "namespace": "team",
        "uid": "u",
        "creationTimestamp": created,
        "labels": {QUEUE_LABEL: "q"},
    }
    if cluster:
        metadata["annotations"] = {CLUSTER_ANNOTATION: cluster}
    spec = {"managedBy": MANAGED_BY} if managed else {}
    return {"metadata": metadata, "spec": spec, "status": {}, **more}


@pytest.mark.parametrize(
    ("job", "level", "text"),
    [
        pytest.param(a_job(), "ok", "1 not finished", id="young and waiting"),
        pytest.param(a_job(minutes=11), "warning", "wait for more than 600 s", id="waits for long"),
        pytest.param(a_job(managed=False), "fault", "run on this cluster: team/j", id="was never made ours"),
        pytest.param(a_job(cluster="gone"), "fault", "WorkerCluster is gone", id="on a worker that was removed"),
        pytest.param(a_job(minutes=11, cluster="a"), "fault", "have not started", id="given away, and no news"),
        pytest.param(
            a_job(minutes=11, cluster="a", status={"startTime": "2026-11-16T11:50:00Z"}), "ok", "none", id="runs"
        ),
    ],
)
def test_jobs(job: Json, level: str, text: str) -> None:
    context = JobContext(queues={"q": {"metadata": {"name": "q"}}}, clusters={"a": a_cluster()})
    (found,) = jobs.check_jobs([job], context, NOW, TEN)
    assert (found.level, text in found.message) == (level, True), found


def test_a_job_whose_queue_is_missing_can_never_start() -> None:
    (found,) = jobs.check_jobs([a_job()], JobContext(queues={"other": {}}), NOW, TEN)
    assert (found.level, "can never start: team/j: there is no MirrorQueue q" in found.message) == ("fault", True)


@pytest.mark.parametrize(
    ("copy", "levels"),
    [
        pytest.param({"status": {"startTime": "2026-11-16T11:00:00Z"}}, [Level.OK], id="started"),
        pytest.param({"status": {}}, [Level.FAULT], id="never started"),
        pytest.param({"status": {}, "spec": {"suspend": True}}, [Level.OK], id="suspended by its user"),
    ],
)
def test_copies_that_nobody_starts(copy: Json, levels: list[Level]) -> None:
    found = jobs.check_copies("worker x", [{**a_job(minutes=5), **copy}], NOW, timedelta(seconds=30))
    assert [each.level for each in found] == levels


def test_a_default_queue_that_is_none() -> None:
    namespace = {"metadata": {"name": "team", "labels": {"multimirror.dev/default-queue": "typo"}}}
    (found,) = checks.check_namespaces([namespace], ["q"])
    assert (found.level, found.subject) == ("fault", "namespace team")
    assert checks.check_namespaces([namespace], ["typo"]) == []


@pytest.mark.parametrize(
    ("reason", "message", "level", "text"),
    [
        pytest.param("NeverFits", "it is too big in any words", "fault", "can never start", id="it never fits"),
        pytest.param("Invalid", "its priority is no number", "fault", "can never start", id="it cannot be read"),
        pytest.param(
            "NoWorkerFits",
            "east: namespace may-not-be-used may not be used; no worker of queue is large enough for now",
            "ok",
            "none of them stuck",
            id="words that only sound hopeless",
        ),
    ],
)
def test_whether_a_job_can_ever_start_is_judged_by_the_reason_of_its_wait(
    reason: str, message: str, level: str, text: str
) -> None:
    event = {"metadata": {"annotations": {WAITS_FOR_ANNOTATION: reason}}, "reason": "Waiting", "message": message}
    context = JobContext(waiting={"u": event}, queues={"q": {}})
    (found,) = jobs.check_jobs([a_job()], context, NOW, TEN)
    assert (found.level, text in found.message) == (level, True), found


def test_the_reason_of_a_queues_first_job_is_on_the_queue() -> None:
    head = {"job": "team/j", "reason": "NeverFits", "message": "it is too big"}
    (found,) = jobs.check_jobs([a_job()], JobContext(queues={"q": {"status": {"head": head}}}), NOW, TEN)
    assert found.level == "fault"
    head["job"] = "team/other"
    (found,) = jobs.check_jobs([a_job()], JobContext(queues={"q": {"status": {"head": head}}}), NOW, TEN)
    assert found.level == "ok"


@pytest.mark.parametrize(
    ("connected", "level", "remedy"),
    [
        pytest.param(
            "True",
            "warning",
            "The dispatcher reaches it; ask again from where you do too, to know more.",
            id="it is us",
        ),
        pytest.param("False", "fault", "Is it up? The dispatcher does not reach it either.", id="it is down"),
        pytest.param(None, "fault", "Is it up?", id="no dispatcher has tried yet"),
    ],
)
def test_of_a_worker_that_is_not_reached_from_here_it_is_said_what_the_dispatcher_finds(
    connected: str | None, level: str, remedy: str
) -> None:
    conditions = [{"type": "Connected", "status": connected}] if connected is not None else []
    found = check_unreachable("worker x", {"status": {"conditions": conditions}}, Unreachable("no way", cluster="x"))
    assert (found.level, found.remedy) == (level, remedy)

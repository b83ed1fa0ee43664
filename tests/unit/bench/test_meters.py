"""Counting requests in an audit log, and CPU time of processes."""

import os
import time
from pathlib import Path
from typing import Any

import orjson

from bench.frame.meters import Asked, Meter, Spent, cpu_seconds, entries, requests_in, total


def an_entry(**changes: Any) -> dict[str, Any]:
    entry = {
        "stage": "ResponseComplete",
        "verb": "patch",
        "requestURI": "/apis/batch/v1/namespaces/default/jobs/a/status",
        "userAgent": "multimirror",
        "objectRef": {"resource": "jobs", "namespace": "default", "name": "a", "subresource": "status"},
    }
    return {**entry, **changes}


def a_log(directory: Path, *entries: dict[str, Any], rest: bytes = b"") -> Path:
    log = directory / "audit.log"
    log.write_bytes(b"".join(orjson.dumps(entry) + b"\n" for entry in entries) + rest)
    return log


def test_requests_are_counted_by_who_asked_for_what(tmp_path: Path) -> None:
    node = an_entry(userAgent="multimirror-simulated-node", objectRef={"resource": "pods"}, verb="create")
    manager = an_entry(userAgent="kube-controller-manager/v1.36.4 (linux/amd64) kubernetes/x/job-controller")
    found = requests_in(a_log(tmp_path, an_entry(), an_entry(), node, manager), "worker-1")
    assert found == {
        Asked("worker-1", "multimirror", "patch", "jobs/status"): 2,
        Asked("worker-1", "multimirror-simulated-node", "create", "pods"): 1,
        Asked("worker-1", "kube-controller-manager", "patch", "jobs/status"): 1,
    }


def test_a_watch_counts_once_and_when_it_begins(tmp_path: Path) -> None:
    jobs = {"resource": "jobs"}
    log = a_log(
        tmp_path,
        an_entry(verb="watch", stage="ResponseStarted", objectRef=jobs),
        an_entry(verb="watch", stage="ResponseComplete", objectRef=jobs),
    )
    assert requests_in(log, "management") == {Asked("management", "multimirror", "watch", "jobs"): 1}


def test_a_line_that_is_still_being_written_is_left_for_later(tmp_path: Path) -> None:
    log = a_log(tmp_path, an_entry(), rest=b'{"stage": "Respo')
    assert sum(requests_in(log, "management").values()) == 1


def test_only_what_came_after_the_mark_is_counted(tmp_path: Path) -> None:
    log = a_log(tmp_path, an_entry(), an_entry())
    meter = Meter(lambda: {"generator": [os.getpid()]}, {"management": log})
    mark = meter.mark()
    with log.open("ab") as more:
        more.write(orjson.dumps(an_entry(verb="create", objectRef={"resource": "jobs"})) + b"\n")
    assert meter.since(mark).asked() == {Asked("management", "multimirror", "create", "jobs"): 1}


def test_heartbeats_leases_and_watches_are_upkeep(tmp_path: Path) -> None:
    version = an_entry(verb="get", requestURI="/version?timeout=4s")
    del version["objectRef"]
    lease = an_entry(verb="update", objectRef={"resource": "leases"})
    watch = an_entry(verb="watch", stage="ResponseStarted")
    requests = requests_in(a_log(tmp_path, version, lease, watch, an_entry()), "management")
    spent = Spent(1.0, {}, requests)
    assert list(spent.asked()) == [Asked("management", "multimirror", "patch", "jobs/status")]
    assert sum(spent.asked(upkeep=True).values()) == 4


def test_the_cpu_time_of_a_process_is_told_and_one_that_is_gone_has_none() -> None:
    before = cpu_seconds(os.getpid())
    ends = time.process_time() + 0.05
    while time.process_time() < ends:
        pass
    assert cpu_seconds(os.getpid()) > before
    assert cpu_seconds(2**22 + 1) == 0.0


def test_shares_are_of_all_cpu_time_and_several_runs_add_up() -> None:
    runs = [Spent(1.0, {"dispatcher": 1.0, "kube-apiserver": 9.0}, {}), Spent(2.0, {"dispatcher": 3.0}, {})]
    spent = total(runs)
    assert spent.wall == 3.0
    assert spent.share("dispatcher") == 4.0 / 13.0


def test_a_line_that_was_being_written_when_the_count_began_is_not_counted(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    first, second = (orjson.dumps({"verb": verb}) + b"\n" for verb in ("get", "patch"))
    log.write_bytes(first + second)
    for offset in range(1, len(first)):
        assert [entry["verb"] for entry in entries(log, offset)] == ["patch"]
    assert [entry["verb"] for entry in entries(log, len(first))] == ["patch"]
    assert [entry["verb"] for entry in entries(log)] == ["get", "patch"]

"""The demo's view: what is made of changes, and that every frame fits its screen."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from clusters.demonstration.scene import Phase, Scene, happenings, read_job
from clusters.demonstration.showing import drawing, is_live
from clusters.demonstration.view import ASCII, UNICODE, Symbols, frame, status_line
from clusters.demonstration.workload import CRON_JOB, cron_job, jobs
from multimirror.api import ATTEMPT_ANNOTATION, ATTEMPT_LABEL, CLUSTER_ANNOTATION, QUEUE_LABEL
from multimirror.kube import Change

Json = dict[str, Any]


def a_job(
    name: str = "report", cluster: str | None = None, attempt: int = 0, *, suspend: bool = False, **status: Any
) -> Json:
    annotations = {ATTEMPT_ANNOTATION: str(attempt)} | ({CLUSTER_ANNOTATION: cluster} if cluster else {})
    return {
        "metadata": {"name": name, "uid": name, "labels": {QUEUE_LABEL: "batch"}, "annotations": annotations},
        "spec": {"suspend": suspend, "completions": 2},
        "status": status,
    }


def ended(kind: str, reason: str = "", message: str = "") -> list[Json]:
    return [{"type": kind, "status": "True", "reason": reason, "message": message}]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (a_job(suspend=True), a_job(cluster="worker-1", attempt=1), ["placed on worker-1"]),
        (
            a_job(cluster="worker-2", attempt=1),
            a_job(attempt=1, suspend=True),
            ["taken away from worker-2: it cannot be reached"],
        ),
        (a_job(attempt=1, suspend=True), a_job(cluster="worker-1", attempt=2), ["moved to worker-1, attempt 2"]),
        (
            a_job(cluster="worker-1", attempt=1),
            a_job(cluster="worker-1", attempt=1, suspend=True),
            ["suspended by its user: its pods stop"],
        ),
        (
            a_job(cluster="worker-1", attempt=1, suspend=True),
            a_job(cluster="worker-1", attempt=1),
            ["resumed by its user"],
        ),
        (
            a_job(cluster="worker-1", attempt=1),
            a_job(cluster="worker-1", attempt=1, failed=1),
            ["a pod failed on worker-1 and is tried again"],
        ),
        (
            a_job(cluster="worker-1", attempt=1),
            a_job(cluster="worker-1", attempt=1, conditions=ended("Complete", "SuccessPolicy")),
            ["done on worker-1, by its success policy"],
        ),
        (
            a_job(cluster="worker-1", attempt=1),
            a_job(
                cluster="worker-1", attempt=1, failed=1, conditions=ended("Failed", "BackoffLimitExceeded", "too many")
            ),
            ["failed on worker-1: BackoffLimitExceeded: too many"],
        ),
        (a_job(cluster="worker-1", attempt=1), a_job(cluster="worker-1", attempt=1, active=1), []),
        (None, a_job(f"{CRON_JOB}-1"), ["created by the CronJob tick"]),
        (None, a_job("report"), []),
        (a_job(), None, []),
    ],
)
def test_a_change_of_a_job_is_told_in_words(old: Json | None, new: Json | None, told: list[str]) -> None:
    assert [each.what for each in happenings(Change(old, new), 1.0)] == told


def a_scene(jobs_on_each: int = 3) -> Scene:
    scene = Scene("embedded clusters", ("worker-1", "worker-2", "worker-3"))
    for queue, spec in {"batch": {}, "train": {"placement": "Pack", "quota": {"jobs": 4}}}.items():
        scene.queue_changed(Change(None, {"metadata": {"name": queue}, "spec": spec}))
    for worker in ("worker-1", "worker-2", "worker-3"):
        connected = {"conditions": [{"type": "Connected", "status": "True"}]}
        scene.cluster_changed(Change(None, {"metadata": {"name": worker}, "status": connected}))
        for number in range(jobs_on_each):
            name = f"{worker}-a-rather-long-name-{number}"
            scene.job_changed(Change(a_job(name), a_job(name, worker, 1, active=1)))
    for number in range(jobs_on_each * 10):
        scene.job_changed(Change(None, a_job(f"waiting-{number}", suspend=True)))
    lost = {"conditions": [{"type": "Connected", "status": "False", "message": "no connection to " + 200 * "x"}]}
    scene.cluster_changed(Change(None, {"metadata": {"name": "worker-2"}, "status": lost}))
    return scene


@pytest.mark.parametrize("symbols", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (110, 24), (40, 10), (20, 5), (250, 100)], ids=str)
@pytest.mark.parametrize("jobs_on_each", [0, 3, 90])
def test_no_line_is_longer_than_the_screen_is_wide_and_there_are_no_more_than_it_is_high(
    size: tuple[int, int], symbols: Symbols, jobs_on_each: int
) -> None:
    width, height = size
    lines = frame(a_scene(jobs_on_each).picture(), width, height, symbols)
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines), [line.plain for line in lines if line.cell_len > width]
    if symbols is ASCII:
        assert all(line.plain.isascii() for line in lines)


def test_a_small_screen_shows_clusters_queues_and_what_happened_last() -> None:
    lines = [line.plain for line in frame(a_scene().picture(), 80, 24)]
    assert any(line.startswith("worker-2") and "LOST" in line for line in lines)
    assert any("batch" in line and "Spread" in line and line.split()[-1] == "-" for line in lines)
    assert any("train" in line and "Pack" in line and line.split()[-1] == "4" for line in lines)
    assert any("LOST: no connection to" in line and line.endswith("…") for line in lines)


def test_a_log_gets_the_same_in_a_line() -> None:
    assert "waiting 30  running  9  over  0  on  worker-1 3  worker-2 3 (lost)  worker-3 3" in status_line(
        a_scene().picture()
    )


def test_a_copy_of_an_earlier_attempt_is_stale_until_it_goes() -> None:
    scene = a_scene(0)
    copy = {"metadata": {"name": "report", "uid": "1", "labels": {ATTEMPT_LABEL: "1"}}, "status": {}}
    scene.job_changed(Change(None, a_job(cluster="worker-1", attempt=2)))
    scene.copy_changed("worker-2", Change(None, copy))
    assert [each.name for each in scene.stale("worker-2")] == ["report"]
    scene.copy_changed("worker-2", Change(copy, None))
    assert scene.stale("worker-2") == []
    assert scene.stale_removed == 1


def test_a_worker_is_quiet_when_what_ended_there_is_known_and_the_rest_has_pods() -> None:
    scene = a_scene(0)
    metadata = {"name": "report", "uid": "1", "labels": {ATTEMPT_LABEL: "1"}}
    scene.job_changed(Change(None, a_job(cluster="worker-2", attempt=1)))
    scene.copy_changed("worker-2", Change(None, {"metadata": metadata, "status": {}}))
    assert not scene.is_quiet("worker-2"), "it has no pod: it may be about to end"
    pod = {"metadata": {"name": "p", "uid": "2", "ownerReferences": [{"uid": "1"}]}, "status": {"phase": "Running"}}
    scene.pod_changed("worker-2", Change(None, pod))
    assert scene.is_quiet("worker-2")
    scene.copy_changed("worker-2", Change(None, {"metadata": metadata, "status": {"conditions": ended("Complete")}}))
    assert not scene.is_quiet("worker-2"), "nobody knows yet that it ended"
    scene.job_changed(Change(None, a_job(cluster="worker-2", attempt=1, conditions=ended("Complete"))))
    assert scene.is_quiet("worker-2")


def test_the_workload_has_a_job_of_every_sort() -> None:
    made = jobs("worker-2", 3)
    specs = [job["spec"] for job in made]
    assert 30 <= len(made) <= 60
    assert any(spec.get("completionMode") == "Indexed" for spec in specs)
    assert any("successPolicy" in spec for spec in specs)
    assert any("backoffLimitPerIndex" in spec for spec in specs)
    assert {job["metadata"]["labels"][QUEUE_LABEL] for job in made} == {"batch", "train"}
    assert "name" not in cron_job()["spec"]["jobTemplate"]["metadata"]
    assert all(read_job({**job, "metadata": {**job["metadata"]}}).phase is Phase.WAITING for job in made)


def a_console(**environment: str) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, height=24, _environ=environment)


def test_a_dumb_terminal_gets_lines_and_one_without_colours_the_view_without_them() -> None:
    assert not is_live(a_console(TERM="dumb"))
    assert not is_live(Console(file=io.StringIO(), _environ={}))
    plain, coloured = a_console(TERM="xterm", NO_COLOR="1"), a_console(TERM="xterm")
    for console in (plain, coloured):
        assert is_live(console)
        console.print(drawing(a_scene(), console))
    assert colours(coloured) > {"31", "32"}
    assert not colours(plain)


def colours(console: Console) -> set[str]:
    """The colours in what was written; bold and dim are none."""
    assert isinstance(console.file, io.StringIO)
    codes = {code for found in re.findall(r"\x1b\[([0-9;]*)m", console.file.getvalue()) for code in found.split(";")}
    return codes - {"", "0", "1", "2"}

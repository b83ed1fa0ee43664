"""`multimirror why` and `multimirror queue`: what they say with a dispatcher that answers, and without."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from multimirror.api import MIRROR_QUEUES
from multimirror.cli import main
from multimirror.cli.job_context import about, place_text
from multimirror.kube.health import HealthServer
from multimirror.kube.resources import JOBS
from tests.unit.cli.workers_api import Management, management

Json = dict[str, Any]
WHY = "it asks for 8 gpu. Queue training has 2 left: own 16 all used, 8 more borrowed of at most 8"
TOLD = {
    "job": "team/train",
    "state": "Waiting",
    "leads": True,
    "reason": "QuotaExceeded",
    "why": WHY,
    "position": 3,
    "pending": 31,
    "startsPerHour": 4,
    "estimateSeconds": 2400,
    "workers": [{"name": "east", "fits": False, "message": "is cordoned"}],
}
ORDER = {"position": 1, "job": "team/first", "priority": 5, "since": "", "reason": "QuotaExceeded", "why": WHY}
JOB = {
    "metadata": {
        "name": "train",
        "namespace": "team",
        "uid": "u",
        "labels": {"multimirror.dev/queue": "training"},
        "creationTimestamp": "2026-11-01T00:00:00Z",
    },
    "spec": {"managedBy": "multimirror.dev/dispatcher", "suspend": True},
}
QUEUE = {
    "metadata": {"name": "training"},
    "spec": {"cohort": "research"},
    "status": {
        "pending": 31,
        "running": 3,
        "own": {"gpu": "16"},
        "used": {"gpu": "24"},
        "borrowed": {"gpu": "8"},
        "share": 250,
        "fairShare": 300,
        "pastUse": {"value": "0.412345678", "using": "0.5", "at": "2026-11-01T00:00:00Z"},
        "startsPerHour": 4,
        "waitSeconds": {"p50": 20, "p90": 900},
        "conditions": [{"type": "Borrowing", "status": "True", "message": "it uses 24 gpu, 16 its own"}],
        "head": {"job": "team/first", "reason": "QuotaExceeded", "message": "no quota"},
    },
}


@asynccontextmanager
async def a_hub(directory: Path) -> AsyncIterator[tuple[Management, HealthServer]]:
    """With a Job, a queue, and a dispatcher in a pod."""
    answers: Mapping[str, Json] = {
        "/explain": TOLD,
        "/queue": {"queue": "training", "leads": True, "pending": 31, "order": [ORDER | {"estimateSeconds": 800}]},
    }
    async with management(directory) as hub, HealthServer("127.0.0.1", 0) as health:
        for path, answer in answers.items():
            health.add_question(path, lambda _, answer=answer: (200, answer))  # type: ignore[misc]
        hub.objects = {
            JOBS.path("team", "train"): JOB,
            MIRROR_QUEUES.path(None, "training"): QUEUE,
            "/api/v1/namespaces/team/events": {"metadata": {"resourceVersion": "1"}, "items": []},
        }
        hub.dispatcher = f"http://127.0.0.1:{health.port}"
        yield hub, health


async def call(hub: Management, *words: str) -> int:
    """As a process of its own does it: beside the servers."""
    return await asyncio.to_thread(main, [*words, "--kubeconfig", str(hub.kubeconfig)])


async def test_why_says_what_the_dispatcher_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with a_hub(tmp_path) as (hub, _):
        hub.has_dispatcher()
        assert await call(hub, "why", "job/train", "-n", "team") == 0
        assert hub.executed == [["dispatcher", "multimirror", "ask", "/explain?job=team%2Ftrain"]]
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"Job team/train waits (QuotaExceeded): {WHY}",
        "It is third of 31 in its queue; starts in about 40 min (4 Jobs started in the last hour).",
        "To do: Wait, or raise the quota, or give the Job a higher priority.",
        "WORKER   FITS   WHY",
        "east     no     is cordoned",
    ]


async def test_the_dispatcher_can_be_asked_at_an_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with a_hub(tmp_path) as (hub, _):
        assert await call(hub, "why", "train", "-n", "team", "--dispatcher", hub.dispatcher, "-o", "json") == 0
        assert hub.executed == []
    answer = json.loads(capsys.readouterr().out)
    assert (answer["position"], answer["estimateSeconds"], answer["why"]) == (3, 2400, WHY)


async def test_without_a_dispatcher_why_says_what_stands_on_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_hub(tmp_path) as (hub, _):
        assert await call(hub, "why", "train", "-n", "team", "-o", "yaml") == 0
    answer = yaml.safe_load(capsys.readouterr().out)
    assert answer["why"] == "behind team/first: no quota"
    assert answer["position"] is None
    assert answer["note"] == (
        "no position and no estimate: no pod of the dispatcher runs in namespace multimirror-system"
    )


async def test_what_the_dispatcher_objects_to_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with a_hub(tmp_path) as (hub, health):
        health.add_question("/explain", lambda _: (404, {"error": "there is no Job team/train"}))
        hub.has_dispatcher()
        assert await call(hub, "why", "train", "-n", "team") == 0
    assert "note: no position and no estimate: there is no Job team/train" in capsys.readouterr().out


async def test_who_may_not_exec_is_told_what_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with a_hub(tmp_path) as (hub, _):
        hub.has_dispatcher()
        hub.exec_refused = (403, "pods/exec is forbidden")
        assert await call(hub, "queue", "training") == 0
    assert "note: the order is not shown: the dispatcher cannot be asked: pods/exec is forbidden" in (
        capsys.readouterr().out
    )


async def test_a_queue_shows_what_it_shares_and_who_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with a_hub(tmp_path) as (hub, _):
        hub.has_dispatcher()
        assert await call(hub, "queue", "training", "--limit", "1") == 0
        assert hub.executed == [["dispatcher", "multimirror", "ask", "/queue?name=training&limit=1"]]
    assert capsys.readouterr().out.splitlines() == [
        "Queue training of cohort research: 31 wait, 3 run",
        "RESOURCE   OWN   USED   BORROWED   LENT",
        "gpu        16    24     8          0",
        "share: 250 of 1000 that can be lent, over its weight; due to it by weight: 300",
        "used before: 412 of 1000 at 2026-11-01T00:00:00Z, 500 since then; twice that, over its weight, is added to "
        "its share in the order of cohort research",
        "started in the last hour: 4; half of them had waited 20 s, nine of ten 900 s at most",
        "it uses 24 gpu, 16 its own",
        "POSITION   JOB          PRIORITY   STARTS         REASON          WHY",
        f"1          team/first   5          about 13 min   QuotaExceeded   {WHY}",
    ]


async def test_a_queue_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with a_hub(tmp_path) as (hub, _):
        assert await call(hub, "queue", "nothing") == 4
    assert "there is no MirrorQueue nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (10, "about a minute"),
        (2400, "about 40 min"),
        (3 * 3600, "about 3 h"),
        (3 * 86400, "about 3 days"),
    ],
)
def test_times_are_not_taken_for_exact(seconds: int, words: str) -> None:
    assert about(seconds) == words


def test_a_position_without_an_estimate() -> None:
    told = {"position": 12, "pending": 31, "startsPerHour": 0}
    assert place_text(told) == "number 12 of 31 in its queue (0 Jobs started in the last hour)"


async def test_what_if_says_what_would_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[dict[str, str]] = []

    def answer(parameters: Mapping[str, str]) -> tuple[int, object]:
        asked.append(dict(parameters))
        return 200, {"placed": True, "cluster": "east", "queue": "training", "position": 1, "workers": []}

    async with a_hub(tmp_path) as (hub, health):
        health.add_question("/what-if", answer)
        words = ("what-if", "train", "-n", "team", "--dispatcher", hub.dispatcher)
        assert await call(hub, *words, "--priority", "50", "--cpu", "2") == 0
        assert capsys.readouterr().out == "With priority 50, cpu 2, Job team/train would go to east now\n"
        assert asked == [{"job": "team/train", "priority": "50", "request.cpu": "2"}]
        stops = [{"job": "team-b/train-7", "worker": "east", "reason": "Reclaim"}]
        waits = {
            "placed": False,
            "queue": "training",
            "position": 1,
            "reason": "WaitsForVictims",
            "why": "it stops one",
        }
        health.add_question("/what-if", lambda _: (200, {**waits, "stops": stops}))
        assert await call(hub, *words, "--priority", "60") == 0
        assert "\nIt would stop Job team-b/train-7 on east (Reclaim).\n" in capsys.readouterr().out
        assert await call(hub, *words, "--priority", "60", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out)["stops"] == stops
        health.add_question("/what-if", lambda _: (409, {"error": "it does not wait for a worker"}))
        assert await call(hub, *words, "--pods", "2") == 4
        assert "error: it does not wait for a worker" in capsys.readouterr().err
        assert await call(hub, *words) == 2

"""What a process shows to the outside: health, metrics, logs, and an orderly end."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from multimirror.kube import Client, Connection, Controller, Informer
from multimirror.kube.errors import NotFound
from multimirror.kube.health import HealthServer
from multimirror.kube.logs import LogFormat, configure_logging
from multimirror.kube.supervise import Supervisor
from tests.unit.kube.servers import THINGS, Server, Things, status
from tests.unit.kube.test_health import fetch


@pytest.fixture
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def configure(log_format: LogFormat, level: str = "info") -> None:
    """As a process does; but the loggers of modules, which outlive the test, do not remember it."""
    configure_logging(log_format, level)
    structlog.configure(cache_logger_on_first_use=False)


async def test_metrics_tell_what_client_queue_and_caches_do(server: Server) -> None:
    things = Things(server)
    await things.put("a")
    done = asyncio.Event()

    async def reconcile(_: str) -> None:
        done.set()

    controller = Controller("metered", reconcile)
    connection = Connection(name="metered-cluster", server=server.connection().server)
    async with Client(connection) as client, Informer(client, THINGS) as informer:
        informer.add_handler(lambda change: controller.queue.add(change.key))
        async with asyncio.TaskGroup() as tasks, HealthServer("127.0.0.1", 0) as health:
            tasks.create_task(controller.run())
            await done.wait()
            with pytest.raises(NotFound):
                await client.get(THINGS, "nothing", "default")
            controller.stop()
            _, text = await fetch(health, "/metrics")
    host = f"127.0.0.1:{server.port}"
    for line in (
        f'rest_client_requests_total{{cluster="metered-cluster",code="404",host="{host}",method="GET"}} 1.0',
        f'rest_client_requests_total{{cluster="metered-cluster",code="200",host="{host}",method="WATCH"}} 1.0',
        f'rest_client_request_duration_seconds_count{{cluster="metered-cluster",host="{host}",verb="GET"}} 1.0',
        'workqueue_adds_total{name="metered"} 1.0',
        'workqueue_depth{name="metered"} 0.0',
        'controller_runtime_reconcile_total{controller="metered",result="success"} 1.0',
        'multimirror_cache_objects{cluster="metered-cluster",resource="things.example.dev"} 1.0',
        'multimirror_relists_total{cluster="metered-cluster",resource="things.example.dev"} 1.0',
    ):
        assert line in text
    assert 'multimirror_informer_lag_seconds{cluster="metered-cluster",resource="things.example.dev"}' in text


@pytest.mark.usefixtures("_restored")
async def test_every_line_of_a_reconcile_says_whose_it_is(
    server: Server, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("json")
    server.then_answer(403, status(403, "Forbidden", "you may not"))

    async def reconcile(_: str) -> None:
        with structlog.contextvars.bound_contextvars(uid="uid-a", cluster="worker-1"):
            structlog.get_logger("mine").info("looks", detail={"x": 1})
            logging.getLogger("a.library").warning("says %s", "something")
            logging.getLogger("a.library").debug("not this")
        await client.get(THINGS, "a", "default")

    controller = Controller("mine", reconcile)
    controller.queue.add("default/a")
    controller.stop(drain=True)
    await controller.run()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["event"], line["level"], line["key"], line["controller"]) for line in lines] == [
        ("looks", "info", "default/a", "mine"),
        ("says something", "warning", "default/a", "mine"),
        ("reconcile failed", "warning", "default/a", "mine"),
    ]
    assert (lines[0]["uid"], lines[0]["cluster"], lines[0]["detail"]) == ("uid-a", "worker-1", {"x": 1})
    assert lines[2]["error"] == "cluster worker-1: you may not"
    assert all("timestamp" in line for line in lines)


@pytest.mark.usefixtures("_restored")
def test_logs_for_people_are_readable(capsys: pytest.CaptureFixture[str]) -> None:
    configure("text", "debug")
    structlog.get_logger("mine").debug("looks", cluster="worker-1")
    assert "looks" in (text := capsys.readouterr().out)
    assert "cluster=worker-1" in text


async def some_tasks() -> None:
    async with Supervisor() as tasks:
        await tasks.start("brief", asyncio.sleep(0), may_return=True)
        tasks.start("endless", asyncio.Event().wait())
        await asyncio.sleep(0)


@pytest.mark.usefixtures("_restored")
async def test_regular_ends_of_tasks_are_logged_for_debugging(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", "debug")
    await some_tasks()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["event"], line["task"]) for line in lines] == [("task ended", "brief"), ("task stopped", "endless")]


async def test_a_program_that_has_not_set_up_its_logs_does_not_hear_of_what_is_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await some_tasks()
    assert capsys.readouterr() == ("", "")


PROGRAM = """
import asyncio, sys
from multimirror.kube import run
from multimirror.kube.logs import configure_logging

async def main(stop):
    configure_logging("text")
    print("started", flush=True)
    await stop.wait()
    {ending}

run(main, grace={grace})
print("ended", flush=True)
"""


def program(tmp_path: Path, ending: str, grace: float, *signals: int) -> tuple[int, str]:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(ending=ending, grace=grace))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        text = ""
        for which in signals:
            os.kill(process.pid, which)
            text += process.stdout.readline().decode()
        text += process.communicate()[0].decode()
        return process.returncode, text


def test_sigterm_lets_the_process_tidy_up(tmp_path: Path) -> None:
    code, text = program(tmp_path, "print('tidied up')", 60, signal.SIGTERM)
    assert code == 0
    assert "tidied up" in text
    assert "ended" in text


def test_a_process_that_does_not_stop_in_time_is_stopped(tmp_path: Path) -> None:
    code, text = program(tmp_path, "await asyncio.sleep(600)", 0.1, signal.SIGTERM)
    assert code == 0
    assert "did not stop in time" in text


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    code, text = program(tmp_path, "await asyncio.sleep(600)", 600, signal.SIGTERM, signal.SIGINT)
    assert code == 0
    assert "stops at once" in text


def test_a_task_that_was_left_behind_is_told(tmp_path: Path) -> None:
    ending = "asyncio.get_running_loop().create_task(asyncio.sleep(600), name='forgotten')"
    code, text = program(tmp_path, ending, 60, signal.SIGTERM)
    assert code == 0
    assert "a task was left behind" in text
    assert "forgotten" in text

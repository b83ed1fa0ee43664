"""`multimirror fleet`: a fleet from the command line, as its user sees it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.local.binaries import BinariesMissingError, find_kubectl
from multimirror.admission.placement import placement_policy
from multimirror.kube import Client, Connection, Resource
from multimirror.kube.resources import CRDS, VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS
from tests.waiting import DEADLINE

Start = Callable[..., "subprocess.Popen[str]"]
pytestmark = pytest.mark.cluster_kind("embedded")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "multimirror.cli", "fleet", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=DEADLINE, check=False)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Start]:
    """Starts `up` in a directory of this test; whatever still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        line = command("up", "--directory", str(tmp_path / "fleet"), *arguments)
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def announced(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What `up -o yaml` printed when everything was up: its first document, which ends with the last cluster's line."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "worker-1.kubeconfig" in line:
            break
    state: dict[str, Any] = yaml.safe_load("".join(lines))
    return state


def test_a_fleet_is_brought_up_asked_and_stopped(up: Start, tmp_path: Path) -> None:
    process = up("--workers", "1", "--bare", "-o", "yaml")
    state = announced(process)
    assert [cluster["name"] for cluster in state["clusters"]] == ["management", "worker-1"]
    for cluster in state["clusters"]:
        path = Path(cluster["kubeconfig"])
        assert path.stat().st_mode & 0o777 == 0o600
        assert yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"] == cluster["server"]

    directory = ("--directory", str(tmp_path / "fleet"))
    asked = run("status", *directory, "-o", "json")
    assert asked.returncode == 0, asked.stderr
    answers = json.loads(asked.stdout)["clusters"]
    assert [(cluster["ready"], cluster["nodes"]) for cluster in answers] == [(True, 1), (True, 1)]
    assert all(cluster["version"].startswith("v1.") for cluster in answers)
    table = run("status", *directory).stdout.splitlines()
    assert table[0].split() == ["NAME", "SERVER", "KUBECONFIG", "READY", "VERSION", "NODES"]

    again = run("up", *directory)
    assert again.returncode == 1
    assert f"a fleet is already up in {tmp_path / 'fleet'}: stop it with `multimirror fleet down" in again.stderr

    down = run("down", *directory)
    assert (down.returncode, down.stdout) == (0, "2 embedded clusters stopped\n"), down.stderr
    assert process.wait(timeout=DEADLINE) == 0
    assert list((tmp_path / "fleet").glob("*.kubeconfig")) == []
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{state['clusters'][0]['server']}/version", timeout=5)


@pytest.fixture
def kubectl() -> Path:
    try:
        return find_kubectl()
    except BinariesMissingError as error:
        pytest.skip(str(error))


def lines_to_try(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    shown = []
    for line in process.stdout:
        shown.append(line.rstrip())
        if line.startswith("Ctrl-C"):
            break
    return [line.strip() for line in shown if line.startswith("  ")]


def test_the_lines_to_try_work_as_printed_a_jobs_copy_runs_on_a_worker_and_ctrl_c_stops_it(
    up: Start, tmp_path: Path, kubectl: Path
) -> None:
    process = up("--workers", "1")
    lines = lines_to_try(process)
    assert lines[0] == f"export KUBECONFIG={tmp_path / 'fleet' / 'management.kubeconfig'}"
    script = [line for line in lines if line.startswith(("export", "kubectl"))]
    script.append("kubectl wait --for=condition=complete --timeout=60s job/hello")
    script.append(r"kubectl get job hello -o jsonpath='{.metadata.annotations.multimirror\.dev/cluster}'")
    environment = {**os.environ, "PATH": f"{kubectl.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", "\n".join(script)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mirrorqueue.multimirror.dev/default" in done.stdout
    assert done.stdout.endswith("worker-1")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=DEADLINE) == 0


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.cluster_kind(kind)) for kind in ("embedded", "local")]
)
def test_where_a_job_goes_is_guarded_as_in_an_installation(up: Start, tmp_path: Path, kind: str) -> None:
    announced(up("--kind", kind, "--workers", "1", "-o", "yaml"))
    management = Connection.from_kubeconfig(tmp_path / "fleet" / "management.kubeconfig")

    async def found(resource: Resource, name: str) -> dict[str, Any]:
        async with Client(management) as client:
            return await client.get(resource, name)

    policy, binding = placement_policy()
    stored = asyncio.run(found(VALIDATING_POLICIES, policy["metadata"]["name"]))
    assert stored["spec"]["validations"] == policy["spec"]["validations"]
    bound = asyncio.run(found(VALIDATING_POLICY_BINDINGS, binding["metadata"]["name"]))
    assert bound["spec"] == binding["spec"]


def test_a_bare_fleet_has_nothing_of_ours_on_it(up: Start, tmp_path: Path) -> None:
    process = up("--workers", "0", "--bare")
    assert "kubectl get nodes" in lines_to_try(process)
    management = Connection.from_kubeconfig(tmp_path / "fleet" / "management.kubeconfig")

    async def definitions() -> int:
        async with Client(management) as client:
            return len((await client.list(CRDS)).items)

    assert asyncio.run(definitions()) == 0


def test_a_fleet_that_was_killed_is_not_taken_for_one_that_is_up(up: Start, tmp_path: Path) -> None:
    process = up("--workers", "1", "--bare", "-o", "yaml")
    announced(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=DEADLINE)
    directory = ("--directory", str(tmp_path / "fleet"))
    for asked in ("status", "down"):
        answer = run(asked, *directory)
        assert answer.returncode == 1
        assert answer.stderr == (
            f"error: no fleet is up in {tmp_path / 'fleet'}: start one with `multimirror fleet up`"
            " (the last one was killed)\n"
        )
    announced(up("--workers", "1", "--bare", "-o", "yaml"))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["status"], 1, "error: no fleet is up in ", id="nothing is up"),
        pytest.param(["up", "--workers", "-1"], 2, "'--workers': -1 is not in the range x>=0", id="a negative number"),
        pytest.param(["up", "--kind", "cloud"], 2, "'--kind': 'cloud' is not one of", id="an unknown kind"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    answer = run(*arguments, "--directory", str(tmp_path / "none"))
    assert answer.returncode == code
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr


def test_python_m_clusters_is_the_same_command(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "clusters", "status", "--directory", str(tmp_path / "none")]
    answer = subprocess.run(line, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: no fleet is up in ")


def test_a_data_directory_that_is_in_use_is_refused(up: Start, tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    announced(up("--workers", "1", "--bare", "-o", "yaml", *data))
    answer = run("up", "--bare", "--directory", str(tmp_path / "other"), *data)
    assert answer.returncode == 1
    assert f"error: {tmp_path / 'data' / 'management'} is in use by another server: stop" in answer.stderr


@pytest.mark.parametrize("kind", [pytest.param("local", id="no binaries"), pytest.param("kind", id="no Docker")])
def test_a_kind_that_cannot_run_here_says_what_is_missing(tmp_path: Path, kind: str) -> None:
    nothing = {"PATH": str(tmp_path), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    line = command("up", "--directory", str(tmp_path / "fleet"), "--kind", kind)
    answer = subprocess.run(line, capture_output=True, text=True, timeout=DEADLINE, check=False, env=nothing)
    assert answer.returncode == 1
    _, error, *each = answer.stderr.splitlines()
    assert error.startswith("error: ")
    assert all(line.startswith("  - ") for line in each), "what is missing, each in a line of its own"

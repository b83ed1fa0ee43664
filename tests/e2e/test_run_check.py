"""`multimirror run --check`, and `kubectl multimirror`, which is the same command found by kubectl."""

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.fleet import Cluster
from clusters.local import BinariesMissingError, find_kubectl
from multimirror.api import crds
from multimirror.kube import Client, Connection
from multimirror.kube.errors import AlreadyExists
from multimirror.kube.resources import CRDS, NAMESPACES

pytestmark = pytest.mark.cluster_kind("embedded")


def run(command: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": path, **environment},
    )


def check(kubeconfig: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    return run([sys.executable, "-m", "multimirror.cli", "run", "--check", "--kubeconfig", str(kubeconfig), *flags])


async def install(kubeconfig: dict[str, Any], *, without: str = "") -> None:
    wanted = [(CRDS, each) for each in crds() if each["spec"]["names"]["kind"] != without]
    async with Client(Connection.from_kubeconfig(kubeconfig)) as client:
        for resource, obj in [(NAMESPACES, {"metadata": {"name": "multimirror-system"}}), *wanted]:
            with contextlib.suppress(AlreadyExists):
                await client.create(resource, obj)


def test_a_check_says_what_is_missing_and_how_to_get_it_then_that_all_is_well(
    embedded_cluster: Cluster, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(embedded_cluster.kubeconfig))

    missing = check(kubeconfig, "--log-level", "debug")
    assert missing.returncode == 1
    assert "error: the kind workerclusters.multimirror.dev is not there\n  Install it:" in missing.stderr
    assert "warning: the kind cohorts.multimirror.dev is not there: queues can share, but" in missing.stderr
    assert "error: there is no namespace multimirror-system\n  `multimirror install` makes it" in missing.stderr
    assert "log-level: debug  # flag" in missing.stdout.splitlines(), "the configuration is printed all the same"

    asyncio.run(install(embedded_cluster.kubeconfig, without="Cohort"))
    older = check(kubeconfig)
    assert older.returncode == 0, "an older installation will do"
    assert "warning: the kind cohorts.multimirror.dev is not there" in older.stderr

    asyncio.run(install(embedded_cluster.kubeconfig))
    well = check(kubeconfig, "-o", "json")
    assert well.returncode == 0, well.stderr
    assert yaml.safe_load(well.stdout)["health-address"] == "0.0.0.0:8080"
    assert [line.partition(":")[0] for line in well.stderr.splitlines()] == ["ok"] * 6

    try:
        kubectl = find_kubectl()
    except BinariesMissingError as error:
        pytest.skip(str(error))
    plugin = run([str(kubectl), "multimirror", "run", "--check"], KUBECONFIG=str(kubeconfig))
    assert plugin.returncode == 0, plugin.stderr
    assert "ok: the management cluster answers" in plugin.stderr
    wrong = run([str(kubectl), "multimirror", "run", "--nope"])
    assert wrong.returncode == 2
    assert "See `kubectl multimirror run --help`" in wrong.stderr
    completed = run([str(kubectl), "__complete", "multimirror", "run", "--log-l"])
    assert completed.stdout.startswith("--log-level\t")


def test_a_check_of_a_cluster_that_does_not_answer_is_one_sentence(embedded_cluster: Cluster, tmp_path: Path) -> None:
    config = embedded_cluster.kubeconfig
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    answer = check(kubeconfig)
    assert answer.returncode == 3
    assert answer.stderr.startswith("error: ")
    assert len(answer.stderr.splitlines()) == 2, answer.stderr

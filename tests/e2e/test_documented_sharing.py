"""Every command on the pages about sharing, run as it is written there, where what they tell of has happened.

The queues are those of the page. The Jobs that its commands name ask for GPUs that no worker has, and so they wait. The
dispatcher runs beside the clusters and not in a pod, so a `multimirror` comes first on the path that says where it
answers.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from clusters.background import BackgroundFleet
from clusters.local import BinariesMissingError, find_kubectl
from clusters.local.ports import free_ports
from multimirror.api import MANAGED_BY, QUEUE_LABEL
from tests.documents import ROOT, Block, blocks
from tests.e2e.dispatching import running_fleet
from tests.following import Terminal, a_terminal, follow

PAGES = {
    "docs/concepts/sharing.md": {"default/train": "training"},
    "docs/how-to/my-job-was-preempted.md": {"default/train": "training"},
    "docs/how-to/share-gpus-between-teams.md": {"science/train": "team-a"},
    "docs/how-to/urgent-work.md": {"default/hotfix": "team-a"},
    "docs/how-to/nightly-batch.md": {"default/nightly-28471": "batch"},
}
"""The Jobs that each page's commands name, and their queues."""
TRAINING = {
    "apiVersion": "multimirror.dev/v1alpha1",
    "kind": "MirrorQueue",
    "metadata": {"name": "training"},
    "spec": {"cohort": "research", "quota": {"resources": {"nvidia.com/gpu": 16}}},
}


@pytest.fixture(scope="module")
def fleet() -> Iterator[BackgroundFleet]:
    with running_fleet("embedded", 1) as fleet:
        yield fleet


@pytest.fixture
def terminal(tmp_path: Path, fleet: BackgroundFleet) -> Iterator[Terminal]:
    """With a dispatcher at work, and nothing in its queues."""
    try:
        kubectl = find_kubectl()
    except BinariesMissingError as error:
        pytest.skip(str(error))
    checkout = tmp_path / "multimirror"
    checkout.mkdir()
    management = str(fleet.kubeconfig_file("management"))
    shell = a_terminal(checkout, [kubectl], {"KUBECONFIG": management})
    (port,) = free_ports(1)
    asking, command = tmp_path / "asking", f"{Path(sys.prefix) / 'bin' / 'multimirror'}"
    asking.mkdir()
    (asking / "multimirror").write_text(f'#!/bin/sh\nexec {command} "$@" --dispatcher http://127.0.0.1:{port}\n')
    (asking / "multimirror").chmod(0o755)
    run = f"{command} run --kubeconfig {management} --health-address 127.0.0.1:{port} --no-leader-election"
    shell.open(typed(f"{run} --log-format text"), "serves metrics and health")
    shell.environment["PATH"] = f"{asking}:{shell.environment['PATH']}"
    try:
        yield shell
    finally:
        shell.type(typed("kubectl delete jobs,mq,cohorts --all -A --wait=false"))
        shell.close()


def typed(text: str) -> Block:
    return Block(Path(__file__), 0, "sh", text, "")


def queues_of(page: str) -> list[object]:
    """The first of each name: what comes later on the page is a variation of it."""
    found: dict[tuple[str, str], object] = {}
    for block in blocks(ROOT / page):
        if block.language == "yaml":
            for each in yaml.safe_load_all(block.text):
                if each["kind"] in {"MirrorQueue", "Cohort"}:
                    found.setdefault((each["kind"], each["metadata"]["name"]), each)
    return list(found.values())


def a_job(name: str, queue: str) -> object:
    container = {"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    namespace, _, name = name.partition("/")
    metadata = {"name": name, "namespace": namespace, "labels": {QUEUE_LABEL: queue}}
    spec = {"managedBy": MANAGED_BY, "suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


@pytest.mark.cluster_kind("embedded")
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_about_sharing_work_as_they_are_written(page: str, terminal: Terminal) -> None:
    jobs = PAGES[page]
    objects: list[object] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "science"}}]
    objects += [TRAINING] if "training" in jobs.values() and not queues_of(page) else []
    objects += queues_of(page)
    objects += [a_job(name, queue) for name, queue in jobs.items()]
    (terminal.directory / "queues.yaml").write_text(yaml.safe_dump_all(queues_of(page)))
    (terminal.directory / "all.yaml").write_text(yaml.safe_dump_all(objects))
    terminal.type(typed("kubectl apply -f all.yaml && kubectl label --overwrite namespace default team=a"))
    for name in jobs:
        namespace, _, job = name.partition("/")
        waits = f"until multimirror why job/{job} -n {namespace} | grep -q 'in its queue'; do sleep 0.2; done"
        terminal.type(typed(waits))
    said = "".join(follow(terminal, page).values())
    assert "waits (" in said
    assert "in its queue" in said
    assert "note:" not in said, "the dispatcher was not asked"


def test_every_page_about_sharing_is_run() -> None:
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    asking = {page for page in pages if any("multimirror what-if" in block.text for block in blocks(ROOT / page))}
    assert asking - {"docs/command-line.md", "docs/reference/commands.md"} <= set(PAGES)

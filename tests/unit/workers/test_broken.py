"""What is broken costs itself alone, and says so."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multimirror.api import WORKER_CLUSTERS
from multimirror.kube import Change, Connection, Resource
from multimirror.kube.resources import JOBS, SECRETS
from multimirror.workers import trim_secret
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.workers.fake_cluster import a_secret
from tests.unit.workers.stage import SYSTEM, Stage, a_copy, a_stage


def swap_the_link(directory: Path, content: bytes) -> None:
    """As the kubelet does with a mounted Secret."""
    fresh = directory / f"..{len(list(directory.iterdir()))}"
    fresh.mkdir()
    (fresh / "east").write_bytes(content)
    (directory / "..new").symlink_to(fresh.name)
    (directory / "..new").rename(directory / "..data")
    if not (directory / "east").is_symlink():
        (directory / "east").symlink_to("..data/east")


def replace_the_file(directory: Path, content: bytes) -> None:
    (directory / "new").write_bytes(content)
    (directory / "new").rename(directory / "east")


def write_in_place(directory: Path, content: bytes) -> None:
    (directory / "east").write_bytes(content)


@pytest.mark.parametrize("write", [swap_the_link, replace_the_file, write_in_place])
def test_a_kubeconfig_in_a_file_is_followed(tmp_path: Path, write: Callable[[Path, bytes], None]) -> None:
    @virtual_time
    async def story() -> None:
        async with a_stage(directory=tmp_path) as stage:
            cluster = await stage.add("east", kubeconfig={"path": "east"})
            await stage.lost("east")
            assert stage.worker("east").state.reason == "KubeconfigMissing"

            write(tmp_path, cluster.kubeconfig("first"))
            worker = await stage.connected("east")
            session = worker.session
            await asyncio.sleep(60)
            assert worker.session is session, "nothing changed"
            write(tmp_path, cluster.kubeconfig("second-one"))
            await stage.until(lambda: cluster.server.seen[-1].headers["authorization"] == "bearer second-one")
            assert worker.session is session, "only the token is another one"

    story()


def out_of_it(directory: Path) -> str:
    (directory.parent / "secret").write_text("x")
    (directory / "link").symlink_to("../secret")
    return "link"


def in_circles(directory: Path) -> str:
    (directory / "a").symlink_to("b")
    (directory / "b").symlink_to("a")
    return "a"


def no_file(directory: Path) -> str:
    (directory / "sub").mkdir()
    return "sub"


def too_large(directory: Path) -> str:
    (directory / "large").write_bytes(b"x" * (2 << 20))
    return "large"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (out_of_it, "leads out of the directory"),
        (in_circles, "cannot be read"),
        (no_file, "is no file"),
        (too_large, "is larger than 64 KiB"),
        (lambda _: "nul\0", "cannot be read"),
        (lambda _: "x" * 5000, "cannot be read"),
        (lambda _: "nowhere", "No such file"),
    ],
    ids=["leads out", "in circles", "a directory", "too large", "no name", "a long name", "not there"],
)
def test_a_file_that_cannot_be_used_is_said(tmp_path: Path, name: Callable[[Path], str], why: str) -> None:
    @virtual_time
    async def story() -> None:
        allowed = tmp_path / "allowed"
        allowed.mkdir()
        async with a_stage(directory=allowed) as stage:
            await stage.add("east", kubeconfig={"path": name(allowed)})
            worker = await stage.lost("east")
            assert worker.state.reason == "KubeconfigMissing"
            assert why in worker.state.message

    story()


async def unreadable_spec(stage: Stage) -> None:
    await stage.set_spec("broken", capacity={"mode": "Declared", "resources": {"cpu": "lots"}})


async def no_spec(stage: Stage) -> None:
    await stage.management.put(WORKER_CLUSTERS, {"metadata": {"name": "broken"}, "spec": ["x"]})


async def strange_secret(stage: Stage) -> None:
    await stage.management.put(SECRETS, {"metadata": {"namespace": SYSTEM, "name": "odd"}, "data": {"kubeconfig": 5}})
    await stage.set_spec("broken", kubeconfig={"secret": {"name": "odd"}})


async def strange_kubeconfig(stage: Stage) -> None:
    await stage.set_secret("odd", b"a: 2026-99-99\nsecret: !!int 's3cret'")
    await stage.set_spec("broken", kubeconfig={"secret": {"name": "odd"}})


async def no_base64(stage: Stage) -> None:
    data = {"kubeconfig": "%%%"}
    await stage.management.put(SECRETS, {"metadata": {"namespace": SYSTEM, "name": "odd"}, "data": data})
    await stage.set_spec("broken", kubeconfig={"secret": {"name": "odd"}})


@pytest.mark.parametrize(
    ("breaking", "reason"),
    [
        (unreadable_spec, "InvalidSpec"),
        (no_spec, "InvalidSpec"),
        (strange_secret, "InternalError"),
        (strange_kubeconfig, "KubeconfigRefused"),
        (no_base64, "KubeconfigMissing"),
    ],
)
def test_a_broken_worker_cluster_costs_itself_alone(breaking: Callable[[Stage], object], reason: str) -> None:
    @virtual_time
    async def story() -> None:
        async with a_stage() as stage:
            await stage.add("east")
            east = await stage.connected("east")
            session = east.session
            await breaking(stage)  # type: ignore[misc]
            broken = await stage.lost("broken")

            assert broken.state.reason == reason
            assert "s3cret" not in broken.state.message
            assert ("broken", False) in stage.seen.states
            await stage.add("west")
            await stage.connected("west")
            assert east.session is session
            await stage.add("broken")
            await stage.connected("broken")

    story()


@virtual_time
async def test_a_server_that_answers_nonsense_is_told_by_its_own_condition() -> None:
    async with a_stage() as stage:
        await stage.add("east")
        await stage.connected("east")
        cluster = await stage.add("odd")
        cluster.server.scripts.clear()
        cluster.server.then_answer(200, b"[]")
        worker = await stage.lost("odd")
        assert worker.state.reason in {"BadAnswer", "InternalError"}
        assert stage.workers.contact("east").connected


class Failing:
    """Subscribed, and of no use."""

    def copy_changed(self, worker: str, resource: Resource, change: Change) -> None:
        raise ZeroDivisionError

    def state_changed(self, worker: str, *, reconnected: bool) -> None:
        raise ZeroDivisionError

    def capacity_changed(self, worker: str) -> None:
        raise ZeroDivisionError


@virtual_time
async def test_a_handler_that_fails_costs_nobody_anything() -> None:
    async with a_stage() as stage:
        stage.workers.subscribe(Failing())
        cluster = await stage.add("east")
        worker = await stage.connected("east")
        await cluster.put(JOBS, a_copy())
        await stage.until(lambda: len(worker.copies("uid-of-train")) == 1)
        assert len(stage.seen.copies) == 1


@virtual_time
async def test_who_subscribes_late_is_told_what_is_there() -> None:
    async with a_stage() as stage:
        await stage.add("east")
        await stage.connected("east")
        late = type(stage.seen)()
        stage.workers.subscribe(late)
        assert late.states == [("east", True)]


@virtual_time
async def test_nobody_waits_for_a_worker_that_was_removed() -> None:
    async with a_stage() as stage:
        cluster = await stage.add("east")
        await cluster.cut_off()
        await stage.until(lambda: stage.workers.get("east") is not None)
        waiting = asyncio.ensure_future(stage.workers.settled())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await stage.management.remove(WORKER_CLUSTERS, "east")
        async with asyncio.timeout(1):
            await waiting


@virtual_time
async def test_a_secret_that_is_too_large_for_a_kubeconfig_is_said_and_not_kept() -> None:
    async with a_stage() as stage:
        await stage.add("east")
        await stage.connected("east")
        await stage.set_secret("east", b"x" * 500_000)
        worker = await stage.lost("east")
        assert worker.state.reason == "KubeconfigMissing"
        assert "larger than 64 KiB" in worker.state.message
        assert trim_secret(a_secret("s", b"x" * 500_000, namespace="n"))["data"] == {"kubeconfig": None}


def test_of_a_secret_only_what_may_be_a_kubeconfig_is_kept() -> None:
    values = {"a": "x" * 80_000, "b": "y" * 80_000, "c": "z" * 80_000, "small": "k"}
    metadata = {"name": "s", "namespace": "n", "uid": "u", "resourceVersion": "1", "annotations": {"all": "x" * 1000}}
    kept = trim_secret({"metadata": metadata, "type": "Opaque", "data": values})
    assert "annotations" not in kept["metadata"]
    assert {key: value is not None for key, value in kept["data"].items()} == {
        "small": True,
        "a": True,
        "b": True,
        "c": False,
    }
    assert trim_secret({"metadata": metadata, "type": "helm.sh/release.v1", "data": {"release": "x"}})["data"] == {
        "release": None
    }


@virtual_time
async def test_a_kubeconfig_is_read_once_however_often_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    strict = Connection.strict

    def counted(source: bytes, **options: Any) -> Connection:
        read.append(source)
        return strict(source, **options)

    monkeypatch.setattr(Connection, "strict", counted)
    async with a_stage() as stage:
        await stage.add("east")
        await stage.set_secret("east", b"kind: Config\na: &a b\n")
        await stage.lost("east")
        read.clear()
        await asyncio.sleep(600)
        assert stage.worker("east").state.reason == "KubeconfigRefused"
        assert read == []

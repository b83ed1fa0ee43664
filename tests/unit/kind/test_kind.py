"""The kind driver by its decisions and its command lines; `docker` and `kind` are stand-ins that record their calls."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.fleet import FleetOptions, open_fleet, unavailable
from clusters.kind import CommandError, KindFleet, KindOptions, NotPossibleError, preflight, remove_fleet
from clusters.kind.__main__ import main
from clusters.kind.config import config_for, template
from clusters.kind.preflight import Facts, problems
from clusters.local.versions import Version
from tests.unit.kind.stand_ins import GIB, Machine

THREE = ["multimirror-management", "multimirror-worker-1", "multimirror-worker-2"]
GOOD = Facts(docker_found=True, memory=8 * GIB, kind_found=True, kind_version=Version(0, 32, 0))


def facts(**changes: Any) -> Facts:
    return Facts(**{field: getattr(GOOD, field) for field in Facts.__dataclass_fields__} | changes)


@pytest.mark.parametrize(
    ("known", "told"),
    [
        pytest.param(GOOD, [], id="nothing in the way"),
        pytest.param(facts(docker_found=False, memory=None), ["`docker` is not in PATH"], id="no docker"),
        pytest.param(
            facts(docker_error="Cannot connect", memory=None),
            ["engine does not answer (Cannot connect)"],
            id="not running",
        ),
        pytest.param(facts(kind_found=False), ["`kind` is not in PATH"], id="no kind"),
        pytest.param(facts(kind_version=Version(0, 23, 0)), ["kind 0.23.0 is too old"], id="old kind"),
        pytest.param(facts(memory=2 * GIB), ["has 2.0 GiB of memory, 3 clusters need 4.0"], id="too little memory"),
        pytest.param(facts(existing=[THREE[1]]), ["kind delete clusters multimirror-worker-1"], id="names taken"),
        pytest.param(
            facts(inotify_instances=128, existing=["a", "b", "c"]),
            ["allows 128 inotify instances, 6 clusters (with those that are there) need 150: sysctl -w"],
            id="too few inotify instances",
        ),
        pytest.param(facts(missing_images=["mm:dev"]), ["image mm:dev is not in this Docker"], id="image not built"),
        pytest.param(
            Facts(), ["`docker` is not in PATH", "`kind` is not in PATH"], id="everything that is wrong is said at once"
        ),
    ],
)
def test_what_stands_in_the_way_is_said_with_its_remedy(known: Facts, told: list[str]) -> None:
    found = problems(known, THREE)
    assert len(found) == len(told)
    assert all(expected in text for expected, text in zip(told, found, strict=True))


@pytest.mark.parametrize(
    ("instances", "watches", "remedy"),
    [
        pytest.param(128, 524_288, "sysctl -w fs.inotify.max_user_instances=512", id="Linux' default"),
        pytest.param(512, 8192, "sysctl -w fs.inotify.max_user_watches=524288", id="few watches"),
        pytest.param(
            128, 8192, "sysctl -w fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=524288", id="both"
        ),
        pytest.param(1024, 1_048_576, None, id="enough"),
    ],
)
def test_a_kernel_that_allows_few_files_to_be_watched_is_warned_of_in_one_line(  # noqa: PLR0917 - a table
    instances: int,
    watches: int,
    remedy: str | None,
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kernel = tmp_path / "inotify"
    kernel.mkdir()
    (kernel / "max_user_instances").write_text(f"{instances}\n")
    (kernel / "max_user_watches").write_text(f"{watches}\n")
    monkeypatch.setattr(preflight, "INOTIFY", kernel)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert main(["check"]) == 0, machine.directory
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": sysctl")[2] for line in said] == ([remedy.removeprefix("sysctl")] if remedy else [])


def test_clusters_that_are_to_be_kept_may_be_there_already() -> None:
    assert problems(facts(existing=THREE), THREE, keep=True) == []


def test_options_become_configuration() -> None:
    options = KindOptions(
        feature_gates={"GenericWorkload": True},
        runtime_config={"scheduling.k8s.io/v1alpha1": True},
        ports={30090: 9090},
    )
    management = yaml.safe_load(config_for("management", options))
    assert management["featureGates"] == {"GenericWorkload": True}
    assert management["runtimeConfig"] == {"scheduling.k8s.io/v1alpha1": "true"}
    assert management["nodes"][0]["extraPortMappings"] == [
        {"containerPort": 30090, "hostPort": 9090, "listenAddress": "127.0.0.1", "protocol": "TCP"}
    ]
    worker = yaml.safe_load(config_for("worker-1", options))
    assert "extraPortMappings" not in worker["nodes"][0]
    assert worker["featureGates"] == {"GenericWorkload": True}


def test_the_stock_job_controller_is_switched_off_on_workers_only_and_as_the_shipped_file_does_it() -> None:
    options = KindOptions(controllers=("*", "-job-controller"))
    assert "kubeadmConfigPatches" not in yaml.safe_load(config_for("management", options))
    ours = yaml.safe_load(config_for("worker-1", options))
    shipped = yaml.safe_load(template("worker-own-job-controller.yaml"))
    ours["kubeadmConfigPatches"] = [yaml.safe_load(patch) for patch in ours["kubeadmConfigPatches"]]
    shipped["kubeadmConfigPatches"] = [yaml.safe_load(patch) for patch in shipped["kubeadmConfigPatches"]]
    assert ours == shipped
    list_form = ours["kubeadmConfigPatches"][1]
    assert list_form["apiVersion"] == "kubeadm.k8s.io/v1beta4"
    assert list_form["controllerManager"]["extraArgs"] == [
        {"name": "controllers", "value": "*,bootstrapsigner,tokencleaner,-job-controller"}
    ]


def deleted(machine: Machine) -> list[str]:
    return sorted(call[call.index("--name") + 1] for call in machine.calls("kind", "delete"))


async def test_a_fleet_is_created_loaded_and_deleted(machine: Machine) -> None:
    options = KindOptions(prefix="multimirror", images=["multimirror:dev"], node_image="kindest/node:v1.36.1")
    async with KindFleet(options) as fleet:
        assert machine.clusters == set(THREE)
        created = machine.calls("kind", "create", "cluster")
        assert sorted(call[call.index("--name") + 1] for call in created) == THREE
        assert all(call[call.index("--image") + 1] == "kindest/node:v1.36.1" for call in created)
        assert all("--kubeconfig" in call for call in created), "the user's own kubeconfig must not be touched"
        assert machine.calls("kind", "load") == [
            ["kind", "load", "docker-image", "multimirror:dev", "--name", cluster] for cluster in THREE
        ]
        worker = fleet.workers["worker-1"]
        assert worker.kubeconfig["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:40001"
        inside = worker.internal_kubeconfig
        assert inside["clusters"][0]["cluster"]["server"] == "https://multimirror-worker-1-control-plane:6443"
        assert inside["current-context"] == inside["contexts"][0]["name"] == "worker-1"
        assert inside["contexts"][0]["context"] == {"cluster": "worker-1", "user": "worker-1"}
        assert inside["users"][0]["user"]["client-key-data"] == "aw=="
        assert yaml.safe_load((machine.directory / "multimirror-worker-2.yaml").read_text())["kind"] == "Cluster"
    assert machine.clusters == set()


async def test_nothing_is_created_when_something_stands_in_the_way(machine: Machine) -> None:
    machine.settings(memory=GIB, fail={"docker image inspect": "No such image"})
    with pytest.raises(NotPossibleError) as caught:
        async with KindFleet(KindOptions(images=["multimirror:dev"])):
            pass
    assert "has 1.0 GiB of memory" in str(caught.value)
    assert "image multimirror:dev is not in this Docker" in str(caught.value)
    assert machine.calls("kind", "create") == []
    assert machine.calls("kind", "delete") == []


async def test_a_stopped_engine_is_told_in_its_own_words(machine: Machine) -> None:
    machine.settings(fail={"docker info": "Cannot connect to the Docker daemon at unix:///var/run/docker.sock."})
    with pytest.raises(NotPossibleError, match="Cannot connect to the Docker daemon"):
        await KindFleet(KindOptions()).start()
    assert "Cannot connect to the Docker daemon" in (unavailable("kind") or "")


async def test_a_creation_that_fails_is_quoted_and_what_was_made_is_deleted(machine: Machine) -> None:
    machine.settings(fail={"create cluster --name multimirror-worker-1": "ERROR: failed to init node with kubeadm"})
    with pytest.raises(CommandError, match="failed to init node with kubeadm"):
        async with KindFleet(KindOptions(prefix="multimirror", at_once=1)):
            pass
    assert machine.clusters == set()
    assert deleted(machine) == ["multimirror-management", "multimirror-worker-1"]
    assert machine.records == []


async def test_a_kept_fleet_stays_and_is_found_again(machine: Machine) -> None:
    options = KindOptions(workers=1, keep=True)
    async with KindFleet(options):
        pass
    assert machine.clusters == set(THREE[:2])
    async with KindFleet(options) as again:
        assert again.workers["worker-1"].kubeconfig
    assert len(machine.calls("kind", "create")) == 2
    assert machine.records == []
    (machine.directory / "clusters" / "multimirror-worker-7").touch()
    (machine.directory / "clusters" / "multimirror-other-management").touch()
    assert await remove_fleet() == ["multimirror-management", "multimirror-worker-1", "multimirror-worker-7"]
    assert machine.clusters == {"multimirror-other-management"}


def test_the_command_leaves_kubeconfigs_for_outside_and_inside(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "configs"
    assert main(["create", "--workers", "1", "--own-job-controller", "--kubeconfigs", str(where)]) == 0
    assert {path.name for path in where.iterdir()} == {
        f"{name}{suffix}.kubeconfig" for name in ("management", "worker-1") for suffix in ("", ".internal")
    }
    assert (where / "worker-1.kubeconfig").stat().st_mode & 0o077 == 0
    assert "-job-controller" in (machine.directory / "multimirror-worker-1.yaml").read_text()
    assert main(["delete"]) == 0
    assert machine.clusters == set()
    machine.settings(fail={"docker info": "Cannot connect"})
    assert main(["create"]) == 1
    assert "Cannot connect" in capsys.readouterr().err
    assert main(["check"]) == 1


async def test_a_data_directory_is_refused_with_what_to_use_instead(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(NotPossibleError, match=r"python -m clusters\.kind create"):
        await open_fleet("kind", FleetOptions(data_dir=tmp_path)).start()

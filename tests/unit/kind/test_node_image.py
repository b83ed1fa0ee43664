"""Which image nodes are made of, and what is said where there is none."""

import pytest

from clusters.commands.flags import own_keywords
from clusters.fleet import fleet_options, unavailable
from clusters.kind import KindFleet, KindOptions, NotPossibleError
from clusters.kind.__main__ import main
from clusters.kind.node_image import VARIABLE, choose
from multimirror.cli.errors import CommandError
from tests.unit.kind.stand_ins import Machine

NEEDED = "v1.36.4"


@pytest.mark.parametrize(
    ("asked", "version", "environment", "present", "chosen"),
    [
        pytest.param(None, None, None, [], f"kindest/node:{NEEDED}", id="nothing said: the version of all our tests"),
        pytest.param(
            None,
            None,
            None,
            ["other-node:v1.35.4", f"kind-node:{NEEDED}", f"busybox:{NEEDED}"],
            f"kind-node:{NEEDED}",
            id="what is here, whoever built it, rather than a pull",
        ),
        pytest.param(
            None,
            None,
            None,
            [f"a-node:{NEEDED}", f"kindest/node:{NEEDED}"],
            f"kindest/node:{NEEDED}",
            id="of two that are here, kind's own",
        ),
        pytest.param(None, None, "mine:1", [f"kind-node:{NEEDED}"], "mine:1", id="the environment's"),
        pytest.param("told:2", None, "mine:1", [], "told:2", id="an option goes before the environment"),
        pytest.param(None, "1.35", "mine:1", [], "kindest/node:v1.35.4", id="so does a version"),
        pytest.param(None, "v1.34.2", None, ["x/node:v1.34.2"], "x/node:v1.34.2", id="a version in full"),
    ],
)
def test_the_node_image(
    asked: str | None, version: str | None, environment: str | None, present: list[str], chosen: str
) -> None:
    environ = {VARIABLE: environment} if environment else {}
    assert choose(asked, version, present, environ) == chosen


def test_an_image_and_a_version_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="ask for one or the other"):
        choose("kindest/node:v1.35.4", "1.36", [], {})


async def test_clusters_are_made_of_the_image_that_this_docker_has(machine: Machine) -> None:
    machine.settings(images=["kind-node:v1.36.4"])
    async with KindFleet(KindOptions(workers=1, prefix="x")) as fleet:
        assert fleet.node_image == "kind-node:v1.36.4"
    created = machine.calls("kind", "create", "cluster")
    assert [call[call.index("--image") + 1] for call in created] == ["kind-node:v1.36.4"] * 2
    assert machine.calls("docker", "pull") == []


async def test_an_image_that_is_not_here_is_pulled_first(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.settings(fail={"docker image inspect": "No such image"})
    monkeypatch.setenv(VARIABLE, "somewhere/node:v1.36.4")
    async with KindFleet(KindOptions(workers=0)):
        pass
    assert machine.calls("docker", "pull") == [["docker", "pull", "--quiet", "somewhere/node:v1.36.4"]]
    (created,) = machine.calls("kind", "create", "cluster")
    assert created[created.index("--image") + 1] == "somewhere/node:v1.36.4"


async def test_where_there_is_no_node_image_one_sentence_says_so_before_anything_is_created(machine: Machine) -> None:
    machine.settings(
        images=["kind-node:v1.35.4", "busybox:1"],
        fail={"docker image inspect": "No such image", "docker pull": "lookup registry: no such host"},
    )
    with pytest.raises(NotPossibleError) as caught:
        async with KindFleet(KindOptions()):
            pass
    told = str(caught.value)
    assert "\n" not in told
    assert "kindest/node:v1.36.4 is not in this Docker and cannot be pulled (lookup registry: no such host)" in told
    assert "--node-image or MULTIMIRROR_NODE_IMAGE; this Docker has kind-node:v1.35.4;" in told
    assert machine.calls("kind", "create") == []
    assert unavailable("kind") == told


def test_the_command_takes_an_image_or_a_version(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfigs = ["--kubeconfigs", str(machine.directory / "configs")]
    assert main(["create", "--workers", "0", "--kubernetes-version", "1.35", *kubeconfigs]) == 0
    (created,) = machine.calls("kind", "create", "cluster")
    assert created[created.index("--image") + 1] == "kindest/node:v1.35.4"
    assert main(["create", "--node-image", "a:1", "--kubernetes-version", "1.35", *kubeconfigs]) == 1
    assert "ask for one or the other" in capsys.readouterr().err


def test_flags_of_commands_become_options_of_the_kind_that_has_them() -> None:
    assert fleet_options("kind", **own_keywords("kind", "a:1", None)) == KindOptions(node_image="a:1")
    assert own_keywords("local", None, "1.35") == {"version": "1.35"}
    for node_image, version in (("a:1", None), (None, "1.35")):
        with pytest.raises(CommandError, match="these are embedded ones"):
            own_keywords("embedded", node_image, version)

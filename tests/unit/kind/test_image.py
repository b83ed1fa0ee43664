"""The image for tests: from which base it is built, and when it is built again. `docker` is a stand-in."""

from pathlib import Path

import pytest

from clusters.kind import NotPossibleError
from clusters.kind.base_image import problems
from clusters.kind.image import BASE_VARIABLE, image_for_tests
from tests.unit.kind.stand_ins import Machine

PINNED = "python:3.13@sha256:00"


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(BASE_VARIABLE, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    where = tmp_path / "context"
    (where / "ours" / "__pycache__").mkdir(parents=True)
    (where / "ours" / "code.py").write_text("1")
    (where / "Dockerfile").write_text(f"ARG BASE={PINNED}\nFROM ${{BASE}}\nCOPY ours ours\n")
    return where


def built(machine: Machine) -> list[str]:
    return [call[call.index("--tag") + 1] for call in machine.calls("docker", "build")]


async def test_it_is_built_again_only_when_something_in_it_has_changed(machine: Machine, context: Path) -> None:
    machine.settings(known=[PINNED])
    first = await image_for_tests(context)
    (call,) = machine.calls("docker", "build")
    assert call[-1] == str(context)
    assert f"BASE={PINNED}" in call
    assert "PIP_INDEX_URL" in call, "this host's setting is given on"
    assert "PIP_TRUSTED_HOST" not in call
    machine.settings(known=[PINNED, first])
    (context / "ours" / "__pycache__" / "code.pyc").write_text("x")
    (context / "unrelated").write_text("x")
    assert await image_for_tests(context) == first
    assert built(machine) == [first]
    (context / "ours" / "code.py").write_text("2")
    second = await image_for_tests(context)
    assert second != first
    assert built(machine) == [first, second]


@pytest.mark.parametrize(
    ("known", "environment", "base", "pulled"),
    [
        pytest.param([PINNED, "multimirror-base:trixie"], None, PINNED, [], id="the Dockerfile's is here"),
        pytest.param(["multimirror-base:trixie"], None, "multimirror-base:trixie", [], id="Debian's is here"),
        pytest.param([], None, PINNED, [PINNED], id="neither: the Dockerfile's is pulled"),
        pytest.param([PINNED, "mine:1"], "mine:1", "mine:1", [], id="the environment names another"),
        pytest.param([PINNED], "mine:1", "mine:1", ["mine:1"], id="which is pulled if need be"),
    ],
)
async def test_its_base(
    machine: Machine,
    context: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    known: list[str],
    environment: str | None,
    base: str,
    pulled: list[str],
) -> None:
    machine.settings(known=known)
    if environment:
        monkeypatch.setenv(BASE_VARIABLE, environment)
    await image_for_tests(context)
    (call,) = machine.calls("docker", "build")
    assert f"BASE={base}" in call
    assert [each[-1] for each in machine.calls("docker", "pull")] == pulled


async def test_without_any_base_it_is_said_what_is_missing(machine: Machine, context: Path) -> None:
    machine.settings(known=[], fail={"docker pull": "no such host"})
    with pytest.raises(NotPossibleError) as caught:
        await image_for_tests(context)
    told = str(caught.value)
    assert f"the base image {PINNED} cannot be pulled (no such host)" in told
    assert "`debootstrap` is not in PATH" in told
    assert "MULTIMIRROR_BASE_IMAGE" in told


def test_who_may_not_make_a_base_is_told_everything_at_once() -> None:
    assert len(problems(is_root=False, which=lambda _: None)) == 3
    assert problems(is_root=True, which=lambda name: f"/usr/bin/{name}") == []

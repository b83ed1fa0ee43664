"""Which programs are taken, from where, and what is said when there are none."""

from pathlib import Path

import pytest

from clusters.local import versions
from clusters.local.binaries import ALL, NEEDED, BinariesMissingError, Candidate, choose, find_binaries, find_kubectl
from clusters.local.versions import Version

V136, V135 = Version(1, 36, 4), Version(1, 35, 4)
NEW_ETCD = Version(3, 6, 16)


def at(place: str, version: Version | None, *programs: str, etcd: Version | None = NEW_ETCD) -> list[Candidate]:
    return [Candidate(p, Path(f"/{place}/{p}"), place, etcd if p == "etcd" else version) for p in programs]


@pytest.mark.parametrize(
    ("found", "asked", "places"),
    [
        pytest.param(
            [*at("assets", V136, *NEEDED), *at("cache", V136, *NEEDED)], None, ["assets"] * 3, id="the first place wins"
        ),
        pytest.param(
            [*at("assets", V136, "etcd", "kube-apiserver"), *at("cache", V136, *NEEDED)],
            None,
            ["assets", "assets", "cache"],
            id="envtest assets have no controller manager: it comes from the next place",
        ),
        pytest.param(
            [*at("PATH", V136, *NEEDED, etcd=Version(3, 4, 23)), *at("cache", V136, "etcd")],
            None,
            ["cache", "PATH", "PATH"],
            id="an old etcd is passed over",
        ),
        pytest.param(
            [*at("PATH", V135, *NEEDED), *at("cache", V136, *NEEDED)],
            V136,
            ["PATH", "cache", "cache"],
            id="another version than the one asked for is passed over; etcd serves every version",
        ),
        pytest.param(
            [*at("PATH", Version(1, 29, 0), *NEEDED), *at("cache", V135, *NEEDED)],
            None,
            ["PATH", "cache", "cache"],
            id="a version that is not supported is passed over",
        ),
        pytest.param(
            [*at("PATH", None, *NEEDED, etcd=None), *at("cache", V136, *NEEDED)],
            None,
            ["cache"] * 3,
            id="a program that does not run here is passed over",
        ),
    ],
)
def test_each_program_comes_from_the_first_place_that_has_a_suitable_one(
    found: list[Candidate], asked: Version | None, places: list[str]
) -> None:
    chosen = choose(found, asked, NEEDED)
    assert [chosen[program].parent.name for program in NEEDED] == places


def test_components_of_different_minor_versions_are_not_mixed() -> None:
    found = [*at("PATH", V136, "etcd", "kube-apiserver"), *at("PATH", V135, "kube-controller-manager")]
    with pytest.raises(BinariesMissingError, match=r"no kube-controller-manager for Kubernetes 1\.36\.4"):
        choose(found, None, NEEDED)


def test_the_remedy_names_the_version_that_is_missing() -> None:
    found = at("assets", V135, "etcd", "kube-apiserver")
    with pytest.raises(BinariesMissingError, match=r"clusters\.local install --version 1\.35\.4"):
        choose(found, None, NEEDED)


def test_the_error_names_what_is_missing_what_did_not_suit_and_the_remedy() -> None:
    with pytest.raises(BinariesMissingError) as caught:
        choose(at("PATH", V135, *NEEDED), V136, NEEDED)
    told = str(caught.value)
    assert "no kube-apiserver for Kubernetes 1.36.4" in told
    assert "/PATH/kube-apiserver (PATH) is 1.35.4" in told
    assert "python -m clusters.local install" in told


def a_program(directory: Path, name: str, says: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\necho '{says}'\n")
    (directory / name).chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Assets, PATH and cache of a machine that has none of the programs yet."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin")
    return tmp_path


def test_places_are_searched_in_the_order_assets_path_cache(machine: Path) -> None:
    cached = machine / "cache" / "multimirror" / "bin" / "1.36.4"
    for program in ALL:
        a_program(cached, program, "never asked")
    a_program(machine / "path", "kube-controller-manager", "Kubernetes v1.36.2")
    a_program(machine / "path", "kube-apiserver", "Kubernetes v1.36.2")
    a_program(machine / "assets", "kube-apiserver", "Kubernetes v1.36.3")
    found = find_binaries(programs=ALL)
    assert found.version == Version(1, 36, 3)
    assert found["kube-apiserver"] == machine / "assets" / "kube-apiserver"
    assert found["kube-controller-manager"] == machine / "path" / "kube-controller-manager"
    assert found["etcd"] == cached / "etcd"


def test_a_kubectl_too_old_for_the_server_is_passed_over(machine: Path) -> None:
    a_program(machine / "path", "kubectl", "Client Version: v1.32.4")
    a_program(machine / "cache" / "multimirror" / "bin" / "1.36.4", "kubectl", "never asked")
    assert find_kubectl(V136) == machine / "cache" / "multimirror" / "bin" / "1.36.4" / "kubectl"


def test_a_machine_without_binaries_says_how_to_get_them(machine: Path) -> None:
    with pytest.raises(BinariesMissingError, match="make binaries"):
        find_binaries()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (None, versions.DEFAULT),
        ("1.36", versions.NEWEST[1, 36]),
        ("v1.35.2", Version(1, 35, 2)),
        ("1.37.0", Version(1, 37, 0)),
    ],
)
def test_versions_may_be_given_in_full_by_minor_or_not_at_all(text: str | None, version: Version) -> None:
    assert versions.wanted(text) == version


@pytest.mark.parametrize(
    ("text", "told"),
    [("latest", "write it like 1.36.4"), ("1.99", "name it in full"), ("1.29.3", "1.34.0 or newer is supported")],
)
def test_a_version_that_cannot_be_is_refused_with_what_would_do(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        versions.wanted(text)

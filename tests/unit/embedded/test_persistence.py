"""A cluster with a data directory, stopped and started again."""

import os
import stat
from pathlib import Path

import pytest

from clusters.embedded import EmbeddedCluster
from clusters.embedded.errors import StatusError
from clusters.embedded.persistence import DirectoryInUseError
from clusters.kubeconfigs import write_kubeconfig

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"
DEFINITION = {
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ],
    },
}


async def test_what_was_written_is_there_again_under_the_same_address(tmp_path: Path) -> None:
    async with EmbeddedCluster("a", data_dir=tmp_path) as cluster:
        assert cluster.server is not None
        made = await cluster.server.call("POST", CONFIGMAPS, {"metadata": {"name": "kept"}, "data": {"x": "1"}})
        await cluster.server.call("POST", CONFIGMAPS, {"metadata": {"name": "gone"}})
        deleted = await cluster.server.call("DELETE", f"{CONFIGMAPS}/gone")
        before = cluster.kubeconfig
    assert deleted["status"] == "Success"
    async with EmbeddedCluster("a", data_dir=tmp_path) as cluster:
        assert cluster.server is not None
        assert cluster.kubeconfig == before
        assert await cluster.server.call("GET", f"{CONFIGMAPS}/kept") == made
        with pytest.raises(StatusError, match="not found"):
            await cluster.server.call("GET", f"{CONFIGMAPS}/gone")


async def test_versions_go_on_where_they_stopped_even_after_a_deletion(tmp_path: Path) -> None:
    async with EmbeddedCluster("a", tls=False, data_dir=tmp_path) as cluster:
        assert cluster.server is not None
        await cluster.server.call("POST", CONFIGMAPS, {"metadata": {"name": "a"}})
        await cluster.server.call("DELETE", f"{CONFIGMAPS}/a")
        last = cluster.server.store.version
    async with EmbeddedCluster("a", tls=False, data_dir=tmp_path) as cluster:
        assert cluster.server is not None
        made = await cluster.server.call("POST", CONFIGMAPS, {"metadata": {"name": "a"}})
    assert int(made["metadata"]["resourceVersion"]) > last


async def test_custom_resources_are_served_again_with_their_objects(tmp_path: Path) -> None:
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
    async with EmbeddedCluster("a", tls=False, data_dir=tmp_path) as cluster:
        assert cluster.server is not None
        await cluster.server.call("POST", DEFINITIONS, DEFINITION)
        await cluster.server.call("POST", THINGS, thing)
    async with EmbeddedCluster("a", tls=False, data_dir=tmp_path) as cluster:
        assert cluster.server is not None
        listed = await cluster.server.call("GET", THINGS)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]


async def test_a_directory_belongs_to_one_server_at_a_time(tmp_path: Path) -> None:
    async with EmbeddedCluster("a", tls=False, data_dir=tmp_path):
        with pytest.raises(DirectoryInUseError, match="in use by another server: stop that one first"):
            await EmbeddedCluster("b", tls=False, data_dir=tmp_path).start()


async def test_what_is_kept_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with EmbeddedCluster("a", tls=False, data_dir=tmp_path / "data") as cluster:
            assert cluster.server is not None
            await cluster.server.call("POST", CONFIGMAPS, {"metadata": {"name": "a"}})
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "data").iterdir()}
    finally:
        os.umask(before)
    assert {"objects.sqlite", "objects.sqlite-wal"} <= modes.keys()
    assert set(modes.values()) == {0o600}, modes
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


async def test_a_file_that_an_earlier_version_left_open_to_all_is_closed(tmp_path: Path) -> None:
    (tmp_path / "objects.sqlite").touch(mode=0o644)
    async with EmbeddedCluster("a", tls=False, data_dir=tmp_path):
        assert stat.S_IMODE((tmp_path / "objects.sqlite").stat().st_mode) == 0o600


def test_a_kubeconfig_that_is_written_over_an_open_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / "worker-1.kubeconfig"
    file.touch(mode=0o644)
    write_kubeconfig(file, {"kind": "Config"})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

"""Whole graphs of owners, deleted at random in every way: what is left is what ownership says."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from clusters.embedded import EmbeddedFleet
from clusters.fleet import FleetOptions
from multimirror.kube import Client, Connection
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import CONFIG_MAPS
from tests.waiting import DEADLINE

POLICIES: tuple[Literal["Background", "Foreground", "Orphan"], ...] = ("Background", "Foreground", "Orphan")
pytestmark = pytest.mark.cluster_kind("embedded")


@dataclass
class Model:
    """Ownership, as a user understands it."""

    owners: dict[str, set[str]] = field(default_factory=dict)
    free: set[str] = field(default_factory=set)
    """Never owned, or orphaned: nothing but a deletion of their own removes these."""

    def delete(self, name: str, *, orphan: bool) -> None:
        del self.owners[name]
        for dependent, owners in list(self.owners.items()):
            if name in owners and dependent in self.owners:
                owners.discard(name)
                if not owners and orphan:
                    self.free.add(dependent)
                elif not owners and dependent not in self.free:
                    self.delete(dependent, orphan=False)


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_left_of_a_graph_is_what_ownership_says(seed: int) -> None:
    chance = random.Random(seed)
    model = Model()
    uids: dict[str, str] = {}
    async with EmbeddedFleet(FleetOptions(workers=0, nodes=False)) as fleet:
        connection = Connection.from_kubeconfig(fleet.management.kubeconfig)
        async with Client(connection) as client:
            for number in range(60):
                name = f"thing-{number}"
                owners = chance.sample(sorted(uids), k=min(len(uids), chance.choice([0, 1, 1, 2, 3])))
                references = [_reference(owner, uids[owner], block=chance.random() < 0.5) for owner in owners]
                body = {"metadata": {"name": name, "ownerReferences": references}}
                made = await client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **body}, "default")
                uids[name] = made["metadata"]["uid"]
                model.owners[name] = set(owners)
                if not owners:
                    model.free.add(name)
            for _ in range(12):
                name = chance.choice(sorted(model.owners))
                policy = chance.choice(POLICIES)
                try:
                    await client.delete(CONFIG_MAPS, name, "default", propagation=policy)
                except NotFound:
                    pytest.fail(f"{name} is gone although an owner of it is there")
                model.delete(name, orphan=policy == "Orphan")
                await _quiet(fleet)
            left = {item["metadata"]["name"]: item for item in (await client.list(CONFIG_MAPS, "default")).items}
    assert sorted(left) == sorted(model.owners)
    for name, item in left.items():
        references = item["metadata"].get("ownerReferences", [])
        assert {reference["name"] for reference in references} == model.owners[name]


async def _quiet(fleet: EmbeddedFleet) -> None:
    """Wait until the collector has nothing left to do."""
    async with asyncio.timeout(DEADLINE):
        await fleet.controllers["management"].idle()


def _reference(name: str, uid: str, *, block: bool) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": block}

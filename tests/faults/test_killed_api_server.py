"""A server with a data directory that is killed in the middle of a write storm, again and again.

Each writer notes what was acknowledged, the server is killed with SIGKILL at some moment, and the next one must know
all of it: nothing acknowledged is lost, nothing is half there, no version is given twice.
"""

import asyncio
import random
import signal
import sys
from pathlib import Path
from typing import Any

from clusters.embedded import EmbeddedCluster
from multimirror.kube import Client, Connection, KubeError
from multimirror.kube.resources import CONFIG_MAPS
from tests.waiting import DEADLINE

SERVE = """
import asyncio, sys, yaml
from pathlib import Path
from clusters.embedded import EmbeddedCluster

async def main(directory):
    async with EmbeddedCluster("killed", data_dir=directory) as cluster:
        draft = directory / "kubeconfig.new"
        draft.write_text(yaml.safe_dump(cluster.kubeconfig))
        draft.rename(directory / "kubeconfig")
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""
WRITERS = 8
PAYLOAD = "x" * 4000


class Record:
    """What the server acknowledged: the last answered state of each object, and what was under way."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, int] = {}
        """name -> the number in the object; -1 when its deletion was acknowledged."""
        self.attempted: dict[str, set[int]] = {}
        self.versions: list[int] = []
        self.goal = 0
        self.reached = asyncio.Event()

    def note(self, version: str) -> None:
        """A write was acknowledged."""
        self.versions.append(int(version))
        if len(self.versions) >= self.goal:
            self.reached.set()


def body(name: str, number: int) -> dict[str, Any]:
    """An object that shows whether it is whole: its number stands in it three times, far apart."""
    data = {"a": str(number), "payload": f"{number} {PAYLOAD}", "z": str(number)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def storm(client: Client, record: Record, writer: int, generation: int, rng: random.Random) -> None:
    """Create, change and delete until the server is gone."""
    number = generation * 1_000_000
    while True:
        number += 1
        name = f"w{writer}-{rng.randrange(40)}"
        record.attempted.setdefault(name, set())
        known = record.acknowledged.get(name, -1)
        try:
            if known == -1:
                record.attempted[name].add(number)
                made = await client.create(CONFIG_MAPS, body(name, number), namespace="default")
            elif rng.random() < 0.2:
                record.attempted[name].add(-1)
                await client.delete(CONFIG_MAPS, name, namespace="default")
                record.acknowledged[name], record.attempted[name] = -1, set()
                continue
            else:
                record.attempted[name].add(number)
                made = await client.replace(CONFIG_MAPS, body(name, number), namespace="default")
        except KubeError:
            return  # killed: what was under way may or may not have happened
        record.acknowledged[name], record.attempted[name] = number, set()
        record.note(made["metadata"]["resourceVersion"])


async def verify(client: Client, record: Record) -> None:
    """All that was acknowledged is there, and all that is there is whole; unknown outcomes become known."""
    listed = await client.list(CONFIG_MAPS, namespace="default")
    found = {item["metadata"]["name"]: item for item in listed.items if item["metadata"]["name"].startswith("w")}
    for name, item in found.items():
        numbers = {item["data"]["a"], item["data"]["z"], item["data"]["payload"].partition(" ")[0]}
        assert len(numbers) == 1, f"{name} is half written"
        assert item["data"]["payload"].endswith(PAYLOAD)
    for name in record.acknowledged.keys() | record.attempted.keys():
        expected = {record.acknowledged.get(name, -1)} | record.attempted.get(name, set())
        stored = int(found[name]["data"]["a"]) if name in found else -1
        assert stored in expected, f"{name}: {stored} is stored, acknowledged or under way were {sorted(expected)}"
        record.acknowledged[name], record.attempted[name] = stored, set()
    assert found.keys() <= record.acknowledged.keys()
    assert len(set(record.versions)) == len(record.versions), "a resourceVersion was given twice"
    assert int(listed.resource_version or 0) >= max(record.versions, default=0)


async def test_a_server_killed_in_a_write_storm_loses_nothing_and_shows_nothing_half(tmp_path: Path) -> None:
    rng = random.Random(20261116)
    record = Record()
    for generation in range(1, 5):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVE, str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(DEADLINE):
                assert await process.stdout.readline() == b"up\n"
            connection = Connection.from_kubeconfig(tmp_path / "kubeconfig")
            async with Client(connection, concurrency=WRITERS) as client:
                await verify(client, record)
                record.goal = len(record.versions) + rng.randrange(150, 400)
                record.reached.clear()
                async with asyncio.TaskGroup() as writers:
                    for writer in range(WRITERS):
                        seed = random.Random(rng.random())
                        writers.create_task(storm(client, record, writer, generation, seed))
                    await record.reached.wait()
                    process.send_signal(signal.SIGKILL)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    async with (
        EmbeddedCluster("again", data_dir=tmp_path) as cluster,
        Client(Connection.from_kubeconfig(cluster.kubeconfig)) as client,
    ):
        await verify(client, record)
    assert len(record.versions) > 600

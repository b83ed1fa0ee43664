"""The controller in docs/kube.md, as it stands there, at work."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from clusters.fleet import FleetOptions, open_fleet
from multimirror.kube import Client, Connection, Informer
from multimirror.kube.resources import CONFIG_MAPS
from tests.waiting import DEADLINE

GUIDE = Path(__file__).parents[2] / "docs" / "kube.md"

pytestmark = pytest.mark.cluster_kind("embedded")


async def test_the_guides_example_keeps_its_promise_and_stops_when_it_is_told() -> None:
    block = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(compile(block[1], str(GUIDE), "exec"), names)
    stop = asyncio.Event()
    async with open_fleet("embedded", FleetOptions(workers=0, nodes=False)) as fleet:
        connection = Connection.from_kubeconfig(fleet.management.kubeconfig, name="management")
        async with Client(connection) as client, Informer(client, CONFIG_MAPS) as informer:
            sizes: asyncio.Queue[str | None] = asyncio.Queue()

            def notice(change: Any) -> None:
                if change.new is not None and change.key == "default/mine":
                    sizes.put_nowait((change.new["metadata"].get("annotations") or {}).get("example.dev/size"))

            informer.add_handler(notice)
            metadata = {"name": "mine", "labels": {"example.dev/sized": ""}}
            await client.create(CONFIG_MAPS, {"metadata": metadata, "data": {"a": "1"}}, "default")
            async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
                tasks.create_task(names["keep_sizes"](connection, stop))
                while await sizes.get() != "1":
                    pass
                await client.patch(CONFIG_MAPS, "mine", {"data": {"b": "2"}}, "default")
                while await sizes.get() != "2":
                    pass
                stop.set()

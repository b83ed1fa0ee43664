"""A day in a minute: every watch expires again and again while the world changes; nothing is lost, nothing grows.

The short run belongs to every test run. `make soak` takes a minute, and prints what it saw.
"""

import asyncio
import gc
import os
import random
import tracemalloc
from collections import Counter
from typing import Any

from multimirror.kube import Change, Client, Controller, Informer
from tests.unit.kube.servers import THINGS, Things, running

SECONDS = float(os.environ.get("MULTIMIRROR_SOAK_SECONDS", "4"))
NAMES = [f"thing-{number}" for number in range(200)]


class Follower:
    """What a user of the cache believes, from nothing but what it was told."""

    def __init__(self, informer: Informer) -> None:
        self.believes: dict[str, str] = {}
        self.faults: list[str] = []
        self.told: Counter[str] = Counter()
        informer.add_handler(self)

    def __call__(self, change: Change) -> None:
        name, version = change.object["metadata"]["name"], change.object["metadata"]["resourceVersion"]
        known = self.believes.get(name)
        if change.new is None:
            self.told["deleted"] += 1
            if known is None:
                self.faults.append(f"{name} deleted twice")
            self.believes.pop(name, None)
        elif change.old is None:
            self.told["added"] += 1
            if known is not None:
                self.faults.append(f"{name} added twice")
            self.believes[name] = version
        else:
            self.told["changed"] += 1
            if known is None or int(known) >= int(version):
                self.faults.append(f"{name} went from {known} to {version}")
            self.believes[name] = version


async def change_the_world(things: Things, until: float) -> int:
    chance = random.Random(7)
    changes = 0
    while asyncio.get_running_loop().time() < until:
        for _ in range(10):
            name = chance.choice(NAMES)
            if name in things.objects and chance.random() < 0.3:
                await things.remove(name)
            else:
                uid = things.objects.get(name, {}).get("metadata", {}).get("uid") or f"{name}-{changes}"
                await things.put(name, metadata={"uid": uid}, spec={"x": changes, "padding": "y" * 500})
            changes += 1
        await asyncio.sleep(0.01)
    return changes


async def expire_watches(things: Things, until: float, every: float) -> Counter[str]:
    """In turns: the server forgets the past (410), the connection breaks, the server ends the watch."""
    seen: Counter[str] = Counter()
    while (now := asyncio.get_running_loop().time()) < until:
        await asyncio.sleep(min(every, until - now))
        kind = ("expired", "broken", "ended")[seen.total() % 3]
        seen[kind] += 1
        if kind == "expired":
            things.compact()
            async with things.changed:
                things.changed.notify_all()
        elif kind == "broken":
            things.break_watches()
        else:
            await things.end_watches()
    return seen


async def test_no_final_state_is_lost_or_told_twice_and_memory_does_not_grow() -> None:
    async with running() as server, Client(server.connection()) as client:
        things = Things(server)
        reconciled: dict[str, Any] = {}

        async def reconcile(key: str) -> None:
            obj = informer.get(key)
            reconciled[key] = None if obj is None else obj["metadata"]["resourceVersion"]

        controller = Controller("soak", reconcile)
        informer = Informer(client, THINGS)
        informer.add_handler(lambda change: controller.queue.add(change.key))
        follower = Follower(informer)
        loop = asyncio.get_running_loop()
        sizes: list[int] = []
        changes, expiries = 0, Counter[str]()
        tracemalloc.start()
        try:
            async with asyncio.TaskGroup() as tasks, informer:
                tasks.create_task(controller.run())
                await informer.synced()
                for _ in range(4):  # the first quarter warms up
                    until = loop.time() + SECONDS / 4
                    world = asyncio.create_task(change_the_world(things, until))
                    expiries += await expire_watches(things, until, every=min(1.0, SECONDS / 12))
                    changes += await world
                    await things.put("the-end", metadata={"uid": f"end-{changes}"})
                    things.server.seen.clear()  # the test's own memory
                    things.compact()
                    gc.collect()
                    sizes.append(tracemalloc.get_traced_memory()[0])
                async with asyncio.timeout(60):
                    while informer.resource_version != str(things.version):
                        await asyncio.sleep(0.05)
                await controller.queue.idle()
                controller.stop()
        finally:
            tracemalloc.stop()
        truth = {name: obj["metadata"]["resourceVersion"] for name, obj in things.objects.items()}
        print(
            f"{changes} changes, expiries {dict(expiries)}, {things.lists} lists, told {dict(follower.told)}, {sizes=}"
        )
        assert follower.faults == []
        assert follower.believes == truth
        assert {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in informer.list()} == truth
        assert {key: version for key, version in reconciled.items() if version} == {
            f"default/{name}": version for name, version in truth.items()
        }
        assert sizes[-1] < sizes[0] * 1.5 + 500_000

"""Short stories of queues that share, told by hand: in each, somebody is in somebody's way.

With them a dispatcher that is broken is found quickly, where stories told at random would need many. What is checked is
the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.unit.scheduling.sharing_stories import AMPLE, CPU, GPU, Sharing
from tests.unit.scheduling.sharing_world import LOST_SECONDS, SharingWorld
from tests.unit.shell.world import WORKERS

Json = dict[str, Any]
_ONE_WORKER: Final = {"w1": {CPU: 4, GPU: 4}, "w2": {CPU: 0, GPU: 0}}


def a_queue(own: int, *preempts: str, lend: int | None = None, borrow: int | None = None, **more: Any) -> Json:
    quota = {"resources": own, "lend": lend, "borrow": borrow}
    texts = {part: {CPU: str(amount)} for part, amount in quota.items() if amount is not None}
    return {"cohort": "c", "quota": texts, "preempts": list(preempts), **more}


class Told(Sharing):
    longest_unrest = 300.0
    only = ""


def limits_are_reached(story: Sharing) -> None:
    """Of what is borrowed, and of what is lent; who came first is served first."""
    world = story.world
    for _ in range(2):
        for name in ("a", "d"):
            for _ in range(3):
                world.submit(name)
        world.pass_time(2)
    story.check()


def own_quota_is_wanted_back(story: Sharing) -> None:
    """From one that has not run for long, and takes its time to stop; others wait as well."""
    world = story.world
    for cpus in (1, 2, 1, 1, 1):
        world.submit("b", cpus=cpus)
        world.pass_time(2)
    world.drain_seconds = 20.0
    world.submit("a", cpus=2)
    world.pass_time(1)
    for _ in range(3):
        world.submit("d")
    world.pass_time(70)
    story.check()


def nothing_of_it_is_borrowed(story: Sharing) -> None:
    """There is quota, and no room: who has it is within its own quota, and some may not be stopped at all."""
    world = story.world
    world.submit("b", preemptible=False)
    for _ in range(3):
        world.submit("b", priority=1)
    world.pass_time(3)
    for name in ("a", "b"):
        world.submit(name, priority=3)
    world.pass_time(10)
    story.check()


def equals_wait_for_each_other(story: Sharing) -> None:
    for _ in range(2):
        story.world.submit("a")
    story.world.pass_time(30)
    story.check()


def the_important_comes_later(story: Sharing) -> None:
    """And wants back what others have borrowed, before those of its queue that have waited for longer."""
    world = story.world
    for _ in range(4):
        world.submit("b")
    world.pass_time(2)
    for priority in (0, 0, 2):
        world.submit("a", priority=priority)
    world.pass_time(20)
    story.check()


def a_worker_is_out_of_reach_for_a_moment(story: Sharing) -> None:
    """For less time than its queue waits before Jobs are moved: they run on there."""
    world = story.world
    world.pass_time(40)
    for _ in range(4):
        world.submit("a")
    world.pass_time(10)
    world.set_link("w1", up=False)
    world.pass_time(LOST_SECONDS - 22)
    world.set_link("w1", up=True)
    world.pass_time(20)
    story.check()


def nodes_are_full(story: Sharing) -> None:
    """There is as much left as is asked for, and no node has it."""
    for _ in range(5):
        story.world.submit("a", cpus=2)
        story.world.pass_time(2)
    story.check()


@dataclass(frozen=True)
class Scene:
    queues: dict[str, Json]
    capacities: dict[str, dict[str, int]]
    happens: Callable[[Sharing], None]
    nodes: dict[str, list[dict[str, int]]] | None = None


_MOVED: Final = {"after": f"{LOST_SECONDS:.0f}s", "action": "Redispatch"}
_SHARED: Final = {"a": a_queue(2, "Reclaim"), "b": a_queue(1, "Reclaim", minRuntime="60s"), "d": a_queue(3)}
STORIES: Final = [
    Scene({"a": a_queue(2, borrow=0), "b": a_queue(2, lend=1), "d": a_queue(2)}, AMPLE, limits_are_reached),
    Scene(_SHARED, _ONE_WORKER, own_quota_is_wanted_back),
    Scene(_SHARED, AMPLE, own_quota_is_wanted_back),
    Scene({"a": a_queue(4, "Reclaim"), "b": a_queue(4, "Priority")}, _ONE_WORKER, nothing_of_it_is_borrowed),
    Scene({"a": a_queue(1, "Priority")}, AMPLE, equals_wait_for_each_other),
    Scene({"a": a_queue(1, "Reclaim"), "b": a_queue(3)}, AMPLE, the_important_comes_later),
    Scene({"a": a_queue(4, onWorkerLost=_MOVED)}, AMPLE, a_worker_is_out_of_reach_for_a_moment),
    Scene({"a": a_queue(20)}, AMPLE, nodes_are_full, {worker: [{CPU: 3}, {CPU: 3}] for worker in WORKERS}),
]


def tell(number: int, only: str = "") -> list[str]:
    """One of them, to its end, or until something is wrong with this property, or any. Gives what was wrong."""
    scene = STORIES[number]
    world = SharingWorld(scene.queues, {}, scene.capacities, scene.nodes)
    try:
        story = Told()
        story.world, story.only, world.watch.double = world, only, 1
        world.pass_time(1)
        scene.happens(story)
        story.end_quietly()
    except AssertionError:
        assert world.watch.violations
    finally:
        world.close()
    return world.watch.violations

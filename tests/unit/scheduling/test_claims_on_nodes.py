"""Claims on a worker whose nodes are known: nodes are kept, and what becomes free on them adds up."""

from dataclasses import replace
from unittest import mock

from multimirror.api.placement import Claim
from multimirror.scheduling.claims import Claims
from tests.unit.scheduling.builders import placed, queue, ref
from tests.unit.scheduling.test_free_plan import NOW, Scene, Worker


def fragmented() -> Scene:
    """Four nodes of eight gpu: four are free on the first and three on each of the others. A pod of eight has no place,
    though 13 are free."""
    found = Scene(Worker(nodes=4), q=queue(headWait="10s"))
    for node, gpu in enumerate((4, 5, 5, 5)):
        found.runs(f"there-{node}", gpu, node)
    found.waits("big", 8)
    found.waits("four", 4)
    found.waits("three", 3)
    return found


def test_small_pods_go_to_other_nodes_than_the_one_that_is_kept() -> None:
    found = fragmented()
    assert placed(found.steps()) == ["three"]
    reason, why = found.words("four")
    assert reason == "Claimed"
    assert "but kept for team/big" in why


def test_the_sum_alone_would_not_keep_it() -> None:
    with mock.patch.object(Claims, "kept_in", lambda self, worker, free: free):
        assert "four" in placed(fragmented().steps())


def test_it_is_placed_when_its_node_is_free() -> None:
    found = fragmented()
    found.running.pop(0)
    found.usage.put(ref("there-0"), None)
    found.workers[0].pods.pop(0)
    found.waiting[0] = replace(found.waiting[0], claim=Claim("w1", NOW - 60))
    assert placed(found.steps()) == ["big", "three"]

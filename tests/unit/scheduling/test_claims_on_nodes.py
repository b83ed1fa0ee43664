"""Claims on a worker whose nodes are known: nodes are kept, and what becomes free on them adds up."""

from dataclasses import replace
from unittest import mock

from multimirror.api.placement import Claim
from multimirror.scheduling.claims import Claims, Held
from multimirror.scheduling.free_room import FreeRoom
from multimirror.scheduling.waiting import Waiting
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


def test_what_is_kept_on_nodes_is_not_found_anew_for_everybody_who_waits() -> None:
    """It costs a look at all pods there."""

    def looks(waiters: int) -> int:
        found = fragmented()
        found.waiting = [each for each in found.waiting if each.name == "big"]
        for number in range(waiters):
            found.waiting.append(replace(found.waits(f"four-{number}", 4), run_seconds=3600.0 + number))
            del found.waiting[-2]
        with mock.patch.object(FreeRoom, "keep", autospec=True, side_effect=FreeRoom.keep) as keep:
            reasons = [step.decision.reason for step in found.steps()]
        assert reasons == ["NoWorkerFits", *["Claimed"] * waiters]
        return keep.call_count

    assert looks(50) == looks(1)


def test_two_claims_on_a_worker_keep_the_same_nodes_in_whatever_order_they_were_lifted() -> None:
    found = fragmented()
    found.waits("pair", 5, 2)
    snapshot = found.workers[0].snapshot(found.usage)
    helds = [
        Held(waiter, 0, 0.0, Claim("w1", float(since)), "w1", None)
        for since, waiter in enumerate(
            Waiting([each])._waiters[each.ref] for each in found.waiting if each.name in ("big", "pair")
        )
    ]
    tables = []
    for order in (helds, helds[::-1]):
        claims = Claims(NOW)
        for number, held in enumerate(order):
            claims.put(
                replace(held, waiter=held.waiter._replace(candidate=replace(held.candidate, queue=f"q{number}")))
            )
        left = claims.kept_in("w1", snapshot.free)
        assert left is not None
        tables.append([node.free for _, node in left.table.nodes()])
    assert tables[0] == tables[1]

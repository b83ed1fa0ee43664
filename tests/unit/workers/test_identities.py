"""Who is which cluster: recorded at first contact, and nobody else's from then on."""

import asyncio
from typing import Any

import pytest

from multimirror.api import WORKER_CLUSTERS
from multimirror.batch import Json
from multimirror.kube import Resource
from multimirror.workers.identities import Claim, Identities
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.workers.stage import JOBS, Stage, a_copy, a_stage


def identities(**recorded: str) -> Identities:
    return Identities(lambda: recorded, rank=lambda name: name)


def test_the_first_to_come_keeps_it() -> None:
    found = identities(a="", b="")
    assert found.claim("a", "x") == Claim("")
    assert found.claim("b", "x") == Claim("a")
    assert found.claim("b", "y") == Claim("")


def test_what_was_recorded_for_another_is_not_given_to_a_newcomer_whoever_comes_first() -> None:
    found = identities(victim="x", newcomer="")
    assert found.claim("newcomer", "x") == Claim("victim")
    assert found.claim("victim", "x") == Claim("")
    assert found.claim("newcomer", "x") == Claim("victim")


def test_a_cluster_that_was_installed_anew_is_accepted_but_not_as_another() -> None:
    found = identities(a="x", b="y")
    assert found.claim("a", "y") == Claim("b")
    assert found.claim("a", "z") == Claim("")
    assert found.claim("b", "x") == Claim(""), "nobody is that any more"


def test_two_that_have_changed_places_are_both_used() -> None:
    found = identities(a="x", b="y")
    assert found.claim("a", "y") == Claim("b")
    assert found.claim("b", "x") == Claim("")
    assert found.claim("a", "y") == Claim("")


def test_one_that_has_it_recorded_takes_it_from_one_that_only_claims_it() -> None:
    recorded = {"a": "", "b": ""}
    found = Identities(lambda: recorded, rank=lambda name: name)
    assert found.claim("b", "x") == Claim("")
    recorded["a"] = "x"
    assert found.usurpers("a", "x") == ["b"]
    assert found.claim("a", "x") == Claim("", ("b",))
    assert found.claim("b", "x") == Claim("a")


def test_of_two_with_the_same_record_the_older_keeps_it() -> None:
    assert identities(a="x", b="x").claim("b", "x") == Claim("a")
    found = identities(a="x", b="x")
    assert found.claim("a", "x") == Claim("", ("b",))


def test_one_that_is_gone_has_nothing() -> None:
    recorded = {"a": "x", "b": ""}
    found = Identities(lambda: recorded, rank=lambda name: name)
    assert found.claim("b", "x") == Claim("a")
    del recorded["a"]
    found.forget("a")
    assert found.claim("b", "x") == Claim("")


async def record(stage: Stage, name: str, **status: Any) -> None:
    cluster = stage.management.objects[WORKER_CLUSTERS.path(), "", name]
    await stage.management.put(WORKER_CLUSTERS, {**cluster, "status": status})


@virtual_time
async def test_after_a_restart_the_victim_keeps_its_identity_although_the_liar_answers_first() -> None:
    async with a_stage() as stage:
        liar, victim = (
            await stage.add("a-liar", identity="the-victim"),
            await stage.add("victim", identity="the-victim"),
        )
        await record(stage, "victim", identity="the-victim")
        victim.delays["GET"] = 3.0
        await stage.connected("victim")
        await stage.lost("a-liar")
        assert stage.worker("a-liar").state.reason == "SameCluster"
        assert stage.worker("victim").state.identity == "the-victim"
        await asyncio.sleep(120)
        assert stage.worker("victim").session is not None
        liar.identity = "itself"
        await stage.connected("a-liar")


@virtual_time
async def test_a_worker_that_becomes_another_one_in_mid_session_is_refused() -> None:
    async with a_stage() as stage:
        liar, _ = await stage.add("liar"), await stage.add("victim")
        await stage.connected("liar")
        await stage.connected("victim")
        liar.identity = "cluster-victim"
        await stage.lost("liar")
        assert stage.worker("liar").state.reason == "SameCluster"
        assert stage.worker("liar").state.identity == "cluster-liar", "what is written down stays"
        assert stage.worker("victim").session is not None


@virtual_time
async def test_what_the_leader_wrote_down_ends_what_a_standby_believed() -> None:
    async with a_stage() as stage:
        await stage.add("east", identity="the-one")
        await stage.connected("east")
        await stage.add("twin", identity="the-one")
        await stage.lost("twin")
        await record(stage, "twin", identity="the-one")
        await stage.connected("twin")
        await stage.lost("east")
        assert stage.worker("east").state.reason == "SameCluster"


@pytest.mark.parametrize("first", ["east", "west"])
def test_two_whose_kubeconfigs_were_exchanged_are_connected_again(first: str) -> None:
    @virtual_time
    async def story() -> None:
        async with a_stage() as stage:
            clusters = {name: await stage.add(name) for name in ("east", "west")}
            for name in clusters:
                await stage.connected(name)
                await record(stage, name, identity=f"cluster-{name}")
            second = "west" if first == "east" else "east"
            await stage.set_secret(first, clusters[second].kubeconfig())
            await stage.lost(first)
            await stage.set_secret(second, clusters[first].kubeconfig())
            await stage.until(lambda: stage.worker(first).state.identity == f"cluster-{second}")
            await stage.connected("east")
            await stage.connected("west")

    story()


def signed_for(_: Resource, identity: str, obj: Json) -> bool:
    return bool(obj["metadata"]["name"] == f"made-for-{identity}")


@virtual_time
async def test_what_was_made_before_another_cluster_was_noticed_is_ours() -> None:
    async with a_stage(made_by_us=signed_for) as stage:
        cluster = await stage.add("east", identity="before")
        worker = await stage.connected("east")
        assert list(worker.state.former) == []
        cluster.identity = "after"
        await cluster.put(JOBS, a_copy("made-for-before"))
        await stage.until(lambda: worker.state.identity == "after")
        assert worker.state.former == ("before",)
        assert len(worker.copies("uid-of-train")) == 1


@virtual_time
async def test_and_it_is_ours_after_a_restart_too_when_only_the_new_one_is_seen() -> None:
    async with a_stage(made_by_us=signed_for) as stage:
        status = {"identity": "after", "formerIdentities": ["before"]}
        spec = {"kubeconfig": {"secret": {"name": "east"}}}
        await stage.management.put(WORKER_CLUSTERS, {"metadata": {"name": "east"}, "spec": spec, "status": status})
        cluster = await stage.add("east", identity="after")
        await cluster.put(JOBS, a_copy("made-for-before"))
        await cluster.put(JOBS, a_copy("made-for-somebody", uid="uid-of-another"))
        worker = await stage.connected("east")
        await stage.until(lambda: len(worker.copies("uid-of-train")) == 1)
        assert worker.copies("uid-of-another") == []
        assert worker.state.former == ("before",), "it is written down again, and stays"


@virtual_time
async def test_of_those_that_came_and_went_the_one_before_is_known_though_it_was_the_first_of_all() -> None:
    async with a_stage(made_by_us=signed_for) as stage:
        cluster = await stage.add("east", identity="a")
        worker = await stage.connected("east")
        for identity in ("b", "c", "a"):
            cluster.identity = identity
            await stage.until(lambda identity=identity: worker.state.identity == identity)  # type: ignore[misc]
        cluster.identity = "d"
        await cluster.put(JOBS, a_copy("made-for-a"))
        await stage.until(lambda: worker.state.identity == "d")
        assert worker.state.former == ("c", "a")
        assert len(worker.copies("uid-of-train")) == 1

"""A session follows a list of kinds; one that nobody has asked for yet costs nothing."""

from multimirror.kube import Resource
from multimirror.kube.resources import JOBS
from multimirror.workers import copies_of
from tests.unit.kube.virtual_time import virtual_time
from tests.unit.workers.stage import ORIGIN, a_copy, a_stage

SETS = Resource("example.dev", "v1", "sets", "Set")
UID = "uid-of-train"


@virtual_time
async def test_another_kind_is_followed_from_the_moment_that_somebody_asks() -> None:
    async with a_stage(also_followed=(copies_of(SETS, ORIGIN, at_once=False),)) as stage:
        cluster = await stage.add("east")
        await cluster.put(SETS, a_copy())
        worker = await stage.connected("east")
        session = worker.session
        assert session is not None
        assert (session.follows("team-a"), session.follows("team-a", SETS)) == (True, False)
        assert cluster.count("GET", "sets") == 0

        stage.workers.follow("east", "team-a", SETS)
        stage.workers.follow("east", "team-b", SETS)
        await stage.until(lambda: len(worker.copies(UID, SETS)) == 1)
        assert worker.copies(UID) == []
        assert stage.workers.contact("east", "team-b", SETS).connected
        assert cluster.count("GET", "sets") == 1, "one watch for all namespaces"
        assert [(name, resource) for name, resource, _ in stage.seen.copies] == [("east", SETS)]
        assert list(session.all_copies()) == []
        assert len(list(session.all_copies(SETS))) == 1


@virtual_time
async def test_a_kind_that_cannot_be_followed_is_no_trouble_of_the_others() -> None:
    async with a_stage(also_followed=(copies_of(SETS, ORIGIN, at_once=False),)) as stage:
        cluster = await stage.add("east", namespaces=[{"name": "team-a"}])
        cluster.denied |= {("watch", "sets", ""), ("list", "sets", "")}
        worker = await stage.connected("east")
        session = worker.session
        stage.workers.follow("east", "team-a", SETS)
        await stage.until(lambda: stage.workers.contact("east", "team-a", SETS).lost_since is not None)
        assert worker.session is session
        assert stage.workers.contact("east", "team-a", JOBS).connected
        assert list(worker.state.unfollowed) == [("sets.example.dev", "team-a")]

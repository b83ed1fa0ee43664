"""`/explain` behind a Service: whichever of two replicas is asked, there is an answer."""

from functools import partial

import aiohttp

from multimirror.cli.process import explain
from multimirror.dispatcher import Dispatcher
from multimirror.kube.health import HealthServer
from tests.e2e.dispatching import Json, Stage, a_dispatcher, cluster_of, running
from tests.waiting import eventually


async def asked(dispatcher: Dispatcher, key: str) -> tuple[int, Json]:
    """As through `kubectl port-forward`."""
    health = HealthServer("127.0.0.1", 0)
    health.add_question("/explain", partial(explain, dispatcher))
    async with health, aiohttp.ClientSession() as session:
        address = f"http://127.0.0.1:{health.port}/explain"
        async with session.get(address, params={"job": key}) as answer:
            return answer.status, await answer.json()


async def test_both_replicas_explain_a_job_and_say_which_of_them_leads(stage: Stage) -> None:
    async with stage.dispatcher() as leader, stage.replica("standby") as replica:
        standby = await a_dispatcher(replica.client, replica.options)
        async with standby.following():
            await standby.synced()
            await stage.submit(never_finish="true")
            job = await stage.until(running)
            answers = [await asked(each, f"{stage.namespace}/job") for each in (leader, standby)]
            assert [(status, told["leads"]) for status, told in answers] == [(200, True), (200, False)]
            for _, told in answers:
                assert (told["state"], told["cluster"], told["connected"]) == ("Assigned", cluster_of(job), True)

            await stage.set_queue(workers={"names": ["nowhere"]})
            await stage.submit("stuck")

            async def why() -> Json:
                return (await asked(standby, f"{stage.namespace}/stuck"))[1]

            told = await eventually(why, lambda told: "nowhere" in told.get("message", ""))
            assert (told["state"], told["leads"]) == ("Waiting", False)
            assert (await asked(standby, f"{stage.namespace}/other"))[0] == 404

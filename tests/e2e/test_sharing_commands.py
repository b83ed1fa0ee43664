"""What the commands say about queues that share, at a dispatcher at work: `why`, `queue`, `what-if`, and what they do
not do.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from multimirror.cli.process import explain, queue, what_if
from multimirror.kube.health import HealthServer
from tests.e2e.cli.operating import Answer, says
from tests.e2e.dispatching import Stage, running
from tests.e2e.sharing import Cohort, Json, is_marked, stops_after, stops_at_once
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("impatient")
Command = Callable[..., Awaitable[Answer]]


@contextlib.asynccontextmanager
async def terminal(stage: Stage) -> AsyncIterator[Command]:
    """Somebody at a terminal, with a dispatcher at work whose health server answers as that of `multimirror run`."""
    health = HealthServer("127.0.0.1", 0)
    kubeconfig = str(stage.fleet.kubeconfig_file("management"))
    async with stage.dispatcher() as dispatcher:
        for path, question in (("/explain", explain), ("/queue", queue), ("/what-if", what_if)):
            health.add_question(path, partial(question, dispatcher))
        async with health:
            where = ("--kubeconfig", kubeconfig, "--dispatcher", f"http://127.0.0.1:{health.port}")

            async def command(*arguments: str) -> Answer:
                answer = await asyncio.to_thread(says, *arguments, *where)
                assert answer.code == 0, answer
                return answer

            yield command


async def asked(command: Command, *arguments: str, so: Callable[[Any], object] = bool) -> Json:
    """Its answer as JSON, once it is so."""

    async def ask() -> Json:
        found: Json = (await command(*arguments, "-o", "json")).json
        return found

    return await eventually(ask, so)


async def test_why_says_the_sentence_the_position_and_what_to_do(stage: Stage, cohort: Cohort) -> None:
    await cohort.share(preempts=[], maxPriority=100)
    async with terminal(stage) as command:
        await cohort.b_borrows()
        for name, priority in (("late", 10), ("early", 50)):
            await cohort.submit(name, cohort.a, priority=priority)
            await cohort.told("Waiting", "cpu", name)
        told = await asked(command, "why", "late", "-n", stage.namespace, so=lambda told: told["position"] == 2)
        assert (told["state"], told["queue"], told["pending"], told["reason"]) == ("Waiting", cohort.a, 2, "CohortFull")
        assert f"cohort {cohort.name} has 0 left: queue {cohort.b} uses 2 of its 1" in told["why"]
        assert "preempts" in told["remedy"]
        text = (await command("why", "job/late", "-n", stage.namespace)).out
        assert text.startswith(f"Job {stage.namespace}/late waits (CohortFull): it asks for 1 cpu")
        assert "It is second of 2 in its queue" in text
        assert "To do: " in text
        await cohort.finish("b-1", "early", "b-2", "late")


async def test_queue_lists_the_order_with_reasons_and_what_it_borrows_and_lends(stage: Stage, cohort: Cohort) -> None:
    await cohort.share(preempts=[], maxPriority=100)
    async with terminal(stage) as command:
        await cohort.b_borrows()
        for name, priority in (("late", 10), ("early", 50)):
            await cohort.submit(name, cohort.a, priority=priority)
            await cohort.told("Waiting", "cpu", name)
        told = await asked(
            command, "queue", cohort.b, so=lambda told: (told["borrowed"] or {}).get("cpu") == "1" and told["share"]
        )
        assert (told["own"]["cpu"], told["used"]["cpu"], told["share"]) == ("1", "2", 500)
        assert "2 cpu, 1 its own" in told["says"][0]
        assert told["order"] == []
        told = await asked(command, "queue", cohort.a, so=lambda told: (told["lent"] or {}).get("cpu") == "1")
        names = [f"{stage.namespace}/{name}" for name in ("early", "late")]
        assert [(each["position"], each["job"]) for each in told["order"]] == list(enumerate(names, 1))
        assert {each["reason"] for each in told["order"]} == {"CohortFull"}
        text = (await command("queue", cohort.a)).out
        assert text.startswith(f"Queue {cohort.a} of cohort {cohort.name}: 2 wait, 0 run")
        assert text.index("early") < text.index("late")
        await cohort.finish("b-1", "early", "b-2", "late")


async def test_what_if_names_who_would_be_stopped_and_writes_nothing(stage: Stage, cohort: Cohort) -> None:
    """In queue b it would wait, in a its own quota would be taken back for it."""
    await cohort.share()
    async with terminal(stage) as command:
        await cohort.b_borrows()
        await cohort.submit("asks", cohort.b)
        await cohort.told("Waiting", "cpu", "asks")
        job, before = await stage.job("asks"), len(list(stage.history.record.writes("dispatcher", "management")))
        told = await asked(command, "what-if", "asks", "-n", stage.namespace, "--queue", cohort.a)
        assert (told["placed"], told["reason"], told["queue"]) == (False, "WaitsForVictims", cohort.a)
        ((victim, reason),) = [(each["job"], each["reason"]) for each in told["stops"]]
        assert (victim in {f"{stage.namespace}/b-1", f"{stage.namespace}/b-2"}, reason) == (True, "Reclaim")
        text = (await command("what-if", "asks", "-n", stage.namespace, "--queue", cohort.a)).out
        assert f"It would stop Job {victim} on " in text
        told = await asked(command, "what-if", "asks", "-n", stage.namespace, "--cpu", "40")
        assert (told["reason"], told["stops"]) == ("NeverFits", [])
        assert "can have 2 at most" in told["why"]
        after = [
            each for each in list(stage.history.record.writes("dispatcher", "management"))[before:] if of_jobs(each)
        ]
        assert after == [], "it was planned, and nothing of it done"
        assert (await stage.job("asks"))["metadata"]["resourceVersion"] == job["metadata"]["resourceVersion"]
        assert not any([is_marked(await stage.job(name)) for name in ("b-1", "b-2")])
        await cohort.finish("b-1", "b-2", "asks")


async def test_what_if_with_a_higher_priority_names_the_lower_one(stage: Stage, cohort: Cohort) -> None:
    await cohort.share(preempts=["Priority"], maxPriority=100)
    async with terminal(stage) as command:
        await cohort.run("a-low", cohort.a, priority=20)
        await cohort.run("b-low", cohort.b)
        await cohort.submit("asks", cohort.a, priority=20)
        await cohort.told("Waiting", "cpu", "asks")
        told = await asked(command, "what-if", "asks", "-n", stage.namespace, "--priority", "50")
        assert [(each["job"], each["reason"]) for each in told["stops"]] == [(f"{stage.namespace}/a-low", "Priority")]
        assert running(await stage.job("a-low"))
        await cohort.finish("a-low", "b-low", "asks")


async def test_why_names_the_victims_that_are_waited_for(stage: Stage, cohort: Cohort) -> None:
    await cohort.share()
    async with terminal(stage) as command:
        borrowers = await cohort.b_borrows(change=stops_after(3))
        await cohort.submit("owner", cohort.a)
        victim = await cohort.victim(*borrowers)
        told = await asked(
            command, "why", "owner", "-n", stage.namespace, so=lambda told: "1 Job is being stopped" in str(told["why"])
        )
        assert (told["reason"], told["position"]) == ("WaitsForVictims", 1)
        assert f"{stage.namespace}/{victim}" in told["why"]
        await cohort.finish("owner", *borrowers)


def of_jobs(exchange: Any) -> bool:
    return bool(exchange.call.resource.startswith("jobs"))


async def test_the_first_that_waits_hears_when_what_runs_must_have_ended(stage: Stage, cohort: Cohort) -> None:
    """Its queue has started nothing, so nobody could say by that; nor of the second."""

    def ten_minutes(job: Json) -> None:
        job["spec"]["activeDeadlineSeconds"] = 600
        stops_at_once(job)

    await cohort.share(preempts=[])
    async with terminal(stage) as command:
        await cohort.b_borrows(change=ten_minutes)
        for name in ("first", "second"):
            await cohort.submit(name, cohort.a)
            await cohort.told("Waiting", "cpu", name)
        told = await asked(
            command, "why", "first", "-n", stage.namespace, so=lambda told: told["estimateSeconds"] is not None
        )
        assert 500 < told["estimateSeconds"] <= 600
        text = " ".join((await command("why", "job/first", "-n", stage.namespace)).out.split())
        assert "first of 2 in its queue; starts in about 10 min (then enough of what runs must have ended" in text
        (first, second) = (await asked(command, "queue", cohort.a, so=lambda told: len(told["order"] or ()) == 2))[
            "order"
        ]
        assert "estimateSeconds" in first
        assert "estimateSeconds" not in second
        await cohort.finish("b-1", "first", "b-2", "second")

"""What queues that share say of themselves, on whole fleets: the event Borrowing, and since when they are held."""

import pytest

from multimirror.api import MIRROR_QUEUES
from multimirror.kube.resources import EVENTS
from tests.e2e.dispatching import Stage
from tests.e2e.sharing import Cohort
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("impatient")


async def test_a_queue_that_begins_to_borrow_says_so_and_one_that_is_held_since_when(
    stage: Stage, cohort: Cohort
) -> None:
    async def messages() -> list[str]:
        events = (await stage.management.list(EVENTS, "default")).items
        about = [each for each in events if each["involvedObject"]["name"] == cohort.b]
        return [each["message"] for each in about if each["reason"] == "Borrowing"]

    await cohort.share()
    async with stage.dispatcher():
        await cohort.b_borrows()
        (told,) = await eventually(messages)
        assert told == f"it uses 2 cpu, 1 its own; 1 may be taken back at any time, by queue {cohort.a} first"
        await stage.management.patch(MIRROR_QUEUES, cohort.b, {"spec": {"hold": "Hold"}})
        await cohort.submit("b-3", cohort.b)
        await cohort.told(
            "Waiting", rf"queue {cohort.b} is held \(spec\.hold is Hold\) since .*Z: .*1 Job waits", "b-3"
        )
        await stage.management.patch(MIRROR_QUEUES, cohort.b, {"spec": {"hold": "None"}})
        await cohort.finish("b-1", "b-2", "b-3")

"""What pods write, as a user reads it from the management cluster: all of it, in order, to the end.

The kubelet cuts a container's log into files of 10 MiB: who follows sees every line, who comes later what is still
there.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.kind.installation import Installation, Stage, a_stage
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
LINES: Final = 120_000
"""Of a hundred characters: more than the kubelet keeps in one file."""
_PADDING: Final = "x" * 92


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(installation: Installation) -> AsyncIterator[Stage]:
    async with a_stage(installation) as stage:
        yield stage


async def _followed(stage: Stage, name: str) -> list[str]:
    """`multimirror logs -f`, to its own end."""
    shown = await stage.installation.done("logs", f"job/{name}", "-f", "-n", stage.namespace)
    return shown.out.splitlines()


async def test_who_follows_misses_no_line_while_the_kubelet_rotates_the_log(scene: Stage) -> None:
    wait = "echo ready; until [ -e /tmp/go ]; do sleep 0.1; done"  # the first file may be gone before a follower comes
    write = f"i=0; while [ $i -lt {LINES} ]; do echo $i {_PADDING}; i=$((i+1)); done; echo the end"
    await scene.create(scene.a_job("much", "sh", "-c", f"{wait}; {write}"))
    worker = await scene.worker_of("much")
    await eventually(lambda: scene.status("much"), lambda status: status.get("ready"))
    async with (
        asyncio.timeout(300),
        scene.installation.reading("logs", "job/much", "-f", "-n", scene.namespace) as output,
    ):
        assert await output.readline() == b"ready\n"
        await scene.installation.kubectl_done(
            "exec", "-n", scene.namespace, "job/much", "--", "touch", "/tmp/go", on=worker
        )
        lines = (await output.read()).decode().splitlines()
    assert lines[-1] == "the end"
    numbers = [int(line.split(" ", 1)[0]) for line in lines[:-1]]
    assert numbers == list(range(LINES))
    assert (await scene.ended("much"))["succeeded"] == 1


async def test_who_follows_sees_retries_to_the_end_of_the_job(scene: Stage) -> None:
    await scene.create(scene.a_job("retried", "sh", "-c", "echo try; exit 1", backoffLimit=1))
    await eventually(lambda: scene.status("retried"), lambda status: status.get("active") or status.get("failed"))
    async with asyncio.timeout(120):
        lines = await _followed(scene, "retried")
    assert [line.rpartition(" ")[2] for line in lines] == ["try", "try"]
    assert (await scene.ended("retried"))["failed"] == 2


async def test_the_log_of_one_index_is_that_index_alone(scene: Stage) -> None:
    indexed: dict[str, Any] = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    await scene.create(scene.a_job("indexed", "sh", "-c", "echo I am $JOB_COMPLETION_INDEX", **indexed))
    await scene.ended("indexed")
    shown = await scene.installation.done("logs", "job/indexed", "--index", "1", "-n", scene.namespace)
    assert shown.out == "I am 1\n"


async def test_a_container_that_was_restarted_has_the_log_of_its_life_before(scene: Stage) -> None:
    pod = {"restartPolicy": "OnFailure"}
    script = "echo somebody was here; sleep 3; exit 1"
    await scene.create(scene.a_job("restarted", "sh", "-c", script, pod=pod, backoffLimit=6))
    worker = await scene.worker_of("restarted")

    async def restarts() -> int:
        with contextlib.suppress(LookupError, ValueError):
            (found,) = await scene.pods("restarted", worker)
            return int(found["status"]["containerStatuses"][0]["restartCount"])
        return 0

    await eventually(restarts)
    shown = await scene.installation.done("logs", "job/restarted", "--previous", "-n", scene.namespace)
    assert shown.out == "somebody was here\n"

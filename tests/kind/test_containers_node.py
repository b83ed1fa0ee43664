"""The only node of a worker is restarted, as by a power failure, while Jobs run there."""

from multimirror.batch import find_condition
from multimirror.kube import ApiError
from multimirror.kube.resources import NODES
from tests.kind.installation import Installation, Stage, a_stage
from tests.kind.policies import SLEEP, a_pod, once
from tests.waiting import eventually


async def test_a_job_completes_after_the_node_of_its_worker_was_restarted(installation: Installation) -> None:
    """Where it was, as the same copy: a worker that is away for less than its queue's patience is waited for. How often
    its program began anew is between Kubernetes and the Job's restartPolicy."""
    async with a_stage(installation, {"workers": {"names": [installation.workers[0]]}}) as stage:
        worker = installation.workers[0]
        await stage.create(stage.a_job("done-before", "true"))
        await stage.create(stage.a_job("interrupted", pod=a_pod(once("interrupted", first=SLEEP))))
        await stage.ended("done-before")
        await eventually(lambda: stage.status("interrupted"), lambda status: status.get("ready") == 1)
        await installation.docker("restart", "--time", "1", installation.node(worker))
        await _in_shape(stage, worker)
        status = await stage.ended("interrupted")
        assert status["succeeded"] == 1
        assert (await stage.status("done-before"))["succeeded"] == 1
        assert await stage.worker_of("interrupted") == worker
        names = ("done-before", "interrupted")
        copies = {seen.uid for seen in stage.history.record.changes("Job") if seen.cluster in installation.workers}
        assert len(copies) == len(names), "another copy was made"


async def _in_shape(stage: Stage, worker: str) -> None:
    """The node is back, and the dispatcher uses it again."""

    async def ready() -> bool:
        try:
            (node,) = (await stage.clients[worker].list(NODES)).items
        except ApiError:
            return False
        return (find_condition(node["status"]["conditions"], "Ready") or {}).get("status") == "True"

    await eventually(ready)
    await stage.installation.kubectl_done("wait", "--for=condition=Ready", f"workercluster/{worker}", "--timeout=120s")

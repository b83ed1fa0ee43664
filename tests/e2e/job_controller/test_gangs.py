"""Workload and PodGroup for Jobs that run all at once or not at all (KEP-5547)."""

from multimirror.kube import Resource
from tests.e2e.job_controller.world import World

WORKLOADS = Resource("scheduling.k8s.io", "v1alpha2", "workloads", "Workload")
POD_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
GATES = {"GenericWorkload": True, "WorkloadWithJob": True}
FOREVER = {"never-finish": "true"}


async def test_a_gang_gets_a_workload_and_a_pod_group(world: World) -> None:
    async with world.controller(gates=GATES):
        job = await world.create(completions=2, parallelism=2, completionMode="Indexed", node=FOREVER)
        await world.until(lambda: len(world.pods()) == 2)
        events = await world.events(wanted="WorkloadCreated")
    (workload,) = (await world.client.list(WORKLOADS, world.namespace)).items
    (group,) = (await world.client.list(POD_GROUPS, world.namespace)).items
    name = workload["metadata"]["name"]
    assert workload["spec"]["controllerRef"] == {"apiGroup": "batch", "kind": "Job", "name": "j"}
    assert workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert group["spec"]["podGroupTemplateRef"]["workload"] == {
        "workloadName": name,
        "podGroupTemplateName": "j-pgt-0",
    }
    assert [owner["uid"] for owner in group["metadata"]["ownerReferences"]] == [
        job["metadata"]["uid"],
        workload["metadata"]["uid"],
    ]
    groups = {pod["spec"].get("schedulingGroup", {}).get("podGroupName") for pod in world.pods()}
    assert groups == {group["metadata"]["name"]}
    assert ("Normal", "WorkloadCreated", f"Created Workload {name} for Job j") in events


async def test_jobs_that_do_not_qualify_get_none(world: World) -> None:
    async with world.controller(gates=GATES):
        await world.create("plain", completions=2, parallelism=2, node=FOREVER)
        await world.create("single", completions=1, parallelism=1, completionMode="Indexed", node=FOREVER)
        await world.create("partial", completions=3, parallelism=2, completionMode="Indexed", node=FOREVER)
        await world.until(lambda: len(world.pods()) == 5)
    assert (await world.client.list(WORKLOADS, world.namespace)).items == []


async def test_a_suspended_gang_keeps_its_objects(world: World) -> None:
    async with world.controller(gates=GATES):
        await world.create(completions=2, parallelism=2, completionMode="Indexed", node=FOREVER)
        await world.until(lambda: len(world.pods()) == 2)
        (before,) = (await world.client.list(POD_GROUPS, world.namespace)).items
        await world.patch("j", {"spec": {"suspend": True}})
        await world.until(lambda: not world.pods())
        await world.patch("j", {"spec": {"suspend": False}})
        await world.until(lambda: len(world.pods()) == 2)
    (after,) = (await world.client.list(POD_GROUPS, world.namespace)).items
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in world.pods()} == {after["metadata"]["name"]}


async def test_a_job_that_ran_before_the_feature_was_on_is_left_as_it_is(world: World) -> None:
    async with world.controller():
        await world.create(completions=2, parallelism=2, completionMode="Indexed", node=FOREVER)
        await world.running(2)
    async with world.controller(gates=GATES):
        await world.create("marker")
        await world.finished("marker")
    assert (await world.client.list(WORKLOADS, world.namespace)).items == []

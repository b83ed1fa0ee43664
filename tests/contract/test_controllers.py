"""What the control plane does by itself: garbage collection, TTL after finished, CronJobs. On every kind of cluster.

Jobs here are managed by nobody (`managedBy`), so that the test itself says when they end.
"""

import datetime as dt
from collections.abc import Callable

import pytest

from tests.contract.objects import configmap, cronjob, job, owner, pod, template
from tests.contract.wire import Api, Object

UNKNOWN_UID = "6c8f2a1e-0000-4000-8000-000000000000"


def now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def end(api: Api, name: str, kind: str = "Complete") -> Object:
    """Write the status of a Job that has ended."""
    moment = now()
    first = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
    conditions = [
        {"type": each, "status": "True", "lastProbeTime": moment, "lastTransitionTime": moment}
        for each in (first, kind)
    ]
    status = {
        "conditions": conditions,
        "startTime": moment,
        **({"completionTime": moment} if kind == "Complete" else {}),
    }
    return (await api.patch(api.at("jobs", name, "status"), {"status": status})).ok()


async def told(api: Api, about: str, reason: str) -> Object:
    """The event about that object, when it is told."""
    fields = f"involvedObject.name={about},reason={reason}"
    return await api.watched(api.at("events"), lambda kind, _: kind != "DELETED", fieldSelector=fields)


def an_active_cronjob(name: str, **spec: object) -> Object:
    """A CronJob that fires every two seconds; its Jobs wait for somebody else."""
    jobs = {
        "metadata": {"labels": {"made-by": name}, "annotations": {"example.com/note": "kept"}},
        "spec": {"managedBy": "example.com/contract", "template": template()},
    }
    return cronjob(name, **{"schedule": "@every 2s", "suspend": False, "jobTemplate": jobs, **spec})


def with_active(count: int) -> Callable[[str, Object], bool]:
    return lambda _, thing: len(thing["status"].get("active", ())) == count


# --- garbage


async def test_dependents_of_dependents_go_too(api: Api) -> None:
    top = await api.made("configmaps", configmap("top"))
    middle = await api.made("configmaps", configmap("middle", ownerReferences=[owner(top)]))
    await api.made("configmaps", configmap("bottom", ownerReferences=[owner(middle)]))
    (await api.delete(api.at("configmaps", "top"))).ok()
    await api.gone("configmaps", "bottom")
    await api.gone("configmaps", "middle")


async def test_in_the_foreground_the_last_dependent_goes_first(api: Api) -> None:
    top = await api.made("configmaps", configmap("top"))
    middle = await api.made("configmaps", configmap("middle", ownerReferences=[owner(top, blockOwnerDeletion=True)]))
    await api.made("configmaps", configmap("bottom", ownerReferences=[owner(middle, blockOwnerDeletion=True)]))
    before = (await api.get(api.at("configmaps"))).ok()["metadata"]["resourceVersion"]
    (await api.delete(api.at("configmaps", "top"), propagationPolicy="Foreground")).ok()
    await api.gone("configmaps", "top")
    gone: list[str] = []
    async with api.watch(api.at("configmaps"), resourceVersion=before) as stream:
        while "top" not in gone:
            kind, thing = await stream.event()
            if kind == "DELETED":
                gone.append(thing["metadata"]["name"])
    assert gone == ["bottom", "middle", "top"]


async def test_in_the_foreground_nobody_waits_for_a_dependent_that_does_not_block(api: Api) -> None:
    top = await api.made("configmaps", configmap("top"))
    child = configmap("child", ownerReferences=[owner(top)], finalizers=["example.com/hold"])
    await api.made("configmaps", child)
    (await api.delete(api.at("configmaps", "top"), propagationPolicy="Foreground")).ok()
    await api.gone("configmaps", "top")
    (await api.patch(api.at("configmaps", "child"), {"metadata": {"finalizers": None}})).ok()
    await api.gone("configmaps", "child")


@pytest.mark.parametrize(
    "reference",
    [
        pytest.param({"name": "nobody", "uid": UNKNOWN_UID}, id="that never was"),
        pytest.param({"name": "namesake", "uid": UNKNOWN_UID}, id="of the same name but another uid"),
    ],
)
async def test_an_object_of_an_owner_that_is_not_there_is_collected(api: Api, reference: Object) -> None:
    await api.made("configmaps", configmap("namesake"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", **reference}
    await api.made("configmaps", configmap("stray", ownerReferences=[reference]))
    await api.gone("configmaps", "stray")
    await api.read("configmaps", "namesake")


async def test_an_owner_of_an_unknown_kind_is_left_alone(api: Api) -> None:
    reference = {"apiVersion": "example.com/v1", "kind": "Martian", "name": "x", "uid": UNKNOWN_UID}
    await api.made("configmaps", configmap("odd", ownerReferences=[reference]))
    stray = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": UNKNOWN_UID}
    await api.made("configmaps", configmap("stray", ownerReferences=[stray]))
    await api.gone("configmaps", "stray")
    await api.read("configmaps", "odd")


async def test_an_object_of_the_cluster_can_own_one_in_a_namespace(api: Api) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []}
    role = (await api.post(roles, {**body, "metadata": {"name": api.namespace}})).ok(201)
    await api.made("configmaps", configmap("child", ownerReferences=[owner(role)]))
    (await api.delete(f"{roles}/{api.namespace}")).ok()
    await api.gone("configmaps", "child")


async def test_a_job_deleted_in_the_background_takes_its_pods_along(api: Api) -> None:
    made = await api.made("jobs", job("a"))
    refs = {"ownerReferences": [owner(made, controller=True, blockOwnerDeletion=True)]}
    for number in range(3):
        await api.made("pods", pod(f"child-{number}", metadata=refs))
    (await api.delete(api.at("jobs", "a"), propagationPolicy="Background")).ok()
    for number in range(3):
        await api.gone("pods", f"child-{number}")


# --- TTL after finished


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
async def test_a_finished_job_is_deleted_with_its_pods_when_its_time_has_come(api: Api, kind: str) -> None:
    made = await api.made("jobs", job("a", ttlSecondsAfterFinished=1))
    refs = {"ownerReferences": [owner(made, controller=True, blockOwnerDeletion=True)]}
    await api.made("pods", pod("child", metadata=refs))
    await end(api, "a", kind)
    await api.gone("jobs", "a")
    (await api.get(api.at("pods", "child"))).refused(404, "NotFound")


async def test_a_time_to_live_given_after_the_end_counts_from_the_end(api: Api) -> None:
    await api.made("jobs", job("a"))
    await api.made("jobs", job("running", ttlSecondsAfterFinished=0))
    await end(api, "a")
    (await api.patch(api.at("jobs", "a"), {"spec": {"ttlSecondsAfterFinished": 0}})).ok()
    await api.gone("jobs", "a")
    await api.read("jobs", "running")


# --- CronJobs


async def test_a_cronjob_starts_a_job_when_it_is_due(api: Api) -> None:
    made = await api.made("cronjobs", an_active_cronjob("tick", timeZone="Asia/Tokyo"))
    started = await api.watched(api.at("jobs"), lambda kind, _: kind == "ADDED")
    meta = started["metadata"]
    assert meta["labels"]["made-by"] == "tick"
    assert meta["annotations"]["example.com/note"] == "kept"
    assert meta["ownerReferences"] == [owner(made, controller=True, blockOwnerDeletion=True)]
    scheduled = dt.datetime.fromisoformat(meta["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"])
    assert scheduled.utcoffset() == dt.timedelta(hours=9)
    assert meta["name"] == f"tick-{int(scheduled.timestamp()) // 60}"
    assert started["spec"]["managedBy"] == "example.com/contract"
    cron = await api.watched(api.at("cronjobs"), with_active(1))
    assert cron["status"]["active"][0]["uid"] == meta["uid"]
    assert dt.datetime.fromisoformat(cron["status"]["lastScheduleTime"]) == scheduled
    assert (await told(api, "tick", "SuccessfulCreate"))["message"] == f"Created job {meta['name']}"


async def test_a_job_that_ended_well_leaves_the_active_list_and_its_time_is_kept(api: Api) -> None:
    await api.made("cronjobs", an_active_cronjob("tick", concurrencyPolicy="Forbid"))
    await api.watched(api.at("cronjobs"), with_active(1))
    (await api.patch(api.at("cronjobs", "tick"), {"spec": {"suspend": True}})).ok()
    name = (await api.get(api.at("jobs"))).ok()["items"][0]["metadata"]["name"]
    ended = await end(api, name)
    cron = await api.watched(
        api.at("cronjobs"), lambda _, thing: "lastSuccessfulTime" in thing["status"] and with_active(0)(_, thing)
    )
    assert cron["status"]["lastSuccessfulTime"] == ended["status"]["completionTime"]
    assert (await told(api, "tick", "SawCompletedJob"))["message"] == f"Saw completed job: {name}, condition: Complete"


async def test_forbid_holds_the_next_job_back_while_one_is_not_over(api: Api) -> None:
    first = await api.made("cronjobs", an_active_cronjob("tick", concurrencyPolicy="Forbid", schedule="* * * * *"))
    running = job("tick-1", metadata={"ownerReferences": [owner(first, controller=True)]})
    running = await api.made("jobs", running)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "namespace": api.namespace, "name": "tick-1"}
    long_ago = (dt.datetime.now(dt.UTC) - dt.timedelta(minutes=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"active": [{**reference, "uid": running["metadata"]["uid"]}], "lastScheduleTime": long_ago}
    (await api.patch(api.at("cronjobs", "tick", "status"), {"status": status})).ok()
    assert (await told(api, "tick", "JobAlreadyActive"))["type"] == "Normal"
    assert len((await api.get(api.at("jobs"))).ok()["items"]) == 1


async def test_replace_deletes_the_job_that_runs_and_starts_the_next(api: Api) -> None:
    first = await api.made("cronjobs", an_active_cronjob("tick", concurrencyPolicy="Replace", schedule="* * * * *"))
    running = job("tick-1", metadata={"ownerReferences": [owner(first, controller=True)]})
    running = await api.made("jobs", running)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "namespace": api.namespace, "name": "tick-1"}
    long_ago = (dt.datetime.now(dt.UTC) - dt.timedelta(minutes=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"active": [{**reference, "uid": running["metadata"]["uid"]}], "lastScheduleTime": long_ago}
    (await api.patch(api.at("cronjobs", "tick", "status"), {"status": status})).ok()
    await api.gone("jobs", "tick-1")
    started = await api.watched(
        api.at("jobs"), lambda kind, thing: kind == "ADDED" and thing["metadata"]["name"] != "tick-1"
    )
    cron = await api.watched(
        api.at("cronjobs"),
        lambda _, thing: [ref["uid"] for ref in thing["status"].get("active", ())] == [started["metadata"]["uid"]],
    )
    assert cron["status"]["lastScheduleTime"] > long_ago
    assert (await told(api, "tick", "SuccessfulDelete"))["message"] == "Deleted job tick-1"


async def test_a_suspended_cronjob_starts_nothing_and_makes_up_for_it_once_when_resumed(api: Api) -> None:
    await api.made("cronjobs", an_active_cronjob("tick", schedule="* * * * *", suspend=True))
    long_ago = (dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    (await api.patch(api.at("cronjobs", "tick", "status"), {"status": {"lastScheduleTime": long_ago}})).ok()
    assert (await api.get(api.at("jobs"))).ok()["items"] == []
    (await api.patch(api.at("cronjobs", "tick"), {"spec": {"suspend": False}})).ok()
    await api.watched(api.at("cronjobs"), with_active(1))
    assert len((await api.get(api.at("jobs"))).ok()["items"]) == 1


async def test_a_start_that_is_too_late_is_missed(api: Api) -> None:
    made = an_active_cronjob("tick", schedule="0 0 1 1 *", suspend=True, startingDeadlineSeconds=100)
    await api.made("cronjobs", made)
    (
        await api.patch(api.at("cronjobs", "tick", "status"), {"status": {"lastScheduleTime": "2020-06-01T00:00:00Z"}})
    ).ok()
    (await api.patch(api.at("cronjobs", "tick"), {"spec": {"suspend": False}})).ok()
    await api.made("cronjobs", an_active_cronjob("other"))
    await api.watched(api.at("cronjobs"), with_active(1), fieldSelector="metadata.name=other")
    jobs = (await api.get(api.at("jobs"))).ok()["items"]
    assert [each["metadata"]["labels"]["made-by"] for each in jobs] == ["other"]


async def test_history_limits_keep_the_newest_finished_jobs(api: Api) -> None:
    cron = await api.made("cronjobs", cronjob("tick", successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0))
    refs = {"ownerReferences": [owner(cron, controller=True)]}
    for name in ("old", "new", "bad"):
        await api.made("jobs", job(name, metadata=refs))
    for name, started in (("old", "2026-11-01T10:00:00Z"), ("new", "2026-11-01T11:00:00Z")):
        conditions = [{"type": each, "status": "True"} for each in ("SuccessCriteriaMet", "Complete")]
        status = {"conditions": conditions, "startTime": started, "completionTime": started}
        (await api.patch(api.at("jobs", name, "status"), {"status": status})).ok()
    await end(api, "bad", "Failed")
    await api.gone("jobs", "old")
    await api.gone("jobs", "bad")
    await api.read("jobs", "new")


async def test_a_job_that_the_cronjob_did_not_start_is_told_and_left_alone(api: Api) -> None:
    cron = await api.made("cronjobs", cronjob("tick"))
    await api.made("jobs", job("stray", metadata={"ownerReferences": [owner(cron, controller=True)]}))
    event = await told(api, "tick", "UnexpectedJob")
    assert event["message"] == "Saw a job that the controller did not create or forgot: stray"
    assert event["type"] == "Warning"
    await api.read("jobs", "stray")


async def test_a_job_that_vanished_leaves_the_active_list(api: Api) -> None:
    await api.made("cronjobs", cronjob("tick"))
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": api.namespace,
        "name": "gone",
        "uid": UNKNOWN_UID,
    }
    (await api.patch(api.at("cronjobs", "tick", "status"), {"status": {"active": [reference]}})).ok()
    assert (await told(api, "tick", "MissingJob"))["message"] == "Active job went missing: gone"
    await api.watched(api.at("cronjobs"), with_active(0))


async def test_a_deleted_cronjob_takes_its_jobs_along(api: Api) -> None:
    await api.made("cronjobs", an_active_cronjob("tick"))
    started = await api.watched(api.at("jobs"), lambda kind, _: kind == "ADDED")
    (await api.delete(api.at("cronjobs", "tick"), propagationPolicy="Background")).ok()
    await api.gone("jobs", started["metadata"]["name"])

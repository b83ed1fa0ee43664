"""Deletion: finalizers, grace, preconditions, what happens to dependents, and whole collections."""

import pytest

from tests.contract.objects import configmap, job, owner, pod
from tests.contract.wire import Api, Object

ORPHAN_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or "
    "set propagationPolicy=Orphan to suppress this warning"
)


async def test_a_finalizer_holds_a_deleted_object_until_it_is_taken_off(api: Api) -> None:
    made = await api.made("configmaps", configmap("a", finalizers=["example.com/hold"]))
    answer = (await api.delete(api.at("configmaps", "a"))).ok()
    assert answer["kind"] == "ConfigMap"
    assert answer["metadata"]["deletionTimestamp"]
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert answer["metadata"]["uid"] == made["metadata"]["uid"]
    held = await api.read("configmaps", "a")
    assert held["metadata"]["finalizers"] == ["example.com/hold"]
    last = (await api.patch(api.at("configmaps", "a"), {"metadata": {"finalizers": None}})).ok()
    assert last["metadata"]["name"] == "a"
    (await api.get(api.at("configmaps", "a"))).refused(404, "NotFound")


async def test_deleting_again_changes_nothing(api: Api) -> None:
    await api.made("configmaps", configmap("a", finalizers=["example.com/hold"]))
    (await api.delete(api.at("configmaps", "a"))).ok()
    first = await api.read("configmaps", "a")
    (await api.delete(api.at("configmaps", "a"))).ok()
    assert await api.read("configmaps", "a") == first


async def test_a_deleted_object_takes_no_new_finalizer(api: Api) -> None:
    await api.made("configmaps", configmap("a", finalizers=["example.com/hold"]))
    (await api.delete(api.at("configmaps", "a"))).ok()
    change = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    status = (await api.patch(api.at("configmaps", "a"), change)).refused(422, "Invalid")
    assert status["details"]["causes"][0] == {
        "reason": "FieldValueForbidden",
        "message": (
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
            '[]string{"example.com/more"}'
        ),
        "field": "metadata.finalizers",
    }


async def test_a_deleted_object_can_still_be_changed(api: Api) -> None:
    await api.made("configmaps", configmap("a", finalizers=["example.com/hold"]))
    (await api.delete(api.at("configmaps", "a"))).ok()
    changed = (await api.patch(api.at("configmaps", "a"), {"data": {"late": "yes"}})).ok()
    assert changed["data"]["late"] == "yes"
    assert changed["metadata"]["deletionTimestamp"]


async def test_a_name_is_taken_while_its_deletion_is_held(api: Api) -> None:
    await api.made("configmaps", configmap("a", finalizers=["example.com/hold"]))
    (await api.delete(api.at("configmaps", "a"))).ok()
    status = (await api.post(api.at("configmaps"), configmap("a"))).refused(409, "AlreadyExists")
    assert status["message"] == 'object is being deleted: configmaps "a" already exists'


async def test_the_deletion_of_a_deleted_spec_counts_as_a_generation(api: Api) -> None:
    made = await api.made("jobs", job("a", metadata={"finalizers": ["example.com/hold"]}))
    (await api.delete(api.at("jobs", "a"), propagationPolicy="Background")).ok()
    held = await api.read("jobs", "a")
    assert held["metadata"]["generation"] == made["metadata"]["generation"] + 1


@pytest.mark.parametrize("key", ["uid", "resourceVersion"])
async def test_a_delete_with_a_precondition_that_does_not_hold_conflicts(api: Api, key: str) -> None:
    made = await api.made("configmaps", configmap("a"))
    wrong = {"uid": "11111111-2222-3333-4444-555555555555", "resourceVersion": "1"}[key]
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {key: wrong}}
    status = (await api.delete(api.at("configmaps", "a"), options)).refused(409, "Conflict")
    what = {"uid": "UID", "resourceVersion": "ResourceVersion"}[key]
    assert status["message"] == (
        f'Operation cannot be fulfilled on ConfigMap "a": the {what} in the precondition ({wrong}) does not match the '
        f"{what} in record ({made['metadata'][key]}). The object might have been "
        + {"uid": "deleted and then recreated", "resourceVersion": "modified"}[key]
    )
    assert await api.read("configmaps", "a") == made


async def test_a_delete_with_preconditions_that_hold_is_done(api: Api) -> None:
    made = await api.made("configmaps", configmap("a"))
    held = {key: made["metadata"][key] for key in ("uid", "resourceVersion")}
    (await api.delete(api.at("configmaps", "a"), {"preconditions": held})).ok()
    (await api.get(api.at("configmaps", "a"))).refused(404, "NotFound")


async def test_an_unknown_propagation_policy_is_refused(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    status = (await api.delete(api.at("configmaps", "a"), propagationPolicy="Sideways")).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "propagationPolicy"


async def test_both_ways_to_say_orphan_at_once_are_refused(api: Api) -> None:
    await api.made("configmaps", configmap("a"))
    options = {"orphanDependents": True, "propagationPolicy": "Orphan"}
    status = (await api.delete(api.at("configmaps", "a"), options)).refused(422, "Invalid")
    assert "orphanDependents and deletionPropagation cannot be both set" in status["message"]


async def test_a_job_deleted_without_a_policy_keeps_its_pods_and_warns(api: Api) -> None:
    made = await api.made("jobs", job("a"))
    refs = {"ownerReferences": [owner(made, controller=True, blockOwnerDeletion=True)]}
    await api.made("pods", pod("child", metadata=refs))
    answer = await api.delete(api.at("jobs", "a"))
    assert answer.warnings == [ORPHAN_WARNING]
    await api.gone("jobs", "a")
    assert "ownerReferences" not in (await api.read("pods", "child"))["metadata"]


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
async def test_a_job_deleted_with_a_policy_gives_no_warning(api: Api, policy: str) -> None:
    await api.made("jobs", job("a"))
    assert (await api.delete(api.at("jobs", "a"), propagationPolicy=policy)).warnings == []


async def test_background_deletion_takes_the_owner_first_and_then_its_dependents(api: Api) -> None:
    made = await api.made("configmaps", configmap("owner"))
    child = await api.made("configmaps", configmap("child", ownerReferences=[owner(made)]))
    version = child["metadata"]["resourceVersion"]
    (await api.delete(api.at("configmaps", "owner"), propagationPolicy="Background")).ok()
    (await api.get(api.at("configmaps", "owner"))).refused(404, "NotFound")
    await api.gone("configmaps", "child")
    async with api.watch(api.at("configmaps"), resourceVersion=version) as stream:
        assert await stream.take(2) == [("DELETED", "owner"), ("DELETED", "child")]


async def test_foreground_deletion_holds_the_owner_until_its_dependents_are_gone(api: Api) -> None:
    made = await api.made("configmaps", configmap("owner"))
    refs = [owner(made, blockOwnerDeletion=True)]
    await api.made("configmaps", configmap("child", ownerReferences=refs, finalizers=["example.com/hold"]))
    deleted = (await api.delete(api.at("configmaps", "owner"), propagationPolicy="Foreground")).ok()
    assert deleted["metadata"]["finalizers"] == ["foregroundDeletion"]

    def marked(kind: str, thing: Object) -> bool:
        return kind != "DELETED" and "deletionTimestamp" in thing["metadata"]

    await api.watched(api.at("configmaps"), marked, fieldSelector="metadata.name=child")
    assert (await api.read("configmaps", "owner"))["metadata"]["deletionTimestamp"]
    (await api.patch(api.at("configmaps", "child"), {"metadata": {"finalizers": None}})).ok()
    await api.gone("configmaps", "owner")
    (await api.get(api.at("configmaps", "child"))).refused(404, "NotFound")


async def test_orphaning_deletion_cuts_the_dependents_loose(api: Api) -> None:
    made = await api.made("configmaps", configmap("owner"))
    other = await api.made("configmaps", configmap("other"))
    await api.made("configmaps", configmap("child", ownerReferences=[owner(made), owner(other)]))
    deleted = (await api.delete(api.at("configmaps", "owner"), propagationPolicy="Orphan")).ok()
    assert deleted["metadata"]["finalizers"] == ["orphan"]
    await api.gone("configmaps", "owner")
    assert (await api.read("configmaps", "child"))["metadata"]["ownerReferences"] == [owner(other)]


async def test_a_dependent_with_another_living_owner_stays(api: Api) -> None:
    gone = await api.made("configmaps", configmap("gone"))
    stays = await api.made("configmaps", configmap("stays"))
    await api.made("configmaps", configmap("child", ownerReferences=[owner(gone), owner(stays)]))
    (await api.delete(api.at("configmaps", "gone"), propagationPolicy="Background")).ok()

    def cut(kind: str, thing: Object) -> bool:
        assert kind != "DELETED"
        return bool(thing["metadata"]["ownerReferences"] == [owner(stays)])

    await api.watched(api.at("configmaps"), cut, fieldSelector="metadata.name=child")


async def test_a_collection_is_deleted_by_label(api: Api) -> None:
    for name, colour in (("a", "red"), ("b", "blue"), ("c", "red")):
        await api.made("configmaps", configmap(name, labels={"colour": colour}))
    answer = (await api.delete(api.at("configmaps"), labelSelector="colour=red")).ok()
    assert answer["kind"] == "ConfigMapList"
    assert {item["metadata"]["name"] for item in answer["items"]} == {"a", "c"}
    left = (await api.get(api.at("configmaps"), labelSelector="colour")).ok()["items"]
    assert [item["metadata"]["name"] for item in left] == ["b"]


async def test_a_pod_without_a_node_is_deleted_at_once(api: Api) -> None:
    await api.made("pods", pod("a"))
    answer = (await api.delete(api.at("pods", "a"))).ok()
    assert answer["kind"] == "Pod"
    (await api.get(api.at("pods", "a"))).refused(404, "NotFound")


async def test_a_pod_on_a_node_is_given_its_grace(api: Api) -> None:
    await api.made("pods", pod("a", nodeName="n1", terminationGracePeriodSeconds=17))
    answer = (await api.delete(api.at("pods", "a"))).ok()
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 17
    assert (await api.read("pods", "a"))["metadata"]["deletionTimestamp"]


async def test_a_second_delete_may_shorten_the_grace_but_not_lengthen_it(api: Api) -> None:
    await api.made("pods", pod("a", nodeName="n1"))
    grace = []
    for asked in (100, 200, 50):
        answer = (await api.delete(api.at("pods", "a"), gracePeriodSeconds=asked)).ok()
        grace.append(answer["metadata"]["deletionGracePeriodSeconds"])
    assert grace == [100, 100, 50]
    (await api.delete(api.at("pods", "a"), gracePeriodSeconds=0)).ok()
    (await api.get(api.at("pods", "a"))).refused(404, "NotFound")


async def test_a_finished_pod_needs_no_grace(api: Api) -> None:
    await api.made("pods", pod("a", nodeName="n1"))
    (await api.patch(api.at("pods", "a", "status"), {"status": {"phase": "Succeeded"}})).ok()
    (await api.delete(api.at("pods", "a"))).ok()
    (await api.get(api.at("pods", "a"))).refused(404, "NotFound")


async def test_a_pod_with_a_finalizer_stays_even_when_its_grace_is_zero(api: Api) -> None:
    await api.made("pods", pod("a", metadata={"finalizers": ["example.com/hold"]}))
    answer = (await api.delete(api.at("pods", "a"), gracePeriodSeconds=0)).ok()
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.read("pods", "a"))["metadata"]["finalizers"] == ["example.com/hold"]


async def test_taking_the_last_finalizer_off_a_pod_in_its_grace_does_not_end_the_grace(api: Api) -> None:
    await api.made("pods", pod("a", nodeName="n1", metadata={"finalizers": ["example.com/hold"]}))
    (await api.delete(api.at("pods", "a"))).ok()
    (await api.patch(api.at("pods", "a"), {"metadata": {"finalizers": None}})).ok()
    assert (await api.read("pods", "a"))["metadata"]["deletionGracePeriodSeconds"] == 30

"""Which objects a label or a field selector chooses, and which selectors are refused."""

import pytest

from tests.contract.objects import configmap, job, pod
from tests.contract.wire import Api

FRUIT = {
    "apple": {"kind": "fruit", "colour": "red", "size": "3"},
    "plum": {"kind": "fruit", "colour": "blue", "size": "2"},
    "leek": {"kind": "stem", "size": "7"},
}


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("colour=red", ["apple"]),
        ("colour==red", ["apple"]),
        ("colour!=red,kind", ["leek", "plum"]),
        ("colour in (red, blue)", ["apple", "plum"]),
        ("colour notin (red),kind", ["leek", "plum"]),
        ("colour", ["apple", "plum"]),
        ("!colour,kind", ["leek"]),
        ("kind=fruit,colour=blue", ["plum"]),
        ("size>2", ["apple", "leek"]),
        ("size<3", ["plum"]),
        ("kind=fruit,colour=green", []),
        ("colour in (red,),kind", ["apple"]),
        ("colour=,kind", []),
    ],
)
async def test_a_label_selector_chooses(api: Api, selector: str, chosen: list[str]) -> None:
    for name, labels in FRUIT.items():
        await api.made("configmaps", configmap(name, labels=labels))
    listed = (await api.get(api.at("configmaps"), labelSelector=selector)).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == chosen


@pytest.mark.parametrize(
    "selector", ["a=b=c", "=x", "a in b", "a in (b", "a notin ()x", "size>big", "-x=1", "a=b c", "!a=b", "a,,b"]
)
async def test_a_label_selector_that_says_nothing_sensible_is_refused(api: Api, selector: str) -> None:
    (await api.get(api.at("configmaps"), labelSelector=selector)).refused(400, "BadRequest")


async def test_fields_choose_by_name(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.made("jobs", job(name))
    listed = (await api.get(api.at("jobs"), fieldSelector="metadata.name=b")).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == ["b"]
    listed = (await api.get(api.at("jobs"), fieldSelector="metadata.name!=b")).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "c"]


async def test_fields_choose_jobs_by_how_many_pods_succeeded(api: Api) -> None:
    for name in ("a", "b"):
        await api.made("jobs", job(name))
    (await api.patch(api.at("jobs", "a", "status"), {"status": {"succeeded": 1}})).ok()
    listed = (await api.get(api.at("jobs"), fieldSelector="status.successful=1")).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]
    listed = (await api.get(api.at("jobs"), fieldSelector="status.successful=0")).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == ["b"]


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("spec.nodeName=n1", ["a"]),
        ("spec.nodeName=", ["b"]),
        ("spec.nodeName!=n1", ["b"]),
        ("status.phase=Running", ["a"]),
        ("status.phase!=Running", ["b"]),
        ("spec.restartPolicy=Never,spec.schedulerName=default-scheduler", ["b"]),
        ("spec.serviceAccountName=default", ["a", "b"]),
        ("metadata.name=a,status.phase=Pending", []),
    ],
)
async def test_fields_choose_pods(api: Api, selector: str, chosen: list[str]) -> None:
    await api.made("pods", pod("a", nodeName="n1"))
    await api.made("pods", pod("b", restartPolicy="Never"))
    (await api.patch(api.at("pods", "a", "status"), {"status": {"phase": "Running"}})).ok()
    listed = (await api.get(api.at("pods"), fieldSelector=selector)).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == chosen


@pytest.mark.parametrize(
    ("plural", "selector", "message"),
    [
        ("jobs", "spec.managedBy=x", 'field label "spec.managedBy" not supported for Job'),
        ("configmaps", "data=x", '"data" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        ("pods", "spec.image=x", "field label not supported: spec.image"),
    ],
)
async def test_a_field_that_cannot_be_selected_by_is_refused(
    api: Api, plural: str, selector: str, message: str
) -> None:
    status = (await api.get(api.at(plural), fieldSelector=selector)).refused(400, "BadRequest")
    assert message in status["message"]


async def test_a_field_selector_that_cannot_be_read_is_refused(api: Api) -> None:
    status = (await api.get(api.at("jobs"), fieldSelector="metadata.name")).refused(400, "BadRequest")
    assert "invalid selector" in status["message"]

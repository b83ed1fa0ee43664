"""Tables: what `kubectl get` shows, made by the server."""

import re
import secrets
from typing import Any

import pytest

from tests.contract.objects import configmap, cronjob, job, pod, widget, widgets
from tests.contract.wire import Api, Object

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def table(api: Api, path: str, **params: str | int) -> Object:
    answer = (await api.get(path, accept=TABLE, **params)).ok()
    assert (answer["kind"], answer["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    return answer


def columns(answer: Object) -> list[tuple[str, str, int]]:
    return [(each["name"], each["type"], each["priority"]) for each in answer["columnDefinitions"]]


def row(answer: Object, name: str) -> list[Any]:
    """The cells of the row of that name, with the moving age masked."""
    for each in answer["rows"]:
        if each["cells"][0] == name:
            return ["<age>" if re.fullmatch(r"\d+s", str(cell)) else cell for cell in each["cells"]]
    raise AssertionError(f"no row {name} in {answer['rows']}")


async def test_the_columns_of_jobs(api: Api) -> None:
    await api.made("jobs", job("a", completions=3))
    answer = await table(api, api.at("jobs"))
    assert columns(answer) == [
        ("Name", "string", 0),
        ("Status", "string", 0),
        ("Completions", "string", 0),
        ("Duration", "string", 0),
        ("Age", "string", 0),
        ("Containers", "string", 1),
        ("Images", "string", 1),
        ("Selector", "string", 1),
    ]
    cells = row(answer, "a")
    assert cells[:7] == ["a", "Running", "0/3", "", "<age>", "main", "example.com/app:1"]
    assert cells[7].startswith("batch.kubernetes.io/controller-uid=")


@pytest.mark.parametrize(
    ("spec", "status", "shown"),
    [
        ({"parallelism": 4}, {}, ["Running", "0/1 of 4", ""]),
        ({"parallelism": 1}, {}, ["Running", "0/1", ""]),
        (
            {},
            {
                "startTime": "2026-11-01T10:00:00Z",
                "completionTime": "2026-11-01T10:02:30Z",
                "succeeded": 1,
                "conditions": [{"type": t, "status": "True"} for t in ("SuccessCriteriaMet", "Complete")],
            },
            ["Complete", "1/1", "2m30s"],
        ),
        ({}, {"conditions": [{"type": "Suspended", "status": "True"}]}, ["Suspended", "0/1", ""]),
        ({}, {"conditions": [{"type": "FailureTarget", "status": "True"}]}, ["FailureTarget", "0/1", ""]),
        ({}, {"conditions": [{"type": "Suspended", "status": "False"}]}, ["Running", "0/1", ""]),
    ],
    ids=["work queue", "work queue of one", "complete", "suspended", "failing", "resumed"],
)
async def test_how_a_job_is_shown(api: Api, spec: Object, status: Object, shown: list[str]) -> None:
    await api.made("jobs", job("a", **spec))
    if status:
        (await api.patch(api.at("jobs", "a", "status"), {"status": status})).ok()
    assert row(await table(api, api.at("jobs", "a")), "a")[1:4] == shown


async def test_the_columns_of_pods(api: Api) -> None:
    await api.made("pods", pod("a", nodeName="n1"))
    answer = await table(api, api.at("pods"))
    assert [name for name, _, priority in columns(answer) if priority == 0] == [
        "Name",
        "Ready",
        "Status",
        "Restarts",
        "Age",
    ]
    assert [name for name, _, priority in columns(answer) if priority == 1] == [
        "IP",
        "Node",
        "Nominated Node",
        "Readiness Gates",
    ]
    assert row(answer, "a") == ["a", "0/1", "Pending", "0", "<age>", "<none>", "n1", "<none>", "<none>"]


def container(state: Object, *, ready: bool = False, restarts: int = 0) -> list[Object]:
    return [{"name": "main", "image": "x", "imageID": "", "ready": ready, "restartCount": restarts, "state": state}]


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Running", "containerStatuses": container({"running": {}}, ready=True)}, ["1/1", "Running", "0"]),
        (
            {
                "phase": "Succeeded",
                "containerStatuses": container({"terminated": {"exitCode": 0, "reason": "Completed"}}),
            },
            ["0/1", "Completed", "0"],
        ),
        (
            {"phase": "Failed", "containerStatuses": container({"terminated": {"exitCode": 3, "reason": "Error"}})},
            ["0/1", "Error", "0"],
        ),
        (
            {"phase": "Failed", "containerStatuses": container({"terminated": {"exitCode": 3}})},
            ["0/1", "ExitCode:3", "0"],
        ),
        (
            {
                "phase": "Pending",
                "containerStatuses": container({"waiting": {"reason": "ContainerCreating"}}, restarts=2),
            },
            ["0/1", "ContainerCreating", "2"],
        ),
        ({"phase": "Failed", "reason": "Evicted"}, ["0/1", "Evicted", "0"]),
    ],
    ids=["running", "done", "failed", "failed without a reason", "waiting", "evicted"],
)
async def test_how_a_pod_is_shown(api: Api, status: Object, shown: list[str]) -> None:
    await api.made("pods", pod("a", nodeName="n1"))
    (await api.patch(api.at("pods", "a", "status"), {"status": status})).ok()
    assert row(await table(api, api.at("pods")), "a")[1:4] == shown


async def test_a_pod_that_is_being_deleted_is_shown_as_such(api: Api) -> None:
    await api.made("pods", pod("a", nodeName="n1"))
    (await api.delete(api.at("pods", "a"))).ok()
    assert row(await table(api, api.at("pods")), "a")[2] == "Terminating"


async def test_the_columns_of_nodes(api: Api) -> None:
    name = f"node-{secrets.token_hex(4)}"
    labels = {"node-role.kubernetes.io/worker": ""}
    (await api.post("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})).ok(201)
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
        "nodeInfo": {
            "kubeletVersion": "v1.36.0",
            "osImage": "Some Linux",
            "kernelVersion": "6.1",
            "containerRuntimeVersion": "none://1",
            "architecture": "amd64",
            "bootID": "",
            "kubeProxyVersion": "",
            "machineID": "",
            "operatingSystem": "linux",
            "systemUUID": "",
        },
    }
    (await api.patch(f"/api/v1/nodes/{name}/status", {"status": status})).ok()
    answer = await table(api, "/api/v1/nodes")
    assert [each for each, _, _ in columns(answer)] == [
        "Name",
        "Status",
        "Roles",
        "Age",
        "Version",
        "Internal-IP",
        "External-IP",
        "OS-Image",
        "Kernel-Version",
        "Container-Runtime",
    ]
    assert row(answer, name) == [
        name,
        "Ready",
        "worker",
        "<age>",
        "v1.36.0",
        "10.1.2.3",
        "<none>",
        "Some Linux",
        "6.1 (amd64)",
        "none://1",
    ]
    (await api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})).ok()
    assert row(await table(api, f"/api/v1/nodes/{name}"), name)[1] == "Ready,SchedulingDisabled"
    (await api.delete(f"/api/v1/nodes/{name}")).ok()


async def test_the_columns_of_namespaces(api: Api) -> None:
    answer = await table(api, f"/api/v1/namespaces/{api.namespace}")
    assert columns(answer) == [("Name", "string", 0), ("Status", "string", 0), ("Age", "string", 0)]
    assert row(answer, api.namespace) == [api.namespace, "Active", "<age>"]


async def test_the_columns_of_cronjobs(api: Api) -> None:
    await api.made("cronjobs", cronjob("a", timeZone="Europe/Berlin"))
    answer = await table(api, api.at("cronjobs"))
    assert [each for each, _, _ in columns(answer)] == [
        "Name",
        "Schedule",
        "Timezone",
        "Suspend",
        "Active",
        "Last Schedule",
        "Age",
        "Containers",
        "Images",
        "Selector",
    ]
    assert row(answer, "a") == [
        "a",
        "0 0 1 1 *",
        "Europe/Berlin",
        "True",
        0,
        "<none>",
        "<age>",
        "main",
        "example.com/app:1",
        "<none>",
    ]


@pytest.mark.usefixtures("widget_crd")
async def test_the_columns_of_a_custom_resource_are_those_of_its_definition(api: Api) -> None:
    (await api.post(widgets(api.namespace), widget("a", size=7))).ok(201)
    answer = await table(api, widgets(api.namespace))
    assert columns(answer) == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Phase", "string", 0),
        ("Colour", "string", 1),
        ("Age", "date", 0),
    ]
    assert row(answer, "a") == ["a", 7, None, "red", "<age>"]
    assert answer["columnDefinitions"][1]["description"] == "How big it is"


async def test_the_columns_of_kinds_without_a_printer_are_name_and_age(api: Api) -> None:
    await api.made("roles", {"metadata": {"name": "a"}, "rules": []})
    answer = await table(api, api.at("roles"))
    assert [(name, kind) for name, kind, _ in columns(answer)] == [("Name", "string"), ("Created At", "date")]


async def test_configmaps_secrets_and_leases_have_columns_of_their_own(api: Api) -> None:
    await api.made("configmaps", configmap("a", {"x": "1", "y": "2"}))
    answer = await table(api, api.at("configmaps", "a"))
    assert [each for each, _, _ in columns(answer)] == ["Name", "Data", "Age"]
    assert row(answer, "a") == ["a", 2, "<age>"]
    await api.made("secrets", {"metadata": {"name": "s"}, "stringData": {"x": "1"}})
    assert row(await table(api, api.at("secrets", "s")), "s") == ["s", "Opaque", 1, "<age>"]
    await api.made("leases", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})
    assert row(await table(api, api.at("leases", "l")), "l") == ["l", "me", "<age>"]


async def test_a_row_carries_the_metadata_of_its_object(api: Api) -> None:
    made = await api.made("jobs", job("a"))
    partial = (await table(api, api.at("jobs")))["rows"][0]["object"]
    assert (partial["kind"], partial["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert partial["metadata"]["uid"] == made["metadata"]["uid"]
    whole = (await table(api, api.at("jobs"), includeObject="Object"))["rows"][0]["object"]
    assert whole["spec"]["template"]
    none = (await table(api, api.at("jobs"), includeObject="None"))["rows"][0]
    assert none["object"] is None


async def test_a_table_has_the_version_and_the_pages_of_its_list(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.made("jobs", job(name))
    first = await table(api, api.at("jobs"), limit=2)
    assert [each["cells"][0] for each in first["rows"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    rest = await table(api, api.at("jobs"), **{"limit": 2, "continue": first["metadata"]["continue"]})
    assert [each["cells"][0] for each in rest["rows"]] == ["c"]
    assert int(first["metadata"]["resourceVersion"]) > 0


async def test_a_watch_can_be_a_table_too(api: Api) -> None:
    await api.made("jobs", job("a"))
    async with api.watch(api.at("jobs"), accept=TABLE) as stream:
        kind, first = await stream.event()
        assert (kind, first["kind"]) == ("ADDED", "Table")
        assert [each["name"] for each in first["columnDefinitions"]][:2] == ["Name", "Status"]
        assert first["rows"][0]["cells"][0] == "a"
        await api.made("jobs", job("b"))
        kind, second = await stream.event()
        assert (kind, second["rows"][0]["cells"][0]) == ("ADDED", "b")
        assert not second.get("columnDefinitions"), "the columns are told once"

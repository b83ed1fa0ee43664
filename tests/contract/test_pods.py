"""Pods: defaults, what may change, binding, eviction, logs."""

from tests.contract.objects import job, pod
from tests.contract.wire import Api


async def test_a_pod_gets_its_defaults(api: Api) -> None:
    made = await api.made("pods", pod("a"))
    spec = made["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["serviceAccountName"] == "default"
    assert spec["securityContext"] == {}
    container = spec["containers"][0]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["resources"] == {}
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_a_pod_of_no_containers_is_refused(api: Api) -> None:
    status = (await api.post(api.at("pods"), pod("a", containers=[]))).refused(422, "Invalid")
    assert status["message"] == 'Pod "a" is invalid: spec.containers: Required value'


async def test_two_containers_do_not_share_a_name(api: Api) -> None:
    containers = [{"name": "main", "image": "x"}, {"name": "main", "image": "y"}]
    status = (await api.post(api.at("pods"), pod("a", containers=containers))).refused(422, "Invalid")
    assert status["details"]["causes"] == [
        {
            "reason": "FieldValueDuplicate",
            "message": 'Duplicate value: "main"',
            "field": "spec.containers[1].name",
        }
    ]


async def test_a_pod_with_a_service_account_that_is_not_there_is_refused(api: Api) -> None:
    status = (await api.post(api.at("pods"), pod("a", serviceAccountName="nobody"))).refused(403, "Forbidden")
    assert status["message"] == (
        f'pods "a" is forbidden: error looking up service account {api.namespace}/nobody: '
        'serviceaccount "nobody" not found'
    )


async def test_only_a_few_fields_of_a_pods_spec_may_change(api: Api) -> None:
    await api.made("pods", pod("a"))
    status = (await api.patch(api.at("pods", "a"), {"spec": {"hostname": "other"}})).refused(422, "Invalid")
    assert status["details"]["causes"][0]["message"].startswith(
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
    )
    image = {"spec": {"containers": [{"name": "main", "image": "example.com/app:2"}]}}
    (await api.patch(api.at("pods", "a"), image, "strategic")).ok()
    (await api.patch(api.at("pods", "a"), {"spec": {"activeDeadlineSeconds": 60}})).ok()


async def test_a_pod_is_bound_to_a_node_once(api: Api) -> None:
    await api.made("pods", pod("a"))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "n1"},
    }
    done = (await api.post(api.at("pods", "a", "binding"), binding)).ok(201)
    assert (done["kind"], done["status"]) == ("Status", "Success")
    bound = await api.read("pods", "a")
    assert bound["spec"]["nodeName"] == "n1"
    scheduled = bound["status"]["conditions"][0]
    assert (scheduled["type"], scheduled["status"]) == ("PodScheduled", "True")
    status = (await api.post(api.at("pods", "a", "binding"), binding)).refused(409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"'
    )


async def test_a_pod_that_is_not_there_cannot_be_bound(api: Api) -> None:
    binding = {"metadata": {"name": "nope"}, "target": {"kind": "Node", "name": "n1"}}
    (await api.post(api.at("pods", "nope", "binding"), binding)).refused(404, "NotFound")


async def test_a_pod_is_evicted(api: Api) -> None:
    await api.made("pods", pod("a", nodeName="n1"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    done = (await api.post(api.at("pods", "a", "eviction"), eviction)).ok(201)
    assert (done["kind"], done["status"]) == ("Status", "Success")
    left = await api.read("pods", "a")
    assert left["metadata"]["deletionTimestamp"]
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    reasons = {each["type"]: each["reason"] for each in left["status"].get("conditions", [])}
    assert reasons.get("DisruptionTarget") == "EvictionByEvictionAPI"


async def test_the_log_of_a_pod_that_is_not_there_is_not_found(api: Api) -> None:
    status = (await api.get(api.at("pods", "nope", "log"))).refused(404, "NotFound")
    assert status["message"] == 'pods "nope" not found'


async def test_the_log_of_a_container_that_is_not_there_is_refused(api: Api) -> None:
    await api.made("pods", pod("a"))
    status = (await api.get(api.at("pods", "a", "log"), container="other")).refused(400, "BadRequest")
    assert status["message"] == "container other is not valid for pod a"


async def test_the_log_of_one_of_several_containers_must_be_chosen(api: Api) -> None:
    await api.made("pods", pod("a", containers=[{"name": n, "image": "x"} for n in ("one", "two")]))
    status = (await api.get(api.at("pods", "a", "log"))).refused(400, "BadRequest")
    assert status["message"] == "a container name must be specified for pod a, choose one of: [one two]"


async def test_the_log_of_a_pod_without_a_node_is_empty(api: Api) -> None:
    await api.made("pods", pod("a"))
    answer = await api.get(api.at("pods", "a", "log"))
    assert (answer.status, answer.text) == (204, "")


async def test_the_phase_of_a_pod_follows_its_status_alone(api: Api) -> None:
    await api.made("pods", pod("a", nodeName="n1", restartPolicy="Never"))
    terminated = {"exitCode": 3, "reason": "Error", "finishedAt": "2026-11-01T10:00:00Z"}
    status = {
        "phase": "Failed",
        "containerStatuses": [
            {
                "name": "main",
                "image": "x",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": terminated},
            }
        ],
    }
    written = (await api.patch(api.at("pods", "a", "status"), {"status": status})).ok()
    assert written["status"]["phase"] == "Failed"
    assert written["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_a_pod_of_a_quality_class_keeps_it(api: Api) -> None:
    limits = {"cpu": "100m", "memory": "64Mi"}
    containers = [{"name": "main", "image": "x", "resources": {"limits": limits}}]
    made = await api.made("pods", pod("a", containers=containers))
    assert made["status"]["qosClass"] == "Guaranteed"
    assert made["spec"]["containers"][0]["resources"] == {"limits": limits, "requests": limits}
    requests = {"resources": {"requests": {"cpu": "1"}}}
    made = await api.made("pods", pod("b", containers=[{"name": "main", "image": "x", **requests}]))
    assert made["status"]["qosClass"] == "Burstable"


async def test_a_quantity_is_stored_in_its_short_form(api: Api) -> None:
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}}
            ],
        }
    }
    made = await api.made("jobs", job("a", template=template))
    stored = made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert stored == {"cpu": "1", "memory": "1Gi"}

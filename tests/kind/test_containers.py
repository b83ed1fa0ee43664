"""What only real kubelets show: how containers end, are killed, cannot start, are told to stop, and what they see.

All Jobs of this module are created at once, and each test looks at its own: on the management cluster, as its user
does, and on the worker, for comparison. What pods have to say they leave in their termination message.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from multimirror.batch import find_condition, is_finished
from multimirror.kube import Client
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES
from tests.kind.installation import Installation, Stage, a_stage
from tests.kind.policies import SLEEP, a_container, a_pod, once
from tests.waiting import eventually

Json = dict[str, Any]
pytestmark = pytest.mark.asyncio(loop_scope="module")


def _from_field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _fails_on(action: str, *codes: int) -> Json:
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}]}


def _script(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


def _jobs(stage: Stage) -> list[Json]:
    a_job = stage.a_job
    said = ">/dev/termination-log"
    tells = "trap 'sleep 3; echo took its time >/dev/termination-log; exit 0' TERM"
    return [
        # how they end
        a_job("exit-0", *_script("exit 0")),
        a_job("exit-1", *_script("exit 1"), backoffLimit=0),
        # Kubernetes makes one $ of two
        a_job("killed", *_script("sh -c 'kill -9 $$$$'; exit $?"), backoffLimit=0),
        a_job("exit-42", *_script("exit 42"), podFailurePolicy=_fails_on("FailJob", 42)),
        a_job(
            "too-much-memory",
            *_script("exec dd if=/dev/zero of=/dev/null bs=200M count=1"),
            container={"resources": {"limits": {"memory": "24Mi"}}},
            backoffLimit=0,
        ),
        # what keeps them from starting
        a_job("no-image", container={"image": "busybox:no-such-tag"}),
        a_job(
            "no-config",
            *_script(f"echo $COLOUR {said}"),
            container={"envFrom": [{"configMapRef": {"name": "late"}}]},
        ),
        # being told to stop
        a_job("deleted", *_script(f"{tells}; {SLEEP}"), pod={"terminationGracePeriodSeconds": 30}),
        a_job("suspended", pod=a_pod(once("suspended", first=SLEEP))),
        a_job(
            "evicted",
            pod=a_pod(once("evicted", first=SLEEP)),
            backoffLimit=0,
            podFailurePolicy={"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
        ),
        # several containers, and several tries
        a_job("sidecar", *_script("exit 0"), pod={"initContainers": [_sidecar()]}),
        a_job(
            "init-retried",
            pod=a_pod(
                "exit 0",
                restartPolicy="OnFailure",
                initContainers=[a_container("first", once("initialised"))],
            ),
        ),
        a_job("restarted", pod=a_pod(once("restarted"), restartPolicy="OnFailure")),
        # what they see
        a_job(
            "configured",
            *_script(f"echo $COLOUR $PASSWORD $(cat /config/colour) $(cat /secret/password) {said}"),
            container={
                "env": [
                    {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "colour"}}},
                    {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "password"}}},
                ],
                "volumeMounts": [
                    {"name": "config", "mountPath": "/config"},
                    {"name": "secret", "mountPath": "/secret"},
                ],
            },
            pod={
                "volumes": [
                    {"name": "config", "configMap": {"name": "config"}},
                    {"name": "secret", "secret": {"secretName": "secret"}},
                ]
            },
        ),
        a_job(
            "indexed",
            *_script(f"echo $JOB_COMPLETION_INDEX of $HOSTNAME {said}"),
            completionMode="Indexed",
            completions=3,
            parallelism=3,
        ),
        a_job(
            "peers",
            *_script(
                "if test $JOB_COMPLETION_INDEX = 1; then echo hello from 1 | nc -l -p 9000; "
                f"else until nc peers-1.peers 9000 {said} && grep -q hello /dev/termination-log; do sleep 0.2; done; fi"
            ),
            pod={"subdomain": "peers"},
            completionMode="Indexed",
            completions=2,
            parallelism=2,
        ),
        a_job(
            "downward",
            *_script(f"echo $NAMESPACE $POD $JOB $CPU {said}"),
            container={
                "env": [
                    _from_field("NAMESPACE", "metadata.namespace"),
                    _from_field("POD", "metadata.name"),
                    _from_field("JOB", "metadata.labels['batch.kubernetes.io/job-name']"),
                    {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
                ],
                "resources": {"limits": {"cpu": "250m", "memory": "64Mi"}},
            },
        ),
        a_job(
            "limited",
            # as the kernel has it: version 2 of control groups, or 1
            *_script(
                f"cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null {said}; true"
            ),
            container={"resources": {"limits": {"memory": "64Mi"}}},
        ),
    ]


def _sidecar() -> Json:
    return {
        "name": "sidecar",
        "image": "busybox",
        "restartPolicy": "Always",
        "command": list(_script(f"trap 'exit 0' TERM; {SLEEP}")),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(installation: Installation) -> AsyncIterator[Stage]:
    """With what does not travel on the workers already: Services, ConfigMaps, Secrets."""
    async with a_stage(installation) as stage:
        for worker in installation.workers:
            await _furnish(stage.clients[worker], stage.namespace)
        for job in _jobs(stage):
            await stage.create(job)
        yield stage


async def _furnish(worker: Client, namespace: str) -> None:
    named = {"namespace": namespace}
    await worker.create(CONFIG_MAPS, {"metadata": {"name": "config", **named}, "data": {"colour": "green"}})
    await worker.create(SECRETS, {"metadata": {"name": "secret", **named}, "stringData": {"password": "hunter2"}})
    headless = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"batch.kubernetes.io/job-name": "peers"},
    }
    await worker.create(SERVICES, {"metadata": {"name": "peers", **named}, "spec": headless})


async def _pods(stage: Stage, name: str) -> list[Json]:
    """Where they run."""
    return await stage.pods(name, await stage.worker_of(name))


async def _only_pod(stage: Stage, name: str) -> Json:
    (pod,) = await _pods(stage, name)
    return pod


def _end_of(pod: Json, container: str = "main") -> Json:
    """How a container ended: code, reason, what it left to say."""
    status = pod["status"]
    every = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    state = next(each for each in every if each["name"] == container)
    found: Json = state["state"].get("terminated") or {}
    return {**found, "restarts": state["restartCount"]}


def _why_waiting(pods: list[Json]) -> str | None:
    states = [each["state"] for pod in pods for each in pod["status"].get("containerStatuses") or ()]
    return next((state["waiting"].get("reason") for state in states if "waiting" in state), None)


async def _said(stage: Stage, name: str) -> list[str]:
    """By its pods, once all is done."""
    status = await stage.ended(name)
    assert status.get("succeeded"), status
    return sorted(_end_of(pod).get("message", "") for pod in await _pods(stage, name))


def _failed_because(status: Json) -> str:
    return str((find_condition(status["conditions"], "Failed") or {}).get("reason"))


# --- how they end


async def test_a_container_that_ends_well_completes_its_job(scene: Stage) -> None:
    status = await scene.ended("exit-0")
    assert status["succeeded"] == 1
    assert find_condition(status["conditions"], "Complete")
    assert _end_of(await _only_pod(scene, "exit-0"))["exitCode"] == 0


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        pytest.param("exit-1", 1, "BackoffLimitExceeded", id="by itself"),
        pytest.param("killed", 137, "BackoffLimitExceeded", id="killed by a signal"),
        pytest.param("exit-42", 42, "PodFailurePolicy", id="with a code that ends the Job"),
    ],
)
async def test_a_container_that_fails_fails_its_job(scene: Stage, name: str, code: int, reason: str) -> None:
    status = await scene.ended(name)
    assert status["failed"] == 1
    assert _failed_because(status) == reason
    assert _end_of(await _only_pod(scene, name))["exitCode"] == code


async def test_the_exit_code_is_told_where_a_policy_ends_the_job(scene: Stage) -> None:
    status = await scene.ended("exit-42")
    told = find_condition(status["conditions"], "Failed")
    assert told is not None
    pod = await _only_pod(scene, "exit-42")
    assert f"{scene.namespace}/{pod['metadata']['name']} failed with exit code 42" in told["message"]


async def test_a_container_that_needs_more_memory_than_it_may_have_is_killed_and_fails_its_job(scene: Stage) -> None:
    status = await scene.ended("too-much-memory")
    assert _failed_because(status) == "BackoffLimitExceeded"
    end = _end_of(await _only_pod(scene, "too-much-memory"))
    assert end["exitCode"] == 137
    assert end["reason"] in ("OOMKilled", "Error"), "a busy kubelet hears that it has ended before it hears why"


# --- what keeps them from starting


async def test_a_job_whose_image_cannot_be_pulled_stays_active_says_why_and_ends_at_a_deadline(scene: Stage) -> None:
    name = "no-image"
    pulling = {"ErrImagePull", "ImagePullBackOff"}
    await eventually(lambda: _pods(scene, name), lambda pods: _why_waiting(pods) in pulling)
    status = await scene.status(name)
    assert status["active"] == 1
    assert not status.get("ready")
    story = await scene.installation.done("explain", f"job/{name}", "-n", scene.namespace)
    assert "no-such-tag" in story.out
    events = await scene.installation.done("events", f"job/{name}", "-n", scene.namespace)
    assert "Failed to pull image" in events.out
    await scene.management.patch(JOBS, name, {"spec": {"activeDeadlineSeconds": 1}}, scene.namespace)
    assert _failed_because(await scene.ended(name)) == "DeadlineExceeded"


async def test_a_job_that_misses_a_configmap_stays_active_and_goes_on_when_it_is_there(scene: Stage) -> None:
    name = "no-config"
    await eventually(lambda: _pods(scene, name), lambda pods: _why_waiting(pods) == "CreateContainerConfigError")
    status = await scene.status(name)
    assert status["active"] == 1
    assert not is_finished(status)
    story = await scene.installation.done("explain", f"job/{name}", "-n", scene.namespace)
    assert 'configmap "late" not found' in story.out
    late = {"metadata": {"name": "late", "namespace": scene.namespace}, "data": {"COLOUR": "blue"}}
    await scene.clients[await scene.worker_of(name)].create(CONFIG_MAPS, late)
    assert await _said(scene, name) == ["blue\n"]


# --- being told to stop


async def test_a_pod_gets_its_grace_when_the_original_is_deleted_and_nothing_stays(scene: Stage) -> None:
    name = "deleted"
    await eventually(lambda: scene.status(name), lambda status: status.get("ready") == 1)
    worker = await scene.worker_of(name)
    await scene.management.delete(JOBS, name, scene.namespace)

    async def left() -> list[Json]:
        jobs = (await scene.clients[worker].list(JOBS, scene.namespace)).items
        return [job for job in jobs if job["metadata"]["name"] == name] + await scene.pods(name, worker)

    await eventually(left, lambda found: not found)
    last = [
        seen.object
        for seen in scene.history.record.changes("Pod", worker)
        if seen.object["metadata"]["labels"].get("batch.kubernetes.io/job-name") == name
    ][-1]
    assert _end_of(last)["message"] == "took its time\n"
    assert _end_of(last)["exitCode"] == 0


async def test_a_suspended_job_has_no_pod_and_runs_again_when_it_is_resumed(scene: Stage) -> None:
    name = "suspended"
    await eventually(lambda: scene.status(name), lambda status: status.get("ready") == 1)
    started = (await scene.status(name))["startTime"]
    await scene.management.patch(JOBS, name, {"spec": {"suspend": True}}, scene.namespace)
    await scene.condition(name, "Suspended")
    await eventually(lambda: _pods(scene, name), lambda pods: not pods)
    await eventually(lambda: scene.status(name), lambda status: not status.get("active"))
    await scene.management.patch(JOBS, name, {"spec": {"suspend": False}}, scene.namespace)
    status = await scene.ended(name)
    assert status["succeeded"] == 1
    assert status["startTime"] > started
    resumed = find_condition(status["conditions"], "Suspended")
    assert resumed is not None
    assert (resumed["status"], resumed["reason"]) == ("False", "JobResumed")


async def test_an_evicted_pod_is_replaced_and_not_counted_where_the_policy_ignores_disruptions(scene: Stage) -> None:
    name = "evicted"
    await eventually(lambda: scene.status(name), lambda status: status.get("ready") == 1)
    worker = await scene.worker_of(name)
    (pod,) = await scene.pods(name, worker)
    victim = pod["metadata"]["name"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim, "namespace": scene.namespace},
    }
    path = f"{PODS.path(scene.namespace, victim)}/eviction"
    await scene.clients[worker].request("POST", path, body=eviction, headers={"Content-Type": "application/json"})
    status = await scene.ended(name)
    assert status["succeeded"] == 1
    assert not status.get("failed")
    shown = [
        seen.object["status"].get("conditions") or ()
        for seen in scene.history.record.changes("Pod", worker)
        if seen.object["metadata"]["name"] == victim
    ]
    told = find_condition(shown[-1], "DisruptionTarget")
    assert told is not None
    assert told["reason"] == "EvictionByEvictionAPI"


# --- several containers, and several tries


async def test_a_job_completes_although_its_sidecar_would_run_on(scene: Stage) -> None:
    status = await scene.ended("sidecar")
    assert status["succeeded"] == 1
    pod = await _only_pod(scene, "sidecar")
    assert pod["status"]["phase"] == "Succeeded"
    assert _end_of(pod, "sidecar")["restarts"] == 0


@pytest.mark.parametrize(
    ("name", "container"),
    [pytest.param("init-retried", "first", id="init container"), pytest.param("restarted", "main", id="container")],
)
async def test_a_container_that_fails_is_restarted_in_its_pod_and_the_job_completes(
    scene: Stage, name: str, container: str
) -> None:
    status = await scene.ended(name)
    assert status["succeeded"] == 1
    assert not status.get("failed")
    assert _end_of(await _only_pod(scene, name), container)["restarts"] == 1


# --- what they see


async def test_pods_see_the_config_maps_and_secrets_of_their_worker(scene: Stage) -> None:
    assert await _said(scene, "configured") == ["green hunter2 green hunter2\n"]


async def test_pods_of_an_indexed_job_have_their_index_and_their_host_name(scene: Stage) -> None:
    assert await _said(scene, "indexed") == [f"{index} of indexed-{index}\n" for index in range(3)]


async def test_pods_of_an_indexed_job_find_each_other_by_name(scene: Stage) -> None:
    """By a headless Service on the worker: Services do not travel."""
    assert await _said(scene, "peers") == ["", "hello from 1\n"]


async def test_the_downward_api_shows_pods_what_it_shows_at_home(scene: Stage) -> None:
    (said,) = await _said(scene, "downward")
    namespace, pod, job, cpu = said.split()
    assert (namespace, job, cpu) == (scene.namespace, "downward", "250")
    assert pod == (await _only_pod(scene, "downward"))["metadata"]["name"]
    assert pod.startswith("downward-")


async def test_limits_of_a_container_hold_on_its_node(scene: Stage) -> None:
    (said,) = await _said(scene, "limited")
    assert said.split() == [str(64 * 1024 * 1024)]


async def test_times_of_the_original_are_those_of_the_copy(scene: Stage) -> None:
    """All clusters have this machine's clock: clocks that differ are for the unit tests of the mirror."""
    here = await scene.ended("indexed")
    there = await scene.status("indexed", await scene.worker_of("indexed"))
    assert (here["startTime"], here["completionTime"]) == (there["startTime"], there["completionTime"])
    assert here["startTime"] <= here["completionTime"]


async def test_a_job_that_is_gone_leaves_nothing_on_any_cluster(scene: Stage) -> None:
    """With its pods, which kubelets have to let go."""
    name = "exit-0"
    await scene.ended(name)
    worker = await scene.worker_of(name)
    await scene.management.delete(JOBS, name, scene.namespace)
    await eventually(lambda: _is_gone(scene, name, worker))
    await eventually(lambda: scene.pods(name, worker), lambda pods: not pods)


async def _is_gone(stage: Stage, name: str, worker: str) -> bool:
    try:
        await stage.job(name, worker)
    except NotFound:
        return True
    return False

"""A real kubectl says the same on every kind of cluster, and nothing on stderr that it does not say on a real one.

What it printed on a real cluster is written down here word for word, with what changes from run to run masked.
"""

import asyncio
import contextlib
import json
import os
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from clusters.local import BinariesMissingError, find_kubectl
from clusters.nodes import PREFIX, NodeOptions, SimulatedNodes
from multimirror.kube import Connection
from tests.contract.conftest import Server
from tests.contract.objects import configmap, job, owner, pod, widget, widgets
from tests.contract.wire import Api, Object
from tests.waiting import DEADLINE

JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: hello
spec:
  managedBy: example.com/contract
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: example.com/app:1
"""
DONE = {
    "startTime": "2026-11-01T10:00:00Z",
    "completionTime": "2026-11-01T10:02:30Z",
    "succeeded": 1,
    "conditions": [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")],
}


@dataclass
class Kubectl:
    """kubectl in one test's namespace, with a home of its own."""

    program: Path
    home: Path
    kubeconfig: Path
    namespace: str

    async def __call__(self, *arguments: str, stdin: str = "", code: int = 0, stderr: str = "", **env: str) -> str:
        """What it prints, masked; it must end with this code and say exactly this on stderr."""
        async with self.started(*arguments, **env) as process, asyncio.timeout(DEADLINE):
            out, err = await process.communicate(stdin.encode())
        said = self.masked(err.decode())
        assert (process.returncode, said) == (code, stderr), f"kubectl {arguments}: {said}\n{out.decode()}"
        return self.masked(out.decode())

    @contextlib.asynccontextmanager
    async def started(self, *arguments: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            self.program,
            *arguments,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=self.home,
            env={"HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig), "PATH": os.environ["PATH"], **env},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    def masked(self, text: str) -> str:
        text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
        text = re.sub(r"resourceVersion: \"\d+\"", "resourceVersion: VERSION", text)
        text = text.replace(self.namespace, "NAMESPACE")
        return re.sub(r"(?<=\s)\d+s(?=\s)", "AGE", text)


def lines(text: str) -> list[list[str]]:
    """The cells of a printed table: columns move with the widths of what is in them."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


@pytest_asyncio.fixture(loop_scope="session")
async def kubectl(cluster: Server, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    try:
        program = await asyncio.to_thread(find_kubectl)
    except BinariesMissingError as error:
        pytest.skip(str(error))
    # One home for all tests of a kind: kubectl keeps there what it has learnt of the server.
    home = tmp_path_factory.getbasetemp() / f"kubectl-{cluster.kind}"
    home.mkdir(exist_ok=True)
    kubeconfig = home / f"{api.namespace}.json"
    config = json.loads(json.dumps(cluster.kubeconfig))
    for context in config["contexts"]:
        context["context"]["namespace"] = api.namespace
    kubeconfig.write_text(json.dumps(config))
    return Kubectl(program, home, kubeconfig, api.namespace)


async def finish(api: Api, name: str) -> None:
    (await api.patch(api.at("jobs", name, "status"), {"status": DONE})).ok()


async def test_create_from_a_file(kubectl: Kubectl) -> None:
    assert await kubectl("create", "-f", "-", stdin=JOB) == "job.batch/hello created\n"
    exists = 'Error from server (AlreadyExists): error when creating "STDIN": jobs.batch "hello" already exists\n'
    await kubectl("create", "-f", "-", stdin=JOB, code=1, stderr=exists)


async def test_create_tells_what_is_wrong_with_a_job(kubectl: Kubectl) -> None:
    bad = JOB.replace("restartPolicy: Never", "restartPolicy: Always").replace("hello", "bad")
    said = 'The Job "bad" is invalid: spec.template.spec.restartPolicy: Required value: valid values: '
    said += '"OnFailure", "Never"\n'
    await kubectl("create", "-f", "-", stdin=bad, code=1, stderr=said)


async def test_create_refuses_a_field_that_it_does_not_know(kubectl: Kubectl) -> None:
    unknown = JOB.replace("spec:\n  managed", "spec:\n  paralelism: 2\n  managed")
    said = (
        'Error from server (BadRequest): error when creating "STDIN": Job in version "v1" cannot be handled as a Job: '
        'strict decoding error: unknown field "spec.paralelism"\n'
    )
    await kubectl("create", "-f", "-", stdin=unknown, code=1, stderr=said)
    warned = 'Warning: unknown field "spec.paralelism"\n'
    await kubectl("create", "--validate=warn", "-f", "-", stdin=unknown, stderr=warned)


async def test_get_jobs(kubectl: Kubectl, api: Api) -> None:
    await api.made("jobs", job("hello"))
    await api.made("jobs", job("done"))
    await finish(api, "done")
    assert lines(await kubectl("get", "jobs")) == [
        ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"],
        ["done", "Complete", "1/1", "2m30s", "AGE"],
        ["hello", "Running", "0/1", "AGE"],
    ]
    assert lines(await kubectl("get", "jobs", "-o", "wide"))[1:] == [
        [
            "done",
            "Complete",
            "1/1",
            "2m30s",
            "AGE",
            "main",
            "example.com/app:1",
            "batch.kubernetes.io/controller-uid=UID",
        ],
        ["hello", "Running", "0/1", "AGE", "main", "example.com/app:1", "batch.kubernetes.io/controller-uid=UID"],
    ]
    assert await kubectl("get", "job", "hello", "-o", "name") == "job.batch/hello\n"
    assert await kubectl("get", "job", "done", "-o", "jsonpath={.status.succeeded}") == "1"
    shown = await kubectl("get", "jobs", "-o", "custom-columns=N:.metadata.name,M:.spec.managedBy", "--no-headers")
    assert lines(shown) == [["done", "example.com/contract"], ["hello", "example.com/contract"]]
    assert lines(await kubectl("get", "jobs", "-A", "--field-selector", "metadata.namespace=" + api.namespace))[1][
        :2
    ] == [
        "NAMESPACE",
        "done",
    ]
    assert (
        lines(await kubectl("get", "jobs", "--sort-by=.metadata.creationTimestamp", "-l", "job-name=done"))[1][0]
        == "done"
    )


async def test_get_as_yaml(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=JOB)
    assert (
        await kubectl("get", "job", "hello", "-o", "yaml")
        == """\
apiVersion: batch/v1
kind: Job
metadata:
  creationTimestamp: "TIME"
  generation: 1
  labels:
    batch.kubernetes.io/controller-uid: UID
    batch.kubernetes.io/job-name: hello
    controller-uid: UID
    job-name: hello
  name: hello
  namespace: NAMESPACE
  resourceVersion: VERSION
  uid: UID
spec:
  backoffLimit: 6
  completionMode: NonIndexed
  completions: 1
  managedBy: example.com/contract
  manualSelector: false
  parallelism: 1
  podReplacementPolicy: TerminatingOrFailed
  selector:
    matchLabels:
      batch.kubernetes.io/controller-uid: UID
  suspend: false
  template:
    metadata:
      labels:
        batch.kubernetes.io/controller-uid: UID
        batch.kubernetes.io/job-name: hello
        controller-uid: UID
        job-name: hello
    spec:
      containers:
      - image: example.com/app:1
        imagePullPolicy: IfNotPresent
        name: main
        resources: {}
        terminationMessagePath: /dev/termination-log
        terminationMessagePolicy: File
      dnsPolicy: ClusterFirst
      restartPolicy: Never
      schedulerName: default-scheduler
      securityContext: {}
      terminationGracePeriodSeconds: 30
status: {}
"""
    )


async def test_get_several_kinds_at_once(kubectl: Kubectl, api: Api) -> None:
    await api.made("jobs", job("hello"))
    await api.made("pods", pod("one", nodeName="n1"))
    assert lines(await kubectl("get", "jobs,pods")) == [
        ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"],
        ["job.batch/hello", "Running", "0/1", "AGE"],
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE"],
        ["pod/one", "0/1", "Pending", "0", "AGE"],
    ]
    everything = await kubectl("get", "all")
    assert "job.batch/hello" in everything
    assert "pod/one" in everything


@pytest.mark.usefixtures("widget_crd")
async def test_get_custom_resources(kubectl: Kubectl, api: Api) -> None:
    (await api.post(widgets(api.namespace), widget("a", size=7))).ok(201)
    assert lines(await kubectl("get", "widgets")) == [["NAME", "SIZE", "PHASE", "AGE"], ["a", "7", "AGE"]]
    assert lines(await kubectl("get", "widget", "a", "-o", "wide"))[0] == ["NAME", "SIZE", "PHASE", "COLOUR", "AGE"]
    assert await kubectl("patch", "widget", "a", "--type=merge", "-p", '{"spec":{"size":8}}') == (
        "widget.contract.example.com/a patched\n"
    )
    assert "Size:" in await kubectl("describe", "widget", "a")


async def test_get_of_nothing(kubectl: Kubectl) -> None:
    assert await kubectl("get", "jobs", stderr="No resources found in NAMESPACE namespace.\n") == ""
    missing = 'Error from server (NotFound): jobs.batch "nope" not found\n'
    await kubectl("get", "job", "nope", code=1, stderr=missing)
    await kubectl("get", "robots", code=1, stderr='error: the server doesn\'t have a resource type "robots"\n')
    assert await kubectl("get", "job", "nope", "--ignore-not-found") == ""


async def test_get_and_watch(kubectl: Kubectl, api: Api) -> None:
    await api.made("jobs", job("hello"))
    async with kubectl.started("get", "jobs", "-w") as process, asyncio.timeout(DEADLINE):
        assert process.stdout is not None
        header, first = [(await process.stdout.readline()).decode().split() for _ in range(2)]
        assert header == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
        assert first[:3] == ["hello", "Running", "0/1"]
        await finish(api, "hello")
        assert (await process.stdout.readline()).decode().split()[:4] == ["hello", "Complete", "1/1", "2m30s"]


async def test_describe_a_job(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=JOB)
    assert (
        await kubectl("describe", "job", "hello")
        == """\
Name:             hello
Namespace:        NAMESPACE
Selector:         batch.kubernetes.io/controller-uid=UID
Labels:           batch.kubernetes.io/controller-uid=UID
                  batch.kubernetes.io/job-name=hello
                  controller-uid=UID
                  job-name=hello
Annotations:      <none>
Parallelism:      1
Completions:      1
Completion Mode:  NonIndexed
Suspend:          false
Backoff Limit:    6
Pods Statuses:    0 Active / 0 Succeeded / 0 Failed
Pod Template:
  Labels:  batch.kubernetes.io/controller-uid=UID
           batch.kubernetes.io/job-name=hello
           controller-uid=UID
           job-name=hello
  Containers:
   main:
    Image:         example.com/app:1
    Port:          <none>
    Host Port:     <none>
    Environment:   <none>
    Mounts:        <none>
  Volumes:         <none>
  Node-Selectors:  <none>
  Tolerations:     <none>
Events:            <none>
"""
    )


async def test_describe_other_kinds(kubectl: Kubectl, api: Api) -> None:
    await api.made("pods", pod("one", nodeName="n1"))
    described = await kubectl("describe", "pod", "one")
    for line in ("Name:             one", "Node:             n1/", "Status:           Pending", "QoS Class:"):
        assert line in described
    assert "Status:       Active" in await kubectl("describe", "namespace", api.namespace)
    await kubectl("create", "cronjob", "tick", "--image=example.com/app:1", "--schedule=0 0 1 1 *")
    assert "Concurrency Policy:            Allow" in await kubectl("describe", "cronjob", "tick")


async def test_apply_from_the_client(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "-f", "-", stdin=JOB) == "job.batch/hello created\n"
    assert await kubectl("apply", "-f", "-", stdin=JOB) == "job.batch/hello unchanged\n"
    more = JOB.replace("spec:\n  managed", "spec:\n  parallelism: 3\n  managed")
    assert await kubectl("apply", "-f", "-", stdin=more) == "job.batch/hello configured\n"
    assert await kubectl("get", "job", "hello", "-o", "jsonpath={.spec.parallelism}") == "3"
    assert await kubectl("diff", "-f", "-", stdin=more) == ""
    assert (
        await kubectl("apply", "--dry-run=server", "-f", "-", stdin=JOB)
        == "job.batch/hello configured (server dry run)\n"
    )
    assert await kubectl("apply", "view-last-applied", "job/hello", "-o", "json")


async def test_apply_to_what_was_created_otherwise_is_warned_of(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=JOB)
    warning = (
        "Warning: resource jobs/hello is missing the kubectl.kubernetes.io/last-applied-configuration annotation which "
        "is required by kubectl apply. kubectl apply should only be used on resources created declaratively by either "
        "kubectl create --save-config or kubectl apply. The missing annotation will be patched automatically.\n"
    )
    assert await kubectl("apply", "-f", "-", stdin=JOB, stderr=warning) == "job.batch/hello configured\n"


async def test_apply_from_the_server(kubectl: Kubectl, api: Api) -> None:
    assert await kubectl("apply", "--server-side", "-f", "-", stdin=JOB) == "job.batch/hello serverside-applied\n"
    other = JOB.replace("spec:\n  managed", "spec:\n  parallelism: 3\n  managed")
    server = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    assert await kubectl(*server, stdin=other) == "job.batch/hello serverside-applied\n"
    conflict = other.replace("parallelism: 3", "parallelism: 4")
    said = """\
error: Apply failed with 1 conflict: conflict with "other": .spec.parallelism
Please review the fields above--they currently have other managers. Here
are the ways you can resolve this warning:
* If you intend to manage all of these fields, please re-run the apply
  command with the `--force-conflicts` flag.
* If you do not intend to manage all of the fields, please edit your
  manifest to remove references to the fields that should keep their
  current managers.
* You may co-own fields by updating your manifest to match the existing
  value; in this case, you'll become the manager if the other manager(s)
  stop managing the field (remove it from their configuration).
See https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts
"""
    await kubectl("apply", "--server-side", "-f", "-", stdin=conflict, code=1, stderr=said)
    forced = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    assert await kubectl(*forced, stdin=conflict) == "job.batch/hello serverside-applied\n"
    assert (await api.read("jobs", "hello"))["spec"]["parallelism"] == 4


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("strategic", '{"spec":{"parallelism":5}}'),
        ("merge", '{"spec":{"parallelism":5}}'),
        ("json", '[{"op":"replace","path":"/spec/parallelism","value":5}]'),
    ],
)
async def test_patch(kubectl: Kubectl, api: Api, kind: str, body: str) -> None:
    await api.made("jobs", job("hello"))
    patch = ("patch", "job", "hello", "--type", kind, "-p", body)
    assert await kubectl(*patch) == "job.batch/hello patched\n"
    assert await kubectl(*patch) == "job.batch/hello patched (no change)\n"
    assert (await api.read("jobs", "hello"))["spec"]["parallelism"] == 5


async def test_patch_a_status(kubectl: Kubectl, api: Api) -> None:
    await api.made("jobs", job("hello"))
    patch = ("patch", "job", "hello", "--subresource=status", "--type=merge", "-p", '{"status":{"active":1}}')
    assert await kubectl(*patch) == "job.batch/hello patched\n"
    assert (await api.read("jobs", "hello"))["status"] == {"active": 1}
    refused = ("patch", "job", "hello", "--subresource=status", "--type=merge", "-p", '{"status":{"ready":2}}')
    said = 'The Job "hello" is invalid: status.ready: Invalid value: 2: cannot set more ready pods than active\n'
    await kubectl(*refused, code=1, stderr=said)


async def test_replace_and_edit(kubectl: Kubectl, api: Api) -> None:
    made = await api.made("jobs", job("hello"))
    made["spec"]["backoffLimit"] = 2
    assert await kubectl("replace", "-f", "-", stdin=json.dumps(made)) == "job.batch/hello replaced\n"
    conflict = (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on '
        'jobs.batch "hello": the object has been modified; '
        "please apply your changes to the latest version and try again\n"
    )
    await kubectl("replace", "-f", "-", stdin=json.dumps(made), code=1, stderr=conflict)
    editor = "sed -i s/parallelism:.*/parallelism:\\ 5/"
    assert await kubectl("edit", "job", "hello", EDITOR=editor) == "job.batch/hello edited\n"
    spec = (await api.read("jobs", "hello"))["spec"]
    assert (spec["parallelism"], spec["backoffLimit"]) == (5, 2)


async def test_label_and_annotate(kubectl: Kubectl, api: Api) -> None:
    await api.made("jobs", job("hello"))
    assert await kubectl("label", "job", "hello", "colour=red") == "job.batch/hello labeled\n"
    said = "error: 'colour' already has a value (red), and --overwrite is false\n"
    await kubectl("label", "job", "hello", "colour=blue", code=1, stderr=said)
    assert await kubectl("label", "job", "hello", "colour=blue", "--overwrite") == "job.batch/hello labeled\n"
    assert await kubectl("label", "job", "hello", "colour-") == "job.batch/hello unlabeled\n"
    assert await kubectl("annotate", "job", "hello", "note=hi") == "job.batch/hello annotated\n"
    metadata = (await api.read("jobs", "hello"))["metadata"]
    assert metadata["annotations"] == {"note": "hi"}
    assert "colour" not in metadata["labels"]


@pytest.mark.parametrize(("cascade", "stays"), [("background", False), ("foreground", False), ("orphan", True)])
async def test_delete(kubectl: Kubectl, api: Api, cascade: str, stays: bool) -> None:
    made = await api.made("jobs", job("hello"))
    refs = [owner(made, controller=True, blockOwnerDeletion=True)]
    await api.made("configmaps", configmap("child", ownerReferences=refs))
    assert await kubectl("delete", "job", "hello", f"--cascade={cascade}") == (
        'job.batch "hello" deleted from NAMESPACE namespace\n'
    )
    (await api.get(api.at("jobs", "hello"))).refused(404, "NotFound")
    if stays:
        assert "ownerReferences" not in (await api.read("configmaps", "child"))["metadata"]
    else:
        await api.gone("configmaps", "child")


async def test_delete_several(kubectl: Kubectl, api: Api) -> None:
    for name in ("a", "b"):
        await api.made("jobs", job(name, metadata={"labels": {"set": "x"}}))
    deleted = await kubectl("delete", "jobs", "-l", "set=x")
    assert deleted == 'job.batch "a" deleted from NAMESPACE namespace\njob.batch "b" deleted from NAMESPACE namespace\n'
    missing = 'Error from server (NotFound): jobs.batch "a" not found\n'
    await kubectl("delete", "job", "a", code=1, stderr=missing)
    await api.made("pods", pod("p", nodeName="n1"))
    now = "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. "
    now += "The resource may continue to run on the cluster indefinitely.\n"
    deleted = await kubectl("delete", "pod", "p", "--force", "--grace-period=0", stderr=now)
    assert deleted == 'pod "p" force deleted from NAMESPACE namespace\n'


async def test_wait_for_a_condition(kubectl: Kubectl, api: Api) -> None:
    await api.made("jobs", job("hello"))
    late = "error: condition not met for jobs/hello\n"
    await kubectl("wait", "--for=condition=complete", "job/hello", "--timeout=0s", code=1, stderr=late)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(kubectl("wait", "--for=condition=complete", "job/hello", "--timeout=60s"))
        await finish(api, "hello")
    assert waiting.result() == "job.batch/hello condition met\n"
    async with asyncio.TaskGroup() as group:
        deletion = group.create_task(kubectl("wait", "--for=delete", "job/hello", "--timeout=60s"))
        (await api.delete(api.at("jobs", "hello"), propagationPolicy="Background")).ok()
    assert deletion.result() in ("", "job.batch/hello condition met\n")


async def test_events(kubectl: Kubectl, api: Api) -> None:
    made = await api.made("jobs", job("hello"))
    event = {
        "metadata": {"name": "hello.1"},
        "involvedObject": {"apiVersion": "batch/v1", "kind": "Job", "name": "hello", "namespace": api.namespace}
        | {"uid": made["metadata"]["uid"]},
        "reason": "Dispatched",
        "message": "to worker-1",
        "type": "Normal",
        "count": 1,
        "source": {"component": "contract"},
        "firstTimestamp": made["metadata"]["creationTimestamp"],
        "lastTimestamp": made["metadata"]["creationTimestamp"],
    }
    await api.made("events", event)
    assert lines(await kubectl("events")) == [
        ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"],
        ["AGE", "Normal", "Dispatched", "Job/hello", "to worker-1"],
    ]
    assert lines(await kubectl("events", "--for", "job/hello"))[1][2] == "Dispatched"
    assert lines(await kubectl("get", "events")) == [
        ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"],
        ["AGE", "Normal", "Dispatched", "job/hello", "to worker-1"],
    ]
    assert lines(await kubectl("describe", "job", "hello"))[-1] == [
        "Normal",
        "Dispatched",
        "AGE",
        "contract",
        "to worker-1",
    ]


async def test_explain_a_job(kubectl: Kubectl) -> None:
    told = await kubectl("explain", "job")
    assert told.startswith("GROUP:      batch\nKIND:       Job\nVERSION:    v1\n\nDESCRIPTION:\n")
    for field in ("apiVersion\t<string>", "metadata\t<ObjectMeta>", "spec\t<JobSpec>", "status\t<JobStatus>"):
        assert f"\n  {field}\n" in told
    assert "FIELD: managedBy <string>" in await kubectl("explain", "job.spec.managedBy")
    rules = await kubectl("explain", "job.spec.podFailurePolicy.rules", "--recursive")
    assert "FIELD: rules <[]PodFailurePolicyRule>" in rules
    for field in ("  action\t<string> -required-", "    values\t<[]integer> -required-"):
        assert f"\n{field}\n" in rules
    missing = 'error: field "nothing" does not exist\n'
    await kubectl("explain", "job.spec.nothing", code=1, stderr=missing)


@pytest.mark.usefixtures("widget_crd")
async def test_api_resources(kubectl: Kubectl) -> None:
    assert lines(await kubectl("api-resources", "--api-group=batch")) == [
        ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"],
        ["cronjobs", "cj", "batch/v1", "true", "CronJob"],
        ["jobs", "batch/v1", "true", "Job"],
    ]
    names = (await kubectl("api-resources", "-o", "name")).split()
    assert {"pods", "jobs.batch", "leases.coordination.k8s.io", "customresourcedefinitions.apiextensions.k8s.io"} <= {
        *names
    }
    assert {"v1", "batch/v1", "coordination.k8s.io/v1"} <= {*(await kubectl("api-versions")).split()}


async def test_logs_without_a_node(kubectl: Kubectl, api: Api) -> None:
    await api.made("pods", pod("p"))
    assert await kubectl("logs", "p") == ""
    missing = 'error: error from server (NotFound): pods "nope" not found in namespace "NAMESPACE"\n'
    await kubectl("logs", "nope", code=1, stderr=missing)


async def test_logs(kubectl: Kubectl, api: Api, cluster: Server) -> None:
    prefix = f"node-{secrets.token_hex(4)}-"
    # These nodes look after the pods that name one of them, and leave all others alone.
    nodes = NodeOptions(count=1, prefix=prefix, bind=False)
    made = await api.made("jobs", job("hello"))
    told = {"labels": {"job-name": "hello"}, "annotations": {f"{PREFIX}log": "one\ntwo\nthree"}}
    refs = {"ownerReferences": [owner(made, controller=True)]}
    body = pod("p", metadata=told | refs, nodeName=f"{prefix}1", restartPolicy="Never")
    async with SimulatedNodes(Connection.from_kubeconfig(cluster.kubeconfig), nodes):
        await api.made("pods", body)
        done = {"fieldSelector": "metadata.name=p,status.phase=Succeeded"}
        await api.watched(api.at("pods"), lambda kind, _: kind == "ADDED", **done)
        assert await kubectl("logs", "p") == "one\ntwo\nthree\n"
        assert await kubectl("logs", "p", "--tail=1", "-c", "main") == "three\n"
        assert await kubectl("logs", "-f", "p") == "one\ntwo\nthree\n"
        assert await kubectl("logs", "-l", "job-name=hello", "--prefix", "--tail=1") == "[pod/p/main] three\n"
    (await api.delete(f"/api/v1/nodes/{prefix}1")).ok()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["job", "quick", "--image=example.com/app:1"], "job.batch/quick created\n"),
        (["configmap", "c", "--from-literal=a=b"], "configmap/c created\n"),
        (["secret", "generic", "s", "--from-literal=a=b"], "secret/s created\n"),
        (["serviceaccount", "robot"], "serviceaccount/robot created\n"),
        (["role", "r", "--verb=get", "--resource=jobs"], "role.rbac.authorization.k8s.io/r created\n"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_create_by_hand(kubectl: Kubectl, arguments: list[str], said: str) -> None:
    assert await kubectl("create", *arguments) == said


async def test_create_a_job_from_a_cronjob(kubectl: Kubectl, api: Api) -> None:
    await kubectl("create", "cronjob", "tick", "--image=example.com/app:1", "--schedule=0 0 1 1 *")
    assert await kubectl("create", "job", "by-hand", "--from=cronjob/tick") == "job.batch/by-hand created\n"
    made = await api.read("jobs", "by-hand")
    assert made["metadata"]["annotations"] == {"cronjob.kubernetes.io/instantiate": "manual"}
    assert made["metadata"]["ownerReferences"][0]["kind"] == "CronJob"


async def test_create_a_token(kubectl: Kubectl) -> None:
    assert len((await kubectl("create", "token", "default")).split(".")) == 3


async def test_the_cluster_is_known_by_its_version_and_health(kubectl: Kubectl) -> None:
    version: Object = json.loads(await kubectl("version", "-o", "json"))
    assert version["serverVersion"]["minor"] == "36"
    assert await kubectl("get", "--raw", "/readyz") == "ok"
    assert await kubectl("auth", "can-i", "create", "jobs") == "yes\n"
    assert "running at" in await kubectl("cluster-info")


async def test_run_and_wait_for_a_pod(kubectl: Kubectl, api: Api) -> None:
    assert await kubectl("run", "p", "--image=example.com/app:1", "--restart=Never") == "pod/p created\n"
    conditions: list[dict[str, Any]] = [{"type": "Ready", "status": "True"}]
    (await api.patch(api.at("pods", "p", "status"), {"status": {"phase": "Running", "conditions": conditions}})).ok()
    assert await kubectl("wait", "--for=condition=ready", "pod/p", "--timeout=60s") == "pod/p condition met\n"
    assert await kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/p") == "pod/p condition met\n"
    assert await kubectl("delete", "pod", "p", "--now") == 'pod "p" deleted from NAMESPACE namespace\n'

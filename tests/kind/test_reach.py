"""The dispatcher's address of a worker and the operator's are two: commands work from outside, and in the pod.

On kind the dispatcher reaches workers by names that only Docker's network knows; from this host they are ports of
127.0.0.1. Both are what `join --server` was given, and what it has recorded.
"""

import contextlib
from collections.abc import AsyncIterator

from multimirror.api import ORIGIN_UID_LABEL
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import JOBS, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from multimirror.workers.tokens import JOINED_BY_ANNOTATION
from tests.kind.installation import SYSTEM, Answer, Installation, Stage
from tests.waiting import eventually

THROUGH = "this goes through the management cluster"
IN_THE_POD = ("-n", SYSTEM, "exec", "deploy/multimirror", "-c", "dispatcher", "--", "multimirror")


async def a_job_that_has_said_hello(stage: Stage) -> str:
    """And where it was."""
    await stage.create(stage.a_job("hello", "echo", "hello from a worker"))
    assert (await stage.ended("hello"))["succeeded"] == 1
    return await stage.worker_of("hello")


async def no_copies_but_of(stage: Stage, worker: str) -> None:
    """Until those are gone that other stages have left behind: their namespaces take a while to end."""

    async def namespaces() -> set[str]:
        found = await stage.clients[worker].list(JOBS, label_selector=ORIGIN_UID_LABEL)
        return {copy["metadata"]["namespace"] for copy in found.items}

    await eventually(namespaces, lambda found: found == {stage.namespace})


@contextlib.asynccontextmanager
async def only_the_dispatcher_reaches(installation: Installation, worker: str) -> AsyncIterator[None]:
    """As for somebody on another machine, where the address of the join leads nowhere."""
    async with installation.client() as client:
        secret = f"worker-{worker}"
        before = (await client.get(SECRETS, secret, SYSTEM))["metadata"]["annotations"][JOINED_BY_ANNOTATION]
        nowhere = {JOINED_BY_ANNOTATION: "https://127.0.0.1:1"}
        await client.patch(SECRETS, secret, {"metadata": {"annotations": nowhere}}, SYSTEM)
        try:
            yield
        finally:
            there = {JOINED_BY_ANNOTATION: before}
            with contextlib.suppress(NotFound):  # it has left
                await client.patch(SECRETS, secret, {"metadata": {"annotations": there}}, SYSTEM)


async def test_commands_look_into_a_worker_whose_stored_address_is_the_dispatchers_alone(stage: Stage) -> None:
    worker = await a_job_that_has_said_hello(stage)
    here = stage.installation
    logs = await here.done("logs", "job/hello", "-n", stage.namespace)
    assert (logs.out, logs.err) == ("hello from a worker\n", ""), "straight, and nobody need be told"
    assert "Created pod: hello-" in (await here.done("events", "job/hello", "-n", stage.namespace)).out
    assert "not shown" not in (await here.done("explain", "job/hello", "-n", stage.namespace)).out
    told = await here.done("doctor")
    assert f"ok       worker {worker}: Reachable: it answers here at https://127.0.0.1:" in told.out


async def test_commands_go_through_the_management_cluster_where_there_is_no_other_way(stage: Stage) -> None:
    worker = await a_job_that_has_said_hello(stage)
    here = stage.installation
    async with only_the_dispatcher_reaches(here, worker):
        logs = await here.done("logs", "job/hello", "-n", stage.namespace)
        assert logs.out == "hello from a worker\n"
        assert logs.err == f"note: worker {worker} cannot be reached from here; {THROUGH}\n"
        assert "Created pod: hello-" in (await here.done("events", "job/hello", "-n", stage.namespace)).out
        assert "pod hello-" in (await here.done("explain", "job/hello", "-n", stage.namespace)).out
        assert (
            f"worker {worker}: Reachable: it answers here through the management cluster"
            in (await here.done("doctor")).out
        )


async def test_a_worker_leaves_through_the_management_cluster_and_its_token_is_revoked(stage: Stage) -> None:
    worker = await a_job_that_has_said_hello(stage)
    here = stage.installation
    try:
        async with only_the_dispatcher_reaches(here, worker):
            await no_copies_but_of(stage, worker)
            left = await here.done("leave", worker)
            assert "removed 1 finished copy there" in left.out
            assert f"revoked the token of {worker}" in left.out
    finally:
        await here.join(worker)


async def test_who_may_not_exec_is_told_what_was_tried_and_what_is_missing(stage: Stage) -> None:
    worker = await a_job_that_has_said_hello(stage)
    here = stage.installation
    async with only_the_dispatcher_reaches(here, worker), somebody_who_may_only_read(stage) as token:
        asked = ("logs", "job/hello", "-n", stage.namespace)
        answer = await as_somebody(stage, token, *asked)
    assert answer.code == 3, answer
    assert "-control-plane:6443, as the dispatcher does: " in answer.err
    assert "https://127.0.0.1:1, by which it was joined: Connection refused" in answer.err
    assert f"it needs `list pods`, and `get` and `create` on pods/exec, in namespace {SYSTEM}" in answer.err


async def test_in_the_pod_commands_use_its_account_and_the_doctor_says_what_it_did_not_check(stage: Stage) -> None:
    worker = await a_job_that_has_said_hello(stage)
    here = stage.installation
    told = await here.kubectl_done(*IN_THE_POD, "doctor")
    assert f"ok       worker {worker}: WorkerCluster: the dispatcher finds it ready" in told.out
    assert f"worker {worker}: Reachable: it answers here at https://" in told.out
    assert ", as the dispatcher does" in told.out
    assert "not checked" in told.out
    assert "\nfault" not in told.out
    logs = await here.kubectl_done(*IN_THE_POD, "logs", "job/hello", "-n", stage.namespace)
    assert logs.out == "hello from a worker\n"


@contextlib.asynccontextmanager
async def somebody_who_may_only_read(stage: Stage) -> AsyncIterator[str]:
    """Jobs in the stage, WorkerClusters, and all in our namespace; the token of an account."""
    name, read = stage.namespace, ["get", "list", "watch"]
    here = {"kind": "ServiceAccount", "name": "reader", "namespace": name}
    role = {"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": ["secrets", "pods"], "verbs": read}]}
    reference = {"apiGroup": ROLES.group, "kind": "Role", "name": name}
    await stage.management.create(SERVICE_ACCOUNTS, {"metadata": {"name": "reader"}}, name)
    await stage.management.create(ROLES, role, SYSTEM)
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [here]}
    await stage.management.create(ROLE_BINDINGS, binding, SYSTEM)
    kubectl = stage.installation.kubectl_done
    account = f"--serviceaccount={name}:reader"
    try:
        await kubectl("create", "clusterrolebinding", name, "--clusterrole=multimirror-viewer", account)
        await kubectl("create", "rolebinding", name, "--clusterrole=view", account, "-n", name)
        yield (await kubectl("create", "token", "reader", "-n", name)).out.strip()
    finally:
        await stage.management.delete(ROLES, name, SYSTEM)
        await stage.management.delete(ROLE_BINDINGS, name, SYSTEM)
        await kubectl("delete", "clusterrolebinding", name, "--ignore-not-found")


async def as_somebody(stage: Stage, token: str, *arguments: str) -> Answer:
    here = stage.installation
    file = here.kubeconfig().with_name(f"{stage.namespace}.kubeconfig")
    file.write_bytes(here.kubeconfig().read_bytes())
    for words in (
        ("set-credentials", "somebody", f"--token={token}"),
        ("set-context", "--current", "--user=somebody"),
    ):
        answer = await here.kubectl("config", *words, "--kubeconfig", str(file))
        assert answer.code == 0, answer
    return await here.multimirror(*arguments, "--kubeconfig", str(file))

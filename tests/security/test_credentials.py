"""A stolen worker token: what it is worth, for how long, and what ends it."""

import asyncio
import base64
import contextlib
import io
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.local import LocalCluster, LocalFleet, LocalOptions
from multimirror.api import WORKER_CLUSTERS
from multimirror.cli import main
from multimirror.dispatcher import Dispatcher
from multimirror.kube import Client, Connection
from multimirror.kube.errors import Forbidden, NotFound, Unauthorized
from multimirror.kube.resources import CLUSTER_ROLE_BINDINGS, EVENTS, JOBS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from multimirror.options import DispatcherOptions
from multimirror.workers.tokens import REVOKE_ANNOTATION, claims_of
from tests.e2e.installation.processes import multimirror, token_of
from tests.security.installation import SYSTEM, Installation, a_job, unique
from tests.waiting import DEADLINE, eventually

Json = dict[str, Any]
REMEMBERED = 12.0
"""An API server remembers for ten seconds that a token was good."""

_TOKENS = SERVICE_ACCOUNTS.path(SYSTEM, "multimirror", "token")
_UNBOUND: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
_FOR_GOOD: Json = {
    "metadata": {"name": "for-good", "annotations": {"kubernetes.io/service-account.name": "multimirror"}},
    "type": "kubernetes.io/service-account-token",
}


def privileged(name: str) -> Json:
    job = a_job(name, None)
    pod = job["spec"]["template"]["spec"]
    pod["hostPID"] = True
    pod["containers"][0]["securityContext"] = {"privileged": True}
    return job


async def stored_token(installation: Installation, worker: str) -> str:
    """What a thief finds: it is in the Secret of the management cluster, or was in a backup of it."""
    secret = await installation.admin.get(SECRETS, f"worker-{worker}", SYSTEM)
    config = yaml.safe_load(base64.b64decode(secret["data"]["kubeconfig"]))
    return str(config["users"][0]["user"]["token"])


@asynccontextmanager
async def thief(installation: Installation, cluster: str, token: str) -> AsyncIterator[Client]:
    there = installation.fleet.workers[cluster]
    assert isinstance(there, LocalCluster)
    async with Client(Connection.from_kubeconfig(there.kubeconfig_with_token(token))) as client:
        yield client


async def limited(installation: Installation, cluster: str, token: str) -> None:
    """Policies are in force a moment after they were made."""
    async with asyncio.timeout(DEADLINE), thief(installation, cluster, token) as client:
        while True:
            with contextlib.suppress(pytest.fail.Exception):
                with pytest.raises(Forbidden):
                    await client.create(JOBS, a_job("probe", None), "kube-system", dry_run=True)
                with pytest.raises(Forbidden):
                    await client.create(SECRETS, _FOR_GOOD, SYSTEM, dry_run=True)
                with pytest.raises(Forbidden):
                    await client.request("POST", _TOKENS, body=_UNBOUND, headers={"Content-Type": "application/json"})
                return
            await asyncio.sleep(0.05)


async def join(installation: Installation, name: str, cluster: str, *flags: str) -> tuple[int, str, str]:
    management = str(installation.fleet.kubeconfig_file())
    done = await multimirror(
        *("join", name, "--management-kubeconfig", management, "--timeout", "0s", *flags),
        kubeconfig=installation.fleet.kubeconfig_file(cluster),
    )
    return done.code, done.out, done.err


async def leave(installation: Installation, name: str) -> str:
    """With nothing but the management cluster's kubeconfig."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        management = str(installation.fleet.kubeconfig_file())
        code = await asyncio.to_thread(main, ["leave", name, "--force", "--management-kubeconfig", management])
    assert code == 0, out.getvalue()
    return out.getvalue()


async def until_refused(client: Client) -> float:
    """How many seconds it takes until the API server does not know the token any more."""
    began = time.monotonic()
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await client.get(NAMESPACES, "kube-system")
            except Unauthorized:
                return time.monotonic() - began
            await asyncio.sleep(0.2)


async def test_a_stolen_token_runs_nothing_next_to_the_clusters_own_secrets(installation: Installation) -> None:
    token = await stored_token(installation, "worker-1")
    await limited(installation, "worker-1", token)
    async with thief(installation, "worker-1", token) as client:
        for namespace in ("kube-system", "kube-public", "kube-node-lease", SYSTEM):
            with pytest.raises(Forbidden, match=f"multimirror runs no Jobs in namespace {namespace}"):
                await client.create(JOBS, privileged("owned"), namespace)
        victim = a_job("victim", None)
        await installation.workers["worker-1"].create(JOBS, victim, "kube-system")
        with pytest.raises(Forbidden):
            await client.delete(JOBS, "victim", "kube-system")
        with pytest.raises(Forbidden):
            await client.patch(JOBS, "victim", {"spec": {"suspend": True}}, "kube-system")
    await installation.workers["worker-1"].delete(JOBS, "victim", "kube-system", propagation="Background")


async def test_a_stolen_token_ends_within_a_day_and_begets_none_that_lasts(installation: Installation) -> None:
    token = await stored_token(installation, "worker-1")
    claims = claims_of(token)
    assert claims is not None
    assert claims.expires is not None
    assert claims.expires - claims.issued <= 24 * 3600
    await limited(installation, "worker-1", token)
    async with thief(installation, "worker-1", token) as client:

        async def ask(**spec: Any) -> None:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            await client.request("POST", _TOKENS, body=body, headers={"Content-Type": "application/json"})

        bound = {"apiVersion": "v1", "kind": "Secret", "name": claims.secret}
        with pytest.raises(Forbidden, match="bound to a Secret of its own"):
            await ask(expirationSeconds=3600)
        with pytest.raises(Forbidden, match="a day at most"):
            await ask(expirationSeconds=365 * 24 * 3600, boundObjectRef=bound)
        with pytest.raises(Forbidden, match="bound to a Secret of its own"):
            await ask(expirationSeconds=3600, boundObjectRef={**bound, "name": "of-mine"})
        await client.create(SECRETS, {"metadata": {"name": "of-mine"}}, SYSTEM)
        with pytest.raises(Forbidden, match="bound to a Secret of its own"):
            await ask(expirationSeconds=3600, boundObjectRef={**bound, "name": "of-mine"})
        with pytest.raises(Forbidden, match="tokens which never end"):
            await client.create(SECRETS, _FOR_GOOD, SYSTEM)
        for name in ("of-mine", str(claims.secret)):
            with pytest.raises(Forbidden):
                await client.get(SECRETS, name, SYSTEM)
        with pytest.raises(Forbidden):
            await client.list(SECRETS, SYSTEM)
    await installation.workers["worker-1"].delete(SECRETS, "of-mine", SYSTEM)


async def test_the_first_join_says_whose_jobs_may_go_there_and_never_those_of_the_cluster(
    installation: Installation,
) -> None:
    code, _, err = await join(installation, unique("quiet"), "worker-2")
    assert code == 2
    assert "--namespaces team-a,team-b=research, or say --all-namespaces" in err
    for namespaces in ("kube-system", "team=kube-system", f"team={SYSTEM}"):
        code, _, err = await join(installation, unique("greedy"), "worker-2", "--namespaces", namespaces)
        assert code == 2, err
        assert "no Job ever goes to namespace" in err
    bindings = await installation.workers["worker-2"].list(CLUSTER_ROLE_BINDINGS)
    assert [each for each in bindings.items if each["metadata"]["name"] == "multimirror-worker-jobs"]


async def test_a_job_of_a_namespace_of_the_cluster_itself_is_sent_nowhere(installation: Installation) -> None:
    """Whoever may write Jobs in kube-system of the management cluster has it; of the workers he has nothing."""
    queue = await installation.queue("greedy")
    async with installation.dispatcher():
        await installation.admin.create(JOBS, a_job("greedy", queue), "kube-system")
        try:

            async def told() -> str:
                events = await installation.admin.list(EVENTS, "kube-system")
                return " ".join(each["message"] for each in events.items if each["reason"] == "Waiting")

            assert await eventually(told, lambda text: "no Job goes to kube-system of a worker" in text)
            for client in installation.workers.values():
                with pytest.raises(NotFound):
                    await client.get(JOBS, "greedy", "kube-system")
        finally:
            await installation.admin.delete(JOBS, "greedy", "kube-system", propagation="Background")


async def test_leave_revokes_what_was_stored_at_once(installation: Installation) -> None:
    name = unique("brief")
    code, _, err = await join(installation, name, "worker-2", "--all-namespaces")
    assert code == 0, err
    token = await stored_token(installation, name)
    async with thief(installation, "worker-2", token) as client:
        await client.list(NAMESPACES)
        assert f"revoked the token of {name}" in await leave(installation, name)
        assert await until_refused(client) < REMEMBERED
    # The worker's other name is another matter: its token is good.
    async with thief(installation, "worker-2", await stored_token(installation, "worker-2")) as client:
        await client.list(NAMESPACES)


async def test_a_new_token_revokes_the_one_before_at_once(installation: Installation) -> None:
    name = unique("renewed")
    await join(installation, name, "worker-2", "--all-namespaces")
    try:
        old = await stored_token(installation, name)
        async with thief(installation, "worker-2", old) as client:
            await client.list(NAMESPACES)
            code, out, err = await join(installation, name, "worker-2", "--new-token")
            assert code == 0, err
            assert "revoked the token that was stored before" in out
            assert await until_refused(client) < REMEMBERED
        new = await stored_token(installation, name)
        assert new != old
        async with thief(installation, "worker-2", new) as client:
            await client.list(NAMESPACES)
    finally:
        await leave(installation, name)


async def test_the_dispatcher_renews_a_token_with_the_shipped_rights_and_jobs_go_on(
    installation: Installation,
) -> None:
    """Its clock is six minutes ahead, so that a token of ten minutes has had half of its time."""
    code, _, err = await join(
        installation, "worker-1", "worker-1", "--new-token", "--token-duration", "10m", "--all-namespaces"
    )
    assert code == 0, err
    old = await stored_token(installation, "worker-1")
    management = installation.fleet.management
    assert isinstance(management, LocalCluster)
    account = management.kubeconfig_with_token(await token_of(installation.admin, "multimirror"))
    queue = await installation.queue("steady", workers={"names": ["worker-1"]})
    tenant = await installation.tenant("steady")
    ahead = 0.0
    async with (
        thief(installation, "worker-1", old) as client,
        Client(Connection.from_kubeconfig(account), user_agent="multimirror") as own,
        await Dispatcher.connect(own, DispatcherOptions(namespace=SYSTEM), clock=lambda: time.time() + ahead) as it,
    ):
        await installation.until_ready("worker-1")
        await tenant.create(a_job("long", queue))
        await tenant.until("long", lambda job: (job.get("status") or {}).get("active"))
        session = _session(it)
        ahead = 6 * 60.0

        async def renewed() -> bool:
            secret = await installation.admin.get(SECRETS, "worker-worker-1", SYSTEM)
            told = secret["metadata"].get("annotations") or {}
            return await stored_token(installation, "worker-1") != old and REVOKE_ANNOTATION not in told

        await eventually(renewed)
        assert await until_refused(client) < REMEMBERED
        assert _session(it) is session, "its session went on"
        await tenant.create(a_job("after", queue, pods={}))
        await tenant.until_complete("after")
        assert (await tenant.job("long"))["metadata"]["annotations"]["multimirror.dev/attempt"] == "1"
        cluster = await eventually(
            lambda: installation.admin.get(WORKER_CLUSTERS, "worker-1"),
            lambda found: found["status"].get("tokenExpires"),
        )
        conditions = {each["type"]: each for each in cluster["status"]["conditions"]}
        assert conditions["TokenRenewed"]["status"] == "True"
    await join(installation, "worker-1", "worker-1", "--new-token")
    await tenant.client.delete(JOBS, "long", tenant.namespace, propagation="Background")


def _session(dispatcher: Dispatcher) -> object:
    worker = dispatcher.worker("worker-1")
    assert worker is not None
    return worker.session


async def test_a_server_that_caps_tokens_gets_none_that_lasts(installation: Installation, tmp_path: Path) -> None:
    options = LocalOptions(
        workers=0,
        nodes=False,
        controllers=(),
        extra_args={"kube-apiserver": ["--service-account-max-token-expiration=1h"]},
    )
    async with LocalFleet(options) as capped:
        file = tmp_path / "capped.kubeconfig"
        file.write_text(yaml.safe_dump(capped.management.kubeconfig))
        name = unique("capped")
        done = await multimirror(
            *("join", name, "--management-kubeconfig", str(installation.fleet.kubeconfig_file())),
            *("--timeout", "0s", "--all-namespaces"),
            kubeconfig=file,
        )
        try:
            assert done.code == 0, done.err
            claims = claims_of(await stored_token(installation, name))
            assert claims is not None
            assert claims.expires is not None
            assert claims.expires - time.time() <= 3600
            async with Client(Connection.from_kubeconfig(capped.management.kubeconfig)) as admin:
                secrets = (await admin.list(SECRETS, SYSTEM)).items
            assert {each["type"] for each in secrets} == {"Opaque"}
            assert all(not each.get("data") for each in secrets), json.dumps(secrets)
        finally:
            await leave(installation, name)

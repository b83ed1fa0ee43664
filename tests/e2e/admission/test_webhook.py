"""The webhook, called by an API server: Jobs become ours or are refused; its certificates, and who registers it."""

import asyncio
import contextlib
import copy
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from multimirror.admission import PATH, AdmissionServer, Registration, Service, Webhook
from multimirror.admission.certificates import KeyPair, new_authority
from multimirror.admission.registration import covers
from multimirror.admission.server import REVIEWS
from multimirror.admission.webhook import FOREIGN, REGISTERED
from multimirror.api import (
    ATTEMPT_ANNOTATION,
    CLUSTER_ANNOTATION,
    DEFAULT_QUEUE_LABEL,
    MANAGED_BY,
    MIRROR_QUEUES,
    ORIGIN_LABEL,
    PRIORITY_LABEL,
    QUEUE_LABEL,
)
from multimirror.cli.apply import apply
from multimirror.cli.installation.authority import authority as secret_of
from multimirror.kube import ApiError, Client, Informer
from multimirror.kube.errors import Forbidden, NotFound, ServerError
from multimirror.kube.resources import JOBS, MUTATING_WEBHOOKS, NAMESPACES, SECRETS
from tests.e2e.admission.conftest import (
    Object,
    Server,
    a_job,
    a_job_of,
    a_namespace,
    a_queue,
    our_object,
    refusal,
    unique,
)
from tests.waiting import DEADLINE

OURS = {"managedBy": MANAGED_BY, "suspend": True}


@dataclass
class Clock:
    """The time, less what a test wants to pass in a moment. Certificates made by it are valid now."""

    behind: timedelta = timedelta(days=25)

    def now(self) -> datetime:
        return datetime.now(UTC) - self.behind


@dataclass
class Replica:
    server: AdmissionServer
    webhook: Webhook

    async def certificate(self) -> str:
        """What it shows to those who connect."""
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", self.server.port))


@dataclass
class Admission:
    """The webhook at work on one cluster: as many replicas as a test wants, behind the first one's address."""

    client: Client
    name: str
    at: tuple[str, str]
    """Namespace and name of the Secret."""
    namespace: str
    queue: str
    running: contextlib.AsyncExitStack
    account: Client
    """What the webhook itself speaks with."""
    clock: Clock = field(default_factory=Clock)
    replicas: list[Replica] = field(default_factory=list)

    async def start(self, *, caches: str = "followed") -> Replica:
        """`caches`: followed, as they should be; stopped, once filled; or empty."""
        informers = Informer(self.account, NAMESPACES), Informer(self.account, MIRROR_QUEUES)
        for informer in informers if caches != "empty" else ():
            await self.running.enter_async_context(informer)
            await informer.synced()
            if caches == "stopped":
                await informer.__aexit__(None, None, None)
        server = await self.running.enter_async_context(
            AdmissionServer(self.account, *informers, host="127.0.0.1", port=0)
        )
        port = self.replicas[0].server.port if self.replicas else server.port
        webhook = Webhook(
            self.account,
            server,
            self.registration(port),
            secret=self.at,
            clock=self.clock.now,
        )
        if not self.replicas:
            await self.register(new_authority(self.clock.now()), port)
        await self.running.enter_async_context(webhook)
        self.replicas.append(Replica(server, webhook))
        async with asyncio.timeout(DEADLINE):
            await webhook.registered()
        return self.replicas[-1]

    def registration(self, port: int | None = None) -> Registration:
        port = port or self.replicas[0].server.port
        return Registration(name=self.name, url=f"https://127.0.0.1:{port}{PATH}", timeout_seconds=20)

    async def register(self, authority: KeyPair, port: int | None = None, *, secret: bool = True) -> None:
        """As an installation does."""
        if secret:
            whole = {**secret_of(self.at[0], authority), "metadata": {"name": self.at[1], "namespace": self.at[0]}}
            await apply(self.client, whole)
        await apply(self.client, self.registration(port).configuration(authority.certificate))

    async def probe(self) -> bool:
        """Whether a Job that names a queue becomes ours right now."""
        job = a_job("probe", {QUEUE_LABEL: self.queue})
        made = await self.client.create(JOBS, job, self.namespace, dry_run=True)
        return "managedBy" in made["spec"]

    async def configuration(self) -> Object:
        return await self.client.get(MUTATING_WEBHOOKS, self.name)

    async def secret(self) -> Object:
        return await self.client.get(SECRETS, self.at[1], self.at[0])


@contextlib.asynccontextmanager
async def admission(
    server: Server, *, caches: str = "followed", account: Client | None = None, **names: Any
) -> AsyncIterator[Admission]:
    """One replica, called by the API server inside and forgotten by it outside."""
    client = server.client
    namespace, name = await a_namespace(client), unique("admission")
    names = {"name": name, "at": (namespace, name), **names}
    async with contextlib.AsyncExitStack() as running:
        queue = await a_queue(client)
        found = Admission(client, namespace=namespace, queue=queue, running=running, account=account or client, **names)
        await found.start(caches=caches)
        async with asyncio.timeout(DEADLINE):
            while not await found.probe():
                await asyncio.sleep(0.02)
        try:
            yield found
        finally:
            with contextlib.suppress(NotFound):
                await client.delete(MUTATING_WEBHOOKS, found.name)
            async with asyncio.timeout(DEADLINE):
                while await is_called(found):
                    await asyncio.sleep(0.02)


async def is_called(hook: Admission) -> bool:
    """Whether the API server still calls it; if it fails, that was a call."""
    try:
        return await hook.probe()
    except ApiError:
        return True


async def works(hook: Admission) -> bool:
    """Whether it is called, and answers."""
    try:
        return await hook.probe()
    except ApiError:
        return False


async def test_a_job_that_names_a_queue_becomes_ours(server: Server) -> None:
    async with admission(server) as hook:
        job = a_job("train", {QUEUE_LABEL: hook.queue, PRIORITY_LABEL: "5"})
        job["metadata"]["annotations"] = {CLUSTER_ANNOTATION: "elsewhere", ATTEMPT_ANNOTATION: "2", "kept": "yes"}
        made = await server.client.create(JOBS, job, hook.namespace)
        assert made["spec"].items() >= OURS.items()
        assert made["metadata"]["annotations"] == {"kept": "yes"}, "another Job's placement is forgotten"
        assert await server.client.get(JOBS, "train", hook.namespace) == made


async def test_a_job_in_a_namespace_with_a_default_queue_becomes_ours_and_says_so(server: Server) -> None:
    async with admission(server) as hook:
        namespace = await a_namespace(server.client, **{DEFAULT_QUEUE_LABEL: hook.queue})
        await until_called(server, namespace)
        made = await server.client.create(JOBS, a_job("plain"), namespace)
        assert made["metadata"]["labels"][QUEUE_LABEL] == hook.queue
        assert made["spec"].items() >= OURS.items()


async def until_called(server: Server, namespace: str) -> None:
    """The API server knows that the namespace has a default queue: it learns that a moment after the write."""
    async with asyncio.timeout(DEADLINE):
        while True:
            probe = await server.client.create(JOBS, a_job("probe"), namespace, dry_run=True)
            if "managedBy" in probe["spec"]:
                return
            await asyncio.sleep(0.02)


async def test_every_other_job_is_left_alone_and_mostly_not_even_seen(server: Server) -> None:
    async with admission(server) as hook:
        before = reviews()
        made = await server.client.create(JOBS, a_job("mine", {"app": "x"}), hook.namespace)
        assert made["spec"].get("managedBy") is None
        assert made["spec"]["suspend"] is False
        assert reviews() == before

        namespace = await a_namespace(server.client, **{DEFAULT_QUEUE_LABEL: hook.queue})
        await until_called(server, namespace)
        before = reviews()
        copied = a_job("copy", {ORIGIN_LABEL: "x"})
        if server.kind != "local":  # where policies are evaluated, one of ours may refuse it to everybody but us
            copied = await server.client.create(JOBS, copied, namespace)
        other = await server.client.create(JOBS, a_job("other", managedBy="example.com/other"), namespace)
        out = await server.client.create(JOBS, a_job("out", managedBy="kubernetes.io/job-controller"), namespace)
        part = a_job("part")
        owner = {"apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSet", "name": "s", "uid": "u", "controller": True}
        part["metadata"]["ownerReferences"] = [owner]
        part = await server.client.create(JOBS, part, namespace)
        managers = [job["spec"].get("managedBy") for job in (copied, other, out, part)]
        assert managers == [None, "example.com/other", "kubernetes.io/job-controller", None]
        if (
            server.kind == "local"
        ):  # matchConditions are CEL: the embedded API server asks, and hears that it is nothing
            assert reviews() == before


def reviews() -> float:
    """How many times we were asked."""
    return sum(sample.value for metric in REVIEWS.collect() for sample in metric.samples if "total" in sample.name)


async def test_refusals_are_told_in_words(server: Server) -> None:
    async with admission(server) as hook:
        foreign = await a_queue(server.client, namespaceSelector={"matchLabels": {"team": "other"}})
        told = [
            await refusal(server.client, a_job("a", {QUEUE_LABEL: "no-such-queue"}), hook.namespace),
            await refusal(server.client, a_job("b", {QUEUE_LABEL: foreign}), hook.namespace),
            await refusal(server.client, a_job("c", {QUEUE_LABEL: hook.queue}, managedBy="x/y"), hook.namespace),
            await refusal(server.client, a_job("d", {QUEUE_LABEL: hook.queue, PRIORITY_LABEL: "x"}), hook.namespace),
            await refusal(server.client, a_job("e", {QUEUE_LABEL: ""}), hook.namespace),
        ]
        assert all(isinstance(error, Forbidden) for error in told)
        said = [error.message.partition("denied the request: ")[2] for error in told]
        assert said[0].startswith(f"there is no MirrorQueue 'no-such-queue'; namespace '{hook.namespace}' may use ")
        assert said[1].startswith(f"MirrorQueue '{foreign}' may not be used from namespace '{hook.namespace}'")
        assert said[2].startswith("spec.managedBy is 'x/y', but Jobs in a queue are managed by")
        assert said[3].startswith("metadata.labels[multimirror.dev/priority]: must be a whole number")
        assert said[4].startswith("the label multimirror.dev/queue is empty")
        assert not (await server.client.list(JOBS, hook.namespace)).items


async def test_a_default_queue_that_does_not_exist_refuses_jobs(server: Server) -> None:
    async with admission(server):
        namespace = await a_namespace(server.client, **{DEFAULT_QUEUE_LABEL: "no-such-queue"})
        with pytest.raises(Forbidden, match="there is no MirrorQueue 'no-such-queue'"):
            await until_called(server, namespace)


async def test_a_dry_run_tells_the_same_and_stores_nothing(server: Server) -> None:
    async with admission(server) as hook:
        good = a_job("good", {QUEUE_LABEL: hook.queue})
        made = await server.client.create(JOBS, good, hook.namespace, dry_run=True)
        assert made["spec"].items() >= OURS.items()
        with pytest.raises(Forbidden, match="there is no MirrorQueue"):
            await server.client.create(JOBS, a_job("bad", {QUEUE_LABEL: "none"}), hook.namespace, dry_run=True)
        assert not (await server.client.list(JOBS, hook.namespace)).items


@pytest.mark.parametrize("by", ["label", "default"])
async def test_jobs_that_a_cron_job_makes_become_ours(server: Server, by: str) -> None:
    async with admission(server) as hook:
        namespace = await a_namespace(server.client, **({DEFAULT_QUEUE_LABEL: hook.queue} if by == "default" else {}))
        if by == "default":
            await until_called(server, namespace)
        template: Object = {"spec": a_job("x")["spec"]}
        if by == "label":
            template["metadata"] = {"labels": {QUEUE_LABEL: hook.queue}}
        cron = {"metadata": {"name": "nightly"}, "spec": {"schedule": "* * * * *", "jobTemplate": template}}
        job = await a_job_of(server.client, cron, namespace)
        assert job["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
        assert job["metadata"]["labels"][QUEUE_LABEL] == hook.queue
        assert job["spec"].items() >= OURS.items()


async def test_what_was_made_a_moment_ago_counts_even_if_our_caches_have_not_heard_of_it(server: Server) -> None:
    async with admission(server, caches="stopped") as hook:
        queue = await a_queue(server.client)
        named = await server.client.create(JOBS, a_job("named", {QUEUE_LABEL: queue}), hook.namespace)
        assert named["spec"].items() >= OURS.items()
        labels = {"metadata": {"labels": {DEFAULT_QUEUE_LABEL: queue}}}
        await server.client.patch(NAMESPACES, hook.namespace, labels)
        await until_called(server, hook.namespace)
        silent = await server.client.create(JOBS, a_job("silent"), hook.namespace)
        assert silent["metadata"]["labels"][QUEUE_LABEL] == queue


async def test_jobs_are_taken_before_the_caches_are_filled(server: Server) -> None:
    async with admission(server, caches="empty") as hook:
        made = await server.client.create(JOBS, a_job("early", {QUEUE_LABEL: hook.queue}), hook.namespace)
        assert made["spec"].items() >= OURS.items()


async def until_shown(replica: Replica, *, unlike: str) -> str:
    async with asyncio.timeout(DEADLINE):
        while (found := await replica.certificate()) == unlike:
            await asyncio.sleep(0.02)
    return found


async def test_certificates_are_renewed_without_a_restart_and_without_a_write(server: Server) -> None:
    async with admission(server) as hook:
        (replica,) = hook.replicas
        before, shown = await versions(hook), await replica.certificate()
        hook.clock.behind = timedelta(0)
        replica.webhook.look()
        await until_shown(replica, unlike=shown)
        assert await hook.probe()
        assert await versions(hook) == before


async def versions(hook: Admission) -> list[str]:
    return [thing["metadata"]["resourceVersion"] for thing in (await hook.secret(), await hook.configuration())]


async def test_replicas_have_certificates_of_their_own_under_one_authority(server: Server) -> None:
    async with admission(server) as hook:
        before = await versions(hook)
        one, two = hook.replicas[0], await hook.start()
        assert await one.certificate() != await two.certificate()
        authority = KeyPair.read((await hook.secret())["data"])
        assert authority is not None
        for replica in (one, two):
            assert KeyPair((await replica.certificate()).encode(), b"").is_trusted_by(authority.certificate)
        assert await versions(hook) == before


async def test_a_new_authority_is_used_when_the_registration_trusts_it(server: Server) -> None:
    async with admission(server) as hook:
        (replica,) = hook.replicas
        shown, new = await replica.certificate(), new_authority(hook.clock.now())
        whole = {**secret_of(hook.at[0], new), "metadata": {"name": hook.at[1], "namespace": hook.at[0]}}
        await apply(server.client, whole)
        replica.webhook.look()
        assert await hook.probe()
        assert await replica.certificate() == shown
        await hook.register(new, secret=False)
        await until_shown(replica, unlike=shown)
        async with asyncio.timeout(DEADLINE):  # the API server hears of the new authority a moment later
            while not await works(hook):
                await asyncio.sleep(0.02)


async def test_a_secret_that_was_spoilt_or_deleted_stops_nobody_who_serves(server: Server) -> None:
    async with admission(server) as hook:
        (replica,) = hook.replicas
        shown = await replica.certificate()
        await server.client.patch(SECRETS, hook.name, {"data": {"tls.key": "eA=="}}, hook.namespace)
        assert await hook.probe()
        await server.client.delete(SECRETS, hook.name, hook.namespace)
        replica.webhook.look()
        assert await hook.probe()
        assert await replica.certificate() == shown
        assert replica.webhook.ready() is None


async def test_somebody_elses_entry_is_an_alarm_and_is_not_touched(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    async with admission(server) as hook:
        assert FOREIGN._value.get() == 0
        changed = await hook.configuration()
        foreign = copy.deepcopy(changed["webhooks"][0])
        foreign["name"] = "all.example.com"
        foreign["rules"] = [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]}
        ]
        changed["webhooks"].append(foreign)
        await server.client.replace(MUTATING_WEBHOOKS, changed, field_manager="somebody")
        async with asyncio.timeout(DEADLINE):
            while not FOREIGN._value.get():
                await asyncio.sleep(0.02)
        assert "the webhook all.example.com is not ours" in capsys.readouterr().out
        assert len((await hook.configuration())["webhooks"]) == 3
        assert REGISTERED._value.get() == 1
        changed = await hook.configuration()
        changed["webhooks"] = changed["webhooks"][1:2]
        await server.client.replace(MUTATING_WEBHOOKS, changed, field_manager="somebody")
        async with asyncio.timeout(DEADLINE):
            while REGISTERED._value.get():
                await asyncio.sleep(0.02)
        assert FOREIGN._value.get() == 0


async def test_a_job_that_is_too_large_is_refused_in_words(server: Server) -> None:
    async with admission(server) as hook:
        job = a_job("fat", {QUEUE_LABEL: hook.queue})
        job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "DATA", "value": "x" * 300_000}]
        error = await refusal(server.client, job, hook.namespace)
        assert isinstance(error, Forbidden)
        assert "KiB of metadata and spec, more than the 256 KiB that may be placed" in error.message
        assert "keep data in a ConfigMap" in error.message
        del job["metadata"]["labels"]
        assert await server.client.create(JOBS, job, hook.namespace), "without a queue it is nobody's business"
        many = a_job("many", {QUEUE_LABEL: hook.queue})
        many["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "DATA", "value": "," * 400_000}]
        assert "more than 300000 values" in (await refusal(server.client, many, hook.namespace)).message
        assert await hook.probe()


async def test_while_nobody_answers_only_jobs_that_name_a_queue_cannot_be_created(server: Server) -> None:
    async with admission(server) as hook:
        await hook.replicas[0].server.__aexit__(None, None, None)
        with pytest.raises(ServerError, match="failed calling webhook"):
            await server.client.create(JOBS, a_job("queued", {QUEUE_LABEL: hook.queue}), hook.namespace)
        await server.client.create(JOBS, a_job("plain"), hook.namespace)
        await hook.replicas[0].server.__aenter__()
        assert await hook.probe()


async def test_a_queue_that_was_stored_broken_refuses_its_jobs_only(server: Server) -> None:
    if server.kind != "embedded":
        pytest.skip("a real API server does not store such a queue: the CEL rules refuse it")
    async with admission(server) as hook:
        broken: dict[str, Any] = our_object(MIRROR_QUEUES, unique("broken"), workers={})
        name = (await server.client.create(MIRROR_QUEUES, broken))["metadata"]["name"]
        error = await refusal(server.client, a_job("a", {QUEUE_LABEL: name}), hook.namespace)
        assert "cannot be used until it is put right: spec.workers: give names" in error.message
        assert await hook.probe()


async def test_a_registration_by_service_is_accepted(server: Server) -> None:
    name = unique("by-service")
    registration = Registration(name=name, service=Service("multimirror-system", "multimirror-admission"))
    wanted = registration.configuration(b"")
    made = await server.client.create(MUTATING_WEBHOOKS, wanted, dry_run=True)
    assert covers(made["webhooks"][0]["clientConfig"]["service"], wanted["webhooks"][0]["clientConfig"]["service"])
    assert [(each["failurePolicy"], each["timeoutSeconds"]) for each in made["webhooks"]] == [("Fail", 2), ("Fail", 2)]

"""A run with two honest tenants and one who means harm, simulated; and the same without the attacker beside it."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

import orjson

from faults.backends import MANAGEMENT, EmbeddedBackend
from faults.hostile.attacks import Attack
from faults.hostile.attacks import choose as choose_attacks
from faults.hostile.gate import Gate
from faults.hostile.tenancy import Queue, judge, nobody_waits_too_long, of_namespaces, waits
from faults.hostile.tenant import Tenant
from faults.invariants import at_rest
from faults.record import Record
from faults.rules import Rules, Violation
from faults.stage import DISPATCHER, Stage
from faults.workload import SORTS, a_job
from multimirror.kube import Client, Connection
from multimirror.kube.resources import JOBS, SERVICE_ACCOUNTS

Json = dict[str, Any]
HONEST: Final = ("team-a", "team-b")
ATTACKER: Final = "mallory"
BATCH, OPEN, THEIRS = "batch", "open", "theirs"
QUEUES: Final[Mapping[str, Queue]] = {
    BATCH: Queue(namespaces=HONEST, cpu=Decimal(6)),
    OPEN: Queue(),
    THEIRS: Queue(namespaces=(ATTACKER,), cpu=Decimal(4), jobs=8),
}
"""The honest ones share a queue whose quota is too small for all of their Jobs at once. The open one has no quota: what
they send there asks for nothing, and waits for nothing but the dispatcher."""
_REST: Final = 150.0
_QUIET: Final = 8.0
_SORTS: Final = ("one", "many", "indexed", "retried", "fails", "each fails")


@dataclass(frozen=True, slots=True)
class Submission:
    """A Job of an honest tenant."""

    at: float
    namespace: str
    name: str
    sort: str
    seconds: float
    queue: str
    cpu: str

    @property
    def job(self) -> Json:
        """As its user writes it."""
        job = a_job(self.name, self.sort, self.queue, self.seconds)
        del job["spec"]["managedBy"], job["spec"]["suspend"]
        if self.cpu:
            container = job["spec"]["template"]["spec"]["containers"][0]
            container["resources"] = {"requests": {"cpu": self.cpu}}
        return job

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  {self.namespace} submits {self.name} ({self.sort}) to {self.queue}"


@dataclass(frozen=True, slots=True)
class Tenants:
    """Everything that such a run is made of."""

    seed: int
    submissions: Sequence[Submission]
    attacks: Sequence[Attack]

    @property
    def ends(self) -> dict[str, str]:
        """How each honest Job must end."""
        return {each.name: SORTS[each.sort].end for each in self.submissions}

    def story(self) -> list[str]:
        """What will happen, line by line."""
        moments = [(each.at, str(each)) for each in self.submissions]
        moments += [(each.at, str(each)) for each in self.attacks]
        return [f"seed {self.seed}: two honest tenants and {ATTACKER}", *(text for _, text in sorted(moments))]


@dataclass(slots=True)
class Course:
    """How a run went."""

    violations: list[Violation]
    waits: dict[str, float]
    record: Record
    seconds: float
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


def from_seed(seed: int) -> Tenants:
    """The run of a seed."""
    chance = random.Random(f"hostile tenant {seed}")  # noqa: S311 - not a secret
    submissions = [
        Submission(
            round(chance.uniform(2, 25), 1),
            HONEST[number % 2],
            f"job-{number}",
            chance.choice(_SORTS),
            round(chance.uniform(0.5, 5), 1),
            *((BATCH, chance.choice(["500m", "1", "2"])) if chance.random() < 0.6 else (OPEN, "")),
        )
        for number in range(chance.randint(6, 10))
    ]
    return Tenants(seed, submissions, choose_attacks(chance))


async def simulate(tenants: Tenants) -> Course:
    """The run, on the loop of a simulation."""
    rules = Rules(dispatcher=DISPATCHER, when_lost="Redispatch", ends=tenants.ends)
    loop = asyncio.get_running_loop()
    async with (
        EmbeddedBackend(2, hooks=Gate) as backend,
        Stage(
            backend,
            (),
            namespace=HONEST[0],
            others=(*HONEST[1:], ATTACKER),
            queue=BATCH,
            queue_spec=QUEUES[BATCH].spec,
            queues={name: queue.spec for name, queue in QUEUES.items() if name != BATCH},
            seed=tenants.seed,
        ) as stage,
        contextlib.AsyncExitStack() as stack,
    ):
        began = loop.time()
        await stage.start()
        client = await stack.enter_async_context(await _an_account(stage, ATTACKER))
        attacker = Tenant(client, ATTACKER, [THEIRS, THEIRS, OPEN, BATCH], stage.workers)
        async with asyncio.TaskGroup() as group:
            for each in tenants.submissions:
                group.create_task(_submit(stage, each), name=str(each))
            group.create_task(attacker.run(tenants.attacks))
        await _come_to_rest(stage.record, rules)
        return Course(
            judge(stage.record, rules, QUEUES, ATTACKER),
            waits(stage.record, rules, ATTACKER),
            stage.record,
            loop.time() - began,
            attacker.done,
            attacker.refused,
        )


def compared(without: Course, beside: Course) -> list[Violation]:
    """What went wrong beside the attacker."""
    return [*without.violations, *beside.violations, *nobody_waits_too_long(without.waits, beside.waits)]


def alone(tenants: Tenants) -> Tenants:
    """The same without the attacker."""
    return replace(tenants, attacks=())


async def _an_account(stage: Stage, namespace: str) -> Client:
    admin = stage.people[MANAGEMENT]
    await admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": "tenant"}}, namespace)
    path = SERVICE_ACCOUNTS.path(namespace, "tenant", "token")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
    answer = await admin.request("POST", path, body=body)
    kubeconfig = stage.backend.kubeconfig(MANAGEMENT)
    kubeconfig["users"][0]["user"] = {"token": orjson.loads(answer.body)["status"]["token"]}
    return Client(Connection.from_kubeconfig(kubeconfig, name=MANAGEMENT), user_agent="tenant")


async def _submit(stage: Stage, submission: Submission) -> None:
    await asyncio.sleep(submission.at)
    await stage.people[MANAGEMENT].create(JOBS, submission.job, submission.namespace)


async def _come_to_rest(record: Record, rules: Rules) -> None:
    """Until the honest tenants' Jobs have ended, and nothing of theirs moves any more."""
    loop = asyncio.get_running_loop()
    deadline, since, before = loop.time() + _REST, loop.time(), -1
    while loop.time() < deadline:
        honest = of_namespaces(record, lambda namespace: namespace != ATTACKER)
        if len(honest.seen) != before:
            before, since = len(honest.seen), loop.time()
        elif at_rest(honest, rules):
            since = loop.time()
        if loop.time() - since >= _QUIET:
            return
        await asyncio.sleep(1.0)

"""A run before it happens: what people will do, what will go wrong, and by which policy. All of it from one seed."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from faults import sharing, workload
from faults.hostile.tricks import Trick, choose
from faults.plan import Fault
from faults.sharing import Sharing
from faults.workload import Step

Json = dict[str, Any]
_HUB: Final = "management"
_VERBS: Final = ("*", "write", "create", "patch", "delete", "get", "list")
_RESOURCES: Final = ("*", "*", "jobs", "jobs/status")
_MOST: Final = 12
GRACE: Final = 10.0
"""Of a queue's fence, in seconds."""
VOLUME_EVERY: Final = 10
"""Of so many hostile workers one sends tens of MiB."""
_REPLICAS: Final = ("dispatcher-1", "dispatcher-2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that a run is made of."""

    seed: int
    workers: int = 2
    when_lost: str = "Redispatch"
    lost_after: float = 20.0
    retention: float = 0.0
    placement: str = "Spread"
    fence: float = 0.0
    """The lease of the queue's fence; 0: it has none."""
    steps: Sequence[Step] = ()
    plan: Sequence[Fault] = ()
    ends: Mapping[str, str] = field(default_factory=dict)
    """How each Job must end; where it is not said, as its workload says."""
    hostile: str = ""
    """The worker that means harm; empty: none does."""
    tricks: Sequence[Trick] = ()
    """What it does."""
    sharing: Sharing | None = None
    """The queues that share, and what; None: there is one, alone."""

    @property
    def worker_names(self) -> list[str]:
        """worker-1, worker-2, ..."""
        return [f"worker-{number}" for number in range(1, self.workers + 1)]

    @property
    def queue_spec(self) -> Json:
        """The MirrorQueue."""
        return {
            "placement": self.placement,
            "retention": f"{self.retention:g}s",
            "onWorkerLost": {"after": f"{self.lost_after:g}s", "action": self.when_lost},
            **({"fence": {"timeout": f"{self.fence:g}s", "grace": f"{GRACE:g}s"}} if self.fence else {}),
        }

    def queue_specs(self, first: str) -> dict[str, Json]:
        """All MirrorQueues, by name; `first`: that of the first one."""
        if self.sharing is None:
            return {first: self.queue_spec}
        found = {}
        for end, special in self.sharing.queues.items():
            spec = {**self.queue_spec, **special}
            if self.sharing.fenced not in (None, end):
                spec.pop("fence", None)
            found[queue_name(first, end)] = spec
        return found

    def fenced(self, first: str) -> frozenset[str] | None:
        """The only queues with a fence, if there are any; None: all."""
        if self.sharing is None or self.sharing.fenced is None:
            return None
        return frozenset({queue_name(first, self.sharing.fenced)})

    def expected(self) -> dict[str, str]:
        """How each Job ends."""
        names = dict.fromkeys(step.name for step in self.steps if step.do == "submit")
        return {name: self.ends.get(name) or self._expected(name) for name in names}

    def _expected(self, name: str) -> str:
        end = workload.expected_end(self.steps, name)
        if self.sharing is None:
            return end
        if end == "Suspended":
            return "Suspended or Held"  # whoever is taken back while its user has suspended it
        deleted = any(step.do == "delete" and step.name == name for step in self.steps)
        return f"{end} or Waiting" if self.sharing.tight and not deleted else end

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Scenario":
        """From a file or another process: the fields by their names."""
        steps = [Step(**step) for step in found.get("steps", ())]
        plan = [Fault.from_json(fault) for fault in found.get("plan", ())]
        tricks = [Trick(**trick) for trick in found.get("tricks", ())]
        shared = found.get("sharing")
        return cls(
            **{
                **found,
                "steps": steps,
                "plan": plan,
                "tricks": tricks,
                "sharing": Sharing(**shared) if shared is not None else None,
            }
        )

    def story(self) -> list[str]:
        """What will happen, line by line."""
        head = (
            f"seed {self.seed}: {self.workers} workers, placement {self.placement}, retention {self.retention:g} s, "
            f"a lost worker's Jobs: {self.when_lost} after {self.lost_after:g} s"
            + (f", fence of {self.fence:g} s" if self.fence else "")
            + (f"; {self.hostile} is hostile" if self.hostile else "")
        )
        moments = [(step.at, f"      {step}") for step in self.steps]
        moments += [(fault.at, f"FAULT {fault}") for fault in self.plan]
        moments += [(trick.at, f"TRICK {trick}") for trick in self.tricks]
        shared = self.sharing.story() if self.sharing is not None else []
        return [head, *shared, *(text for _, text in sorted(moments, key=lambda each: each[0]))]


def queue_name(first: str, end: str) -> str:
    """Of a queue that shares."""
    return f"{first}-{end}" if end else first


def from_seed(seed: int, *, real: bool = False) -> Scenario:
    """The scenario of a seed: with queues that share in every other one. `real`: for control planes that are slow to
    start and cannot be thrown away, on which there is one queue."""
    if seed % 2 == 0 and not real:
        return with_sharing(seed)
    chance = random.Random(seed)  # noqa: S311 - not a secret
    workers = 2 if real else chance.choice([2, 2, 3])
    names = [f"worker-{number}" for number in range(1, workers + 1)]
    steps = workload.generate(chance, names, jobs=(3, 6) if real else (4, 9))
    fewest, most = (5, 10) if real else (2, _MOST)  # of real ones, half are for the dispatcher that stands by
    plan = [_a_fault(chance, names, real=real) for _ in range(chance.randint(fewest, most))]
    return Scenario(
        seed=seed,
        workers=workers,
        when_lost=chance.choice(["Redispatch", "Redispatch", "Wait"]),
        lost_after=chance.choice([0.0, 5.0, 20.0]),
        retention=chance.choice([0.0, 0.0, 10.0]),
        placement=chance.choice(["Spread", "Spread", "Pack", "Ordered"]),
        fence=0.0 if real else chance.choice([0.0, 0.0, 10.0, 20.0]),  # real time is too dear for leases
        steps=tuple(steps),
        plan=tuple(sorted(plan, key=lambda fault: fault.at)),
    )


def with_sharing(seed: int) -> Scenario:
    """The scenario of a seed in which queues share, and Jobs are stopped for others."""
    chance = random.Random(f"sharing {seed}")  # noqa: S311 - not a secret
    workers = chance.choice([2, 2, 3])
    names = [f"worker-{number}" for number in range(1, workers + 1)]
    shared = sharing.with_claims(sharing.share(chance, names), seed)
    steps = sharing.generate(chance, names, shared)
    plan = [_a_fault(chance, names, real=False) for _ in range(chance.randint(2, _MOST))]
    return Scenario(
        seed=seed,
        workers=workers,
        when_lost=chance.choice(["Redispatch", "Redispatch", "Wait"]),
        lost_after=chance.choice([0.0, 5.0, 20.0]),
        retention=chance.choice([0.0, 0.0, 10.0]),
        placement=chance.choice(["Spread", "Spread", "Pack", "Ordered"]),
        fence=chance.choice([0.0, 0.0, 10.0, 20.0]),
        steps=tuple(steps),
        plan=tuple(sorted(plan, key=lambda fault: fault.at)),
        sharing=shared,
    )


def with_a_hostile_worker(seed: int) -> Scenario:
    """The scenario of a seed in which one of three workers means harm; sometimes the dispatcher dies meanwhile."""
    chance = random.Random(f"hostile worker {seed}")  # noqa: S311 - not a secret
    names = [f"worker-{number}" for number in range(1, 4)]
    hostile = chance.choice(names)
    steps = workload.generate(chance, names, jobs=(3, 6), until=12.0)
    squatted = {step.name for step in steps if step.do == "squat"}
    honest = [number for number, name in enumerate(names) if name != hostile]
    for step in [step for step in steps if step.do == "submit" and step.name not in squatted]:
        # Of one Job's name, one worker at most is robbed: with none left to go to, it would have to wait.
        if chance.random() < 0.2:
            at = round(step.at + chance.uniform(0, 6), 1)
            steps.append(Step(at, "forge", step.name, value=chance.choice(honest)))
        elif chance.random() < 0.1:
            steps.append(Step(round(step.at + chance.uniform(0.5, 6), 1), "usurp", step.name))
    crashes = [
        Fault(kind="crash_at", link="dispatcher", at=round(chance.uniform(3, 25), 1), seconds=chance.choice([0.0, 2.0]))
        for _ in range(chance.choice([0, 0, 1, 2]))
    ]
    return Scenario(
        seed=seed,
        workers=len(names),
        when_lost=chance.choice(["Redispatch", "Redispatch", "Wait"]),
        lost_after=chance.choice([0.0, 5.0, 20.0]),
        placement=chance.choice(["Spread", "Spread", "Pack", "Ordered"]),
        fence=chance.choice([0.0, 0.0, 0.0, 10.0]),
        steps=tuple(sorted(steps, key=lambda step: step.at)),
        plan=tuple(crashes),
        hostile=hostile,
        tricks=choose(chance, volume=seed % VOLUME_EVERY == 0),
    )


def crash_points(scenario: Scenario, writes: Mapping[str, int]) -> Iterator[Scenario]:
    """A scenario once more for every write of every link, its client killed before the write, and after it."""
    for link, count in writes.items():
        for nth in range(1, count + 1):
            for kind in ("crash", "crash_after"):
                fault = Fault(kind=kind, link=link, verb="write", nth=nth, seconds=0.5)
                yield replace(scenario, plan=(fault,))


def reference() -> Scenario:
    """The run whose writes are the crash points: Jobs of most sorts; one is deleted, one suspended and resumed,
    and one waits for so long that it says so."""
    steps = [
        Step(0.0, "submit", "job-0", "one", 2.0),
        Step(0.5, "submit", "job-1", "indexed", 1.0),
        Step(1.0, "submit", "job-2", "fails", 1.0),
        Step(1.5, "submit", "job-3", "forever"),
        Step(2.0, "submit", "job-4", "forever"),
        Step(6.0, "delete", "job-4"),
        Step(6.0, "suspend", "job-3"),
        Step(9.0, "resume", "job-3"),
        Step(9.0, "submit", "job-5", "fleeting", 1.0),
        Step(10.0, "vanish", "job-3"),
        Step(11.0, "limit", "", value=1),
        Step(11.5, "submit", "job-6", "one", 1.0),
        Step(16.0, "limit", "", value=50),
    ]
    return Scenario(seed=0, steps=tuple(steps))


def sharing_reference() -> Scenario:
    """The same where queues share: one borrows and gives back (Reclaim), one of its own goes before another (Priority),
    its queue is drained; whoever was stopped comes back."""
    steps = [
        Step(0.0, "submit", "job-0", "forever", queue="b", cpu=1000),
        Step(0.5, "submit", "job-1", "forever", queue="b", cpu=1000, stops=1.0),
        Step(2.0, "submit", "job-2", "one", 12.0, cpu=1000),
        Step(12.0, "submit", "job-3", "forever", queue="b", cpu=1000, priority=9),
        Step(30.0, "hold", "", "Drain", queue="b"),
        Step(36.0, "hold", "", "None", queue="b"),
        Step(40.0, "enlarge", "", value=sharing.EVERYTHING),
    ]
    queue = {
        "cohort": "all",
        "quota": {"resources": {"cpu": 1}},
        "preempts": ["Reclaim", "Priority", "FairShare"],
        "maxPriority": 9,
    }
    shared = Sharing(queues={"": queue, "b": queue}, capacity={"worker-1": 1, "worker-2": 1})
    return Scenario(seed=0, steps=tuple(steps), sharing=shared)


def _a_fault(chance: random.Random, workers: Sequence[str], *, real: bool) -> Fault:
    at = round(chance.uniform(0, 40), 1)
    group = chance.choices(["request", "watch", "link", "process", "cluster"], [5, 5, 3, 3, 1])[0]
    client = chance.choice(_REPLICAS if real else ["dispatcher", "dispatcher", "dispatcher", "jobs"])
    cluster = chance.choice(workers) if client == "jobs" else chance.choice([_HUB, *workers])
    link = f"{client}/{cluster}"
    match group:
        case "request":
            return _request_fault(chance, link, at)
        case "watch":
            kinds = ["gone", "expired_event", "end", "cut", "mute", "late_events", "twice", "replay"]
            if real:
                kinds.remove("mute")  # noticed after minutes, which only a simulation has
            kind = chance.choice(kinds)
            seconds = float(chance.choice([1, 5, 20]))
            resource = chance.choice(["*", "jobs", "jobs", "pods" if client == "jobs" else "namespaces"])
            return Fault(
                kind=kind, link=link, at=at, verb="watch", resource=resource, nth=chance.randint(1, 6), seconds=seconds
            )
        case "link":
            kind = chance.choice(
                ["partition", "partition", "blackhole", "unauthorized", "overload", "slow", "slow_writes"]
            )
            return Fault(kind=kind, link=link, at=at, seconds=float(chance.choice([1, 3, 8, 15, 30, 60])))
        case "process" if real:
            return _replica_fault(chance, link, at)
        case "process":
            kind = chance.choice(["crash", "crash_after", "crash_at"])
            who = "dispatcher" if client == "dispatcher" else link
            seconds = float(chance.choice([0, 1, 10]))
            if kind == "crash_at":
                return Fault(kind=kind, link=who, at=at, seconds=seconds)
            return Fault(kind=kind, link=link, at=at, verb="write", nth=chance.randint(1, 5), seconds=seconds)
        case _:
            worker = chance.choice(workers)
            if real:
                return Fault(
                    kind="restart", link=chance.choice([_HUB, *workers]), at=at, resource=chance.choice(["*", "etcd"])
                )
            kind = chance.choice(["wipe", "swap"])
            return Fault(kind=kind, link=worker, at=at, seconds=float(chance.choice([5, 15])) if kind == "swap" else 0)


def _replica_fault(chance: random.Random, link: str, at: float) -> Fault:
    """Of a real process: one of the two by name, or the one that leads. Some pauses are longer than the lease."""
    kind = chance.choice(["crash", "crash_after", "crash_at", "pause", "pause"])
    if kind in ("crash", "crash_after"):
        seconds = float(chance.choice([0, 1, 10]))
        return Fault(kind=kind, link=link, at=at, verb="write", nth=chance.randint(1, 5), seconds=seconds)
    who = chance.choice(["leader", "leader", link.partition("/")[0]])
    seconds = float(chance.choice([0, 1, 10] if kind == "crash_at" else [2, 10, 40, 60]))
    return Fault(kind=kind, link=who, at=at, seconds=seconds)


def _request_fault(chance: random.Random, link: str, at: float) -> Fault:
    kind = chance.choice(["reset", "hang", "error", "error", "delay", "lost", "late", "wrong"])
    return Fault(
        kind=kind,
        link=link,
        at=at,
        verb=chance.choice(_VERBS),
        resource=chance.choice(_RESOURCES),
        nth=chance.randint(1, 4),
        seconds=float(chance.choice([1, 5, 20])) if kind == "delay" else 0.0,
        status=chance.choice([429, 500, 503, 504]),
    )

"""A tenant who tries everything that it may, and what it may not as well. A refusal is no reason to stop."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from clusters.nodes import PREFIX
from faults.hostile.attacks import Attack
from multimirror.api import (
    ADMITTED_QUEUE_ANNOTATION,
    ATTEMPT_ANNOTATION,
    ATTEMPT_LABEL,
    CLUSTER_ANNOTATION,
    CLUSTERS_ANNOTATION,
    COPY_UID_ANNOTATION,
    HOLD_ANNOTATION,
    MANAGED_BY,
    ORIGIN_LABEL,
    ORIGIN_UID_LABEL,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    RESERVED_ANNOTATION,
)
from multimirror.kube import ApiError, Client, Resource
from multimirror.kube.resources import JOBS

Json = dict[str, Any]
CRON_JOBS: Final = Resource("batch", "v1", "cronjobs", "CronJob")
BURST: Final = 30
FLOOD: Final = 160
_AT_ONCE: Final = 16
_SIZES: Final = ("100m", "1", "1900m", "3900m", "4", "40", "10m", "1000000")
_MANY: Final = 30


class Tenant:
    """Has a client with its rights, and a namespace."""

    def __init__(
        self, client: Client, namespace: str, queues: Sequence[str], workers: Sequence[str], *, pace: float = 1.0
    ) -> None:
        """`queues`: those that it knows of, its own first. `pace`: seconds for each of an attack."""
        self._client, self._namespace = client, namespace
        self._queues, self._workers, self._pace = queues, workers, pace
        self.refused: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    async def run(self, attacks: Sequence[Attack]) -> None:
        """All of them, each at its time."""
        async with asyncio.TaskGroup() as group:
            for attack in attacks:
                group.create_task(self._in_turn(attack), name=str(attack))

    async def _in_turn(self, attack: Attack) -> None:
        await asyncio.sleep(attack.at * self._pace)
        chance = random.Random(attack.value)  # noqa: S311 - not a secret
        try:
            await self._doings[attack.do](attack.name, chance)
        except ApiError:
            self.refused[attack.do] += 1
        else:
            self.done[attack.do] += 1

    @property
    def _doings(self) -> Mapping[str, Callable[[str, random.Random], Awaitable[Any]]]:
        return {
            "create": self._create,
            "burst": self._burst,
            "flood": self._flood,
            "storm": self._storm,
            "cron": self._cron,
            "relabel": self._relabel,
            "suspend": lambda name, _: self._patch(name, {"spec": {"suspend": True}}),
            "resume": lambda name, _: self._patch(name, {"spec": {"suspend": False}}),
            "resize": self._resize,
            "shrink": self._shrink,
            "rewrite": self._rewrite,
            "annotate": self._annotate,
            "label": self._label,
            "finalize": lambda name, _: self._patch(name, {"metadata": {"finalizers": ["example.com/for-ever"]}}),
            "release": lambda name, _: self._patch(name, {"metadata": {"finalizers": None}}),
            "own": self._own,
            "status": self._status,
            "replace": self._replace,
            "apply": self._apply,
            "delete": self._delete,
            "delete_all": self._delete_all,
        }

    # --- what it makes

    def _job(self, name: str, chance: random.Random) -> Json:
        metadata: Json = {"name": name, "labels": {}, "annotations": {}}
        if chance.random() < 0.1:
            metadata = {"generateName": f"{name}-", "labels": {}, "annotations": {}}
        labels, annotations = metadata["labels"], metadata["annotations"]
        if chance.random() < 0.95:
            labels[QUEUE_LABEL] = chance.choice([*self._queues, *self._queues, "no-such-queue"])
        if chance.random() < 0.3:
            labels[PRIORITY_LABEL] = chance.choice(["999999999", "5", "-7", "2147483647"])
        if chance.random() < 0.15:
            annotations[CLUSTERS_ANNOTATION] = chance.choice(["no-such-cluster", ",".join(self._workers), ""])
        if chance.random() < 0.1:
            annotations[HOLD_ANNOTATION] = chance.choice(["true", "false", "x"])
        if chance.random() < 0.15:
            annotations |= self._placed(chance)
        if chance.random() < 0.05:
            labels |= {ORIGIN_LABEL: "x", ORIGIN_UID_LABEL: "y", ATTEMPT_LABEL: "1"}
        if chance.random() < 0.15:
            metadata["finalizers"] = ["example.com/for-ever"]
        if chance.random() < 0.1:
            metadata["ownerReferences"] = [_an_owner(chance)]
        if chance.random() < 0.1:
            annotations["example.com/fat"] = "x" * chance.choice([20_000, 200_000])
        if chance.random() < 0.5:  # one that nothing is wrong with: what is done to it later is
            metadata = {"name": name, "labels": {QUEUE_LABEL: self._queues[0]}, "annotations": {}}
        spec = self._spec(chance)
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    def _spec(self, chance: random.Random) -> Json:
        count = chance.choice([1, 1, 1, 2, 3, 0, 12, 1000])
        spec: Json = {
            "backoffLimit": 0,
            "suspend": chance.random() < 0.2,
            "parallelism": count,
            "template": _a_template(chance, "1" if count > _MANY else ""),  # a thousand that fit would take us for ever
        }
        if spec["parallelism"] and chance.random() < 0.5:
            spec["completions"] = spec["parallelism"] * chance.choice([1, 2])
        if chance.random() < 0.2 and "completions" in spec:
            spec["completionMode"] = "Indexed"
        if chance.random() < 0.1:
            spec["managedBy"] = chance.choice([MANAGED_BY, "example.com/somebody"])
        if chance.random() < 0.1:
            spec["ttlSecondsAfterFinished"] = 0
        if chance.random() < 0.1:
            spec["activeDeadlineSeconds"] = 1
        return spec

    def _placed(self, chance: random.Random) -> Json:
        """As if it had been decided on."""
        return {
            CLUSTER_ANNOTATION: chance.choice([*self._workers, "no-such-cluster"]),
            ATTEMPT_ANNOTATION: chance.choice(["1", "2", "-1", "x"]),
            ADMITTED_QUEUE_ANNOTATION: chance.choice([*self._queues, "none"]),
            RESERVED_ANNOTATION: chance.choice(["{}", '{"podSets":[]}', "x" * 3000]),
            COPY_UID_ANNOTATION: "somebody-elses",
        }

    async def _create(self, name: str, chance: random.Random) -> None:
        await self._client.create(JOBS, self._job(name, chance), self._namespace)

    async def _burst(self, name: str, chance: random.Random) -> None:
        queue, size = chance.choice(self._queues), chance.choice(_SIZES[:4])
        for number in range(BURST):
            job = self._job(f"{name}-{number}", random.Random(number))  # noqa: S311 - not a secret
            job["metadata"] = {"name": f"{name}-{number}", "labels": {QUEUE_LABEL: queue}}
            job["spec"] = {"backoffLimit": 0, "template": _a_template(chance, size)}
            await self._client.create(JOBS, job, self._namespace)

    async def _flood(self, name: str, chance: random.Random) -> None:
        """As many as it can, side by side."""
        size = chance.choice(["10m", "100m"])
        for start in range(0, FLOOD, _AT_ONCE):
            jobs = [
                {
                    "metadata": {"name": f"{name}-flood-{number}", "labels": {QUEUE_LABEL: self._queues[number % 3]}},
                    "spec": {"backoffLimit": 0, "template": _a_template(chance, size)},
                }
                for number in range(start, start + _AT_ONCE)
            ]
            creating = (self._client.create(JOBS, job, self._namespace) for job in jobs)
            await asyncio.gather(*creating, return_exceptions=True)

    async def _storm(self, _: str, chance: random.Random) -> None:
        """Every Job of its own into another queue, and another, while they are decided on."""
        for _round in range(4):
            names = [job["metadata"]["name"] for job in (await self._client.list(JOBS, self._namespace)).items]
            moving = (
                self._patch(name, {"metadata": {"labels": {QUEUE_LABEL: chance.choice([*self._queues, None])}}})
                for name in names[:_AT_ONCE]
            )
            await asyncio.gather(*moving, return_exceptions=True)

    async def _cron(self, name: str, chance: random.Random) -> None:
        made = self._job(name, chance)
        kept = {key: made["metadata"][key] for key in ("labels", "annotations")}
        spec = {"schedule": "* * * * *", "jobTemplate": {"metadata": kept, "spec": made["spec"]}}
        body = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}
        await self._client.create(CRON_JOBS, body, self._namespace)

    # --- what it does to it

    async def _patch(self, name: str, body: Json) -> None:
        await self._client.patch(JOBS, name, body, self._namespace)

    async def _relabel(self, name: str, chance: random.Random) -> None:
        labels = {QUEUE_LABEL: chance.choice([*self._queues, "no-such-queue", None])}
        if chance.random() < 0.3:
            labels = {PRIORITY_LABEL: chance.choice(["999999999", None, "x"])}
        await self._patch(name, {"metadata": {"labels": labels}})

    async def _resize(self, name: str, chance: random.Random) -> None:
        await self._patch(name, {"spec": {"parallelism": 0}})
        await asyncio.sleep(chance.choice([0.0, 2.0]) * self._pace)
        wanted = chance.choice([1, 2, 5, _MANY])
        await self._patch(name, {"spec": {"parallelism": wanted}})
        if chance.random() < 0.3:
            await self._patch(name, {"spec": {"parallelism": wanted, "completions": wanted}})

    async def _shrink(self, name: str, chance: random.Random) -> None:
        """Small while it is counted, large when it runs; or the other way round."""
        await self._patch(name, {"spec": {"suspend": True}})
        await asyncio.sleep(chance.choice([0.0, 1.0, 4.0]) * self._pace)
        await self._rewrite(name, chance)
        await self._patch(name, {"spec": {"suspend": False}})

    async def _rewrite(self, name: str, chance: random.Random) -> None:
        containers = _a_template(chance)["spec"]["containers"]
        await self._client.patch(
            JOBS, name, {"spec": {"template": {"spec": {"containers": containers}}}}, self._namespace
        )

    async def _annotate(self, name: str, chance: random.Random) -> None:
        placed = self._placed(chance)
        chosen = chance.sample(sorted(placed), chance.randint(1, len(placed)))
        await self._patch(name, {"metadata": {"annotations": {key: placed[key] for key in chosen}}})

    async def _label(self, name: str, chance: random.Random) -> None:
        labels = {ORIGIN_LABEL: "x", ORIGIN_UID_LABEL: chance.choice(["y", "z"]), ATTEMPT_LABEL: "1"}
        await self._patch(name, {"metadata": {"labels": labels}})

    async def _own(self, name: str, chance: random.Random) -> None:
        await self._patch(name, {"metadata": {"ownerReferences": [_an_owner(chance)]}})

    async def _status(self, name: str, _: random.Random) -> None:
        await self._client.patch(JOBS, name, {"status": {"succeeded": 1}}, self._namespace, subresource="status")

    async def _replace(self, name: str, chance: random.Random) -> None:
        job = await self._client.get(JOBS, name, self._namespace)
        made = self._job(name, chance)
        job["metadata"]["labels"], job["metadata"]["annotations"] = (
            made["metadata"][k] for k in ("labels", "annotations")
        )
        job["spec"] |= {"parallelism": made["spec"]["parallelism"], "suspend": made["spec"]["suspend"]}
        await self._client.replace(JOBS, job, self._namespace)

    async def _apply(self, name: str, chance: random.Random) -> None:
        made = self._job(name, chance)
        made["metadata"] = {"name": name, "labels": made["metadata"]["labels"]}
        made["spec"] = {key: made["spec"][key] for key in ("parallelism", "suspend", "template")}
        await self._client.patch(
            JOBS, name, made, self._namespace, patch_type="apply", field_manager="tenant", force=True
        )

    async def _delete(self, name: str, chance: random.Random) -> None:
        how = chance.choice(["Background", "Foreground", "Orphan"])
        await self._client.request("DELETE", JOBS.path(self._namespace, name), body={"propagationPolicy": how})

    async def _delete_all(self, _: str, __: random.Random) -> None:
        await self._client.request("DELETE", JOBS.path(self._namespace), body={"propagationPolicy": "Background"})


def _a_template(chance: random.Random, size: str = "") -> Json:
    requests: Json = {"cpu": size or chance.choice(_SIZES)}
    if not size and chance.random() < 0.1:
        requests |= {f"example.com/r{number}": "1" for number in range(70)}
    behaviour = chance.choice([{"duration": "0.5"}, {"duration": "4"}, {"exit-code": "1"}, {"never-finish": "true"}])
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": requests, "limits": {k: v for k, v in requests.items() if "/" in k}},
    }
    return {
        "metadata": {"annotations": {f"{PREFIX}{key}": value for key, value in behaviour.items()}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def _an_owner(chance: random.Random) -> Json:
    return {
        "apiVersion": chance.choice(["v1", "batch/v1", "example.com/v1"]),
        "kind": chance.choice(["ConfigMap", "CronJob", "Thing"]),
        "name": "owner",
        "uid": f"{chance.getrandbits(64):x}",
        "controller": chance.random() < 0.5,
    }

"""The node's hands: follows the pods of a cluster and carries out what `life.decide` says.

One cache, one queue with one timer for all pods, a few workers. A pod is never in two hands at once. What a write
answered counts as the pod until the cache is newer, so that nothing is written twice because the cache lags. A pod
that vanished, or was replaced under the same name (every write names the uid), is simply forgotten.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from clusters.nodes import behaviour, life, status
from clusters.nodes.behaviour import Behaviour, BehaviourError
from clusters.nodes.logs import Logs
from clusters.nodes.machines import HOST, Machine, choose
from clusters.nodes.processes import ProcessRun
from clusters.nodes.runs import Run, SimulatedRun, Tries, resumed
from multimirror.kube import Client, Controller, Informer, Object, RequeueAfter, key_of
from multimirror.kube.errors import Conflict, NotFound
from multimirror.kube.informer import Change, is_older
from multimirror.kube.resources import PODS

_CONFLICT_SECONDS: Final = 0.5
"""Until the cache has certainly seen what a write was refused for."""
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Known:
    """A pod that the node looks after."""

    uid: str
    behaviour: Behaviour
    memory: life.Memory
    addresses: status.Addresses
    latest: Object
    """The pod as the last write answered it."""
    complaint: str = ""
    """Why it cannot be simulated."""
    removed: bool = False
    logs: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRules:
    """How pods are treated, beyond what their annotations say."""

    default_duration: float = 0.0
    backoff: life.Backoff = life.DEFAULT_BACKOFF
    bind: bool = True
    processes: bool = False
    concurrency: int = 16


class Pods:
    """Takes pods through their lives on the given machines."""

    def __init__(
        self,
        client: Client,
        machines: dict[str, Machine],
        rules: PodRules,
        logs: Logs,
        *,
        crash: Callable[[Machine, float], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._machines, self._rules, self._logs = client, machines, rules, logs
        self._crash, self._clock = crash, clock
        self._known: dict[str, _Known] = {}
        self._tries = Tries()
        self._addresses = 0
        self.informer = Informer(client, PODS, trim=_trim)
        self.informer.add_handler(self._changed)
        self.controller = Controller("simulated-node", self._reconcile, concurrency=rules.concurrency)

    def look_at(self, key: str) -> None:
        """Something about this pod, or its machine, changed."""
        self.controller.queue.add(key)

    def on(self, machine: Machine) -> list[Object]:
        """The pods that are bound to this machine and not over."""
        return [pod for key in machine.pods if (pod := self.informer.get(key)) is not None]

    def unbound(self) -> None:
        """Look again at the pods that have no node: there may be one now."""
        for pod in self.informer.list():
            if not pod["spec"].get("nodeName"):
                self.look_at(key_of(pod))

    def kill_all(self, machine: Machine, when: float) -> None:
        """The containers on this machine are gone, as of then."""
        for key in machine.pods:
            known = self._known.get(key)
            if known is not None and known.memory.run is not None:
                known.memory.run.kill(when)

    async def aclose(self) -> None:
        """Leave no process behind."""
        for known in self._known.values():
            if isinstance(known.memory.run, ProcessRun):
                await known.memory.run.aclose()

    def _changed(self, change: Change) -> None:
        key = change.key
        if change.new is None:
            known = self._known.pop(key, None)
            self._settle(key, change.object)
            self._logs.forget(change.object["metadata"]["namespace"], change.object["metadata"]["name"])
            if known is not None and isinstance(known.memory.run, ProcessRun):
                known.memory.run.kill(self._clock())
            return
        self._settle(key, change.new)
        if not self._is_ours(change.new):
            return
        echo = self._is_echo(key, change.new)
        if change.initial and change.new["status"].get("phase") != "Pending":
            self._remembered(key, change.new)  # tries that were made count before any new one is started
        if not echo:
            self.controller.queue.add(key)

    def _is_echo(self, key: str, pod: Object) -> bool:
        """Whether this is nothing newer than what the node's own last write answered."""
        known = self._known.get(key)
        if known is None or known.uid != pod["metadata"]["uid"]:
            return False
        ours, theirs = known.latest["metadata"]["resourceVersion"], pod["metadata"]["resourceVersion"]
        if ours == theirs:
            known.latest = pod  # one copy is enough
        return not is_older(ours, theirs)

    def _settle(self, key: str, pod: Object) -> None:
        """Keep count of who is where."""
        machine = self._machines.get(pod["spec"].get("nodeName", ""))
        if machine is None:
            return
        over = pod.get("status", {}).get("phase") in life.TERMINAL or self.informer.get(key) is None
        (machine.pods.discard if over else machine.pods.add)(key)

    def _is_ours(self, pod: Object) -> bool:
        spec = pod["spec"]
        name = spec.get("nodeName")
        if name:
            return name in self._machines
        return self._rules.bind and spec.get("schedulerName", "default-scheduler") == "default-scheduler"

    async def _reconcile(self, key: str) -> RequeueAfter | None:
        pod = self.informer.get(key)
        if pod is None or not self._is_ours(pod):
            return None
        known = self._remembered(key, pod)
        if is_older(pod["metadata"]["resourceVersion"], known.latest["metadata"]["resourceVersion"]):
            pod = known.latest
        else:
            known.latest = pod
        try:
            return await self._live(key, known, pod)
        except NotFound:
            return None  # it is gone; the cache will hear of it
        except Conflict as error:
            _log.debug("somebody else wrote to a pod, or replaced it", pod=key, error=str(error))
            return RequeueAfter(_CONFLICT_SECONDS)

    async def _live(self, key: str, known: _Known, pod: Object) -> RequeueAfter | None:
        while not known.removed:
            machine = self._machines.get(pod["spec"].get("nodeName", ""))
            if machine is not None and machine.down_since is not None:
                return None
            now = self._clock()
            step = self._step(known, pod, now)
            match step:
                case life.Nothing():
                    return None
                case life.Wait(until):
                    return RequeueAfter(until - now) if until != float("inf") else None
                case life.Bind():
                    bound = await self._bind(pod)
                    if bound is None:
                        return None
                    pod, known.memory.noticed = bound, self._clock()
                case life.Write(body):
                    pod = known.latest = await self._write(pod, body)
                    life.remember(known.memory, step, now=now)
                    self._tell(known, pod)
                case life.Crash(seconds):
                    assert machine is not None, "a pod that runs is on a machine"
                    self._crash(machine, seconds)
                    return None
                case life.Remove():
                    await self._remove(pod)
                    known.removed = True
                case life.Start():
                    life.remember(known.memory, step, self._start(key, known, pod), now=now)
                case life.Terminate() | life.Kill():
                    life.remember(known.memory, step, now=now)
        return None

    def _step(self, known: _Known, pod: Object, now: float) -> life.Step:
        if known.complaint and pod["spec"].get("nodeName") and pod["status"].get("phase") not in life.TERMINAL:
            why = ("InvalidSimulation", known.complaint)
            return life.Write(status.stopped(pod, why, known.addresses, None, now))
        if isinstance(known.memory.run, SimulatedRun) and behaviour.is_told_to_finish(pod):
            known.memory.run.finish(now)
        return life.decide(pod, known.behaviour, known.memory, known.addresses, now=now, backoff=self._rules.backoff)

    def _remembered(self, key: str, pod: Object) -> _Known:
        known = self._known.get(key)
        if known is None or known.uid != pod["metadata"]["uid"]:
            known = self._known[key] = self._meet(pod)
        return known

    def _meet(self, pod: Object) -> _Known:
        now = self._clock()
        complaint = ""
        try:
            behaves = behaviour.read(pod, self._rules.default_duration)
        except BehaviourError as error:
            behaves, complaint = Behaviour(), str(error)
        memory = life.Memory(noticed=now)
        known = _Known(pod["metadata"]["uid"], behaves, memory, self._addresses_of(pod), pod, complaint)
        phase = pod.get("status", {}).get("phase")
        if phase in ("Running", *life.TERMINAL):
            memory.tries = self._tries.before(pod) + status.restart_count(pod)
            if phase == "Running" and not status.is_backing_off(pod):
                memory.run = self._resume(pod, known, now)
                memory.tries += 1
        return known

    def _resume(self, pod: Object, known: _Known, now: float) -> Run:
        """A run that this node does not remember: simulated time goes on, processes are lost with their node."""
        run = resumed(pod, known.behaviour, known.memory.tries, now)
        if self._rules.processes:
            run.kill(now)
        return run

    def _start(self, key: str, known: _Known, pod: Object) -> Run:
        if known.memory.tries == 0:
            known.memory.tries = self._tries.before(pod)
        if self._rules.processes:
            return ProcessRun(pod, self._logs, lambda: self.look_at(key))
        run = SimulatedRun(known.behaviour, self._clock(), known.memory.tries)
        meta = pod["metadata"]
        known.logs = []
        for container in pod["spec"]["containers"]:
            log = self._logs.start(meta["namespace"], meta["name"], container["name"])
            text = known.behaviour.log
            if text is None:
                text = f"simulated container {container['name']} of pod {key}, try {known.memory.tries + 1}"
            for line in text.splitlines():
                log.print(run.started, line)
            known.logs.append(log)
        return run

    def _tell(self, known: _Known, pod: Object) -> None:
        """Followers of a log go home when its container has ended; who ended without having started tried, too."""
        if pod["status"].get("phase") in life.TERMINAL:
            if known.memory.tries == 0:
                known.memory.tries = self._tries.before(pod) + 1
            for log in known.logs:
                log.end()

    def _addresses_of(self, pod: Object) -> status.Addresses:
        address = pod.get("status", {}).get("podIP")
        if not address:
            self._addresses = self._addresses % 0xFFFFFE + 1
            number = self._addresses
            address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        return status.Addresses(HOST, address)

    async def _bind(self, pod: Object) -> Object | None:
        """Bind the pod to the machine that suits it best; None when there is none now."""
        meta, spec = pod["metadata"], pod["spec"]
        machine = choose(self._machines.values(), spec.get("nodeSelector") or {})
        if machine is None:
            await self._unschedulable(pod)
            return None
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": machine.name},
        }
        machine.pods.add(key_of(pod))
        await self._client.request("POST", PODS.path(meta["namespace"], meta["name"], "binding"), body=body)
        return {**pod, "spec": {**spec, "nodeName": machine.name}}

    async def _unschedulable(self, pod: Object) -> None:
        """Say once that there is no node for it."""
        total = len(self._machines)
        message = f"0/{total} nodes are available: no simulated node is up, uncordoned and matches the node selector."
        conditions = pod.get("status", {}).get("conditions") or ()
        current = next((condition for condition in conditions if condition["type"] == "PodScheduled"), None)
        if current is None or current.get("message") != message:
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
                "lastTransitionTime": status.timestamp(self._clock()),
            }
            await self._write(pod, {"conditions": [condition]})

    async def _write(self, pod: Object, body: Object) -> Object:
        meta = pod["metadata"]
        return await self._client.patch(
            PODS,
            meta["name"],
            {"metadata": {"uid": meta["uid"]}, "status": body},
            meta["namespace"],
            patch_type="strategic",
            subresource="status",
        )

    async def _remove(self, pod: Object) -> None:
        meta = pod["metadata"]
        await self._client.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"], grace_period=0)


_KEPT: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "annotations",
    "ownerReferences",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def _trim(pod: Object) -> Object:
    """What the node needs of a pod; of one that is over, hardly anything."""
    phase = pod.setdefault("status", {}).get("phase")
    meta = {key: value for key, value in pod["metadata"].items() if key in _KEPT}
    if phase not in life.TERMINAL:
        return {**pod, "metadata": meta}
    return {"metadata": meta, "spec": {"nodeName": pod["spec"].get("nodeName", "")}, "status": {"phase": phase}}

"""A pod's life on a simulated node, decided step by step on virtual time."""

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.nodes import behaviour, life, status
from clusters.nodes.runs import SimulatedRun, resumed

Json = dict[str, Any]
T0 = 1_800_000_000.0
ADDRESSES = status.Addresses(host_ip="127.0.0.1", pod_ip="10.0.0.7")


def a_pod(
    *containers: str, policy: str = "Never", inits: tuple[str, ...] = (), spec: Json | None = None, **annotations: str
) -> Json:
    return {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": "u",
            "annotations": {f"{behaviour.PREFIX}{key.replace('_', '-')}": text for key, text in annotations.items()},
        },
        "spec": {
            "nodeName": "node-1",
            "restartPolicy": policy,
            "containers": [{"name": name, "image": "busybox"} for name in containers or ("main",)],
            **({"initContainers": [{"name": name, "image": "busybox"} for name in inits]} if inits else {}),
            **(spec or {}),
        },
        "status": {"phase": "Pending"},
    }


@dataclass
class Life:
    """A pod with a node that looks after it; time moves when the node waits."""

    pod: Json
    backoff: life.Backoff = field(default_factory=life.Backoff)
    tries: int = 0
    now: float = T0
    writes: list[tuple[float, str]] = field(default_factory=list)
    steps: list[life.Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.behaviour = behaviour.read(self.pod)
        self.memory = life.Memory(noticed=self.now, tries=self.tries)

    def start(self) -> SimulatedRun:
        return SimulatedRun(self.behaviour, self.now, self.memory.tries)

    def live(self, seconds: float = 3600.0) -> "Life":
        """On, until nothing is left to do or that much time has passed."""
        end = self.now + seconds
        while True:
            step = life.decide(self.pod, self.behaviour, self.memory, ADDRESSES, now=self.now, backoff=self.backoff)
            self.steps.append(step)
            if isinstance(step, life.Wait):
                assert step.until > self.now, "a node never waits for the past"
                self.now = min(step.until, end)
                if self.now >= end:
                    return self
                continue
            life.remember(self.memory, step, self.start(), now=self.now)
            if isinstance(step, life.Write):
                self.write(step.status)
            elif not isinstance(step, life.Start | life.Terminate | life.Kill):
                return self

    def write(self, patch: Json) -> None:
        """A strategic merge: conditions by type, all else replaced."""
        before = self.pod["status"]
        by_type = {condition["type"]: condition for condition in before.get("conditions", ())}
        by_type |= {condition["type"]: condition for condition in patch.get("conditions", ())}
        self.pod["status"] = {**before, **copy.deepcopy(patch), "conditions": list(by_type.values())}
        self.writes.append((self.now - T0, self.pod["status"]["phase"]))

    def delete(self, grace: int = 30) -> "Life":
        self.pod["metadata"] |= {
            "deletionTimestamp": status.timestamp(self.now + grace),
            "deletionGracePeriodSeconds": grace,
        }
        return self

    def condition(self, kind: str) -> tuple[str, str | None]:
        found = next(condition for condition in self.pod["status"]["conditions"] if condition["type"] == kind)
        return found["status"], found["reason"]

    def container(self, name: str = "main") -> Json:
        found: Json = next(item for item in self.pod["status"]["containerStatuses"] if item["name"] == name)
        return found


def test_a_pod_that_takes_no_time_costs_one_write() -> None:
    pod = Life(a_pod()).live()
    assert pod.writes == [(0, "Succeeded")]
    assert pod.condition("Ready") == ("False", "PodCompleted")
    assert pod.container()["state"]["terminated"]["exitCode"] == 0
    assert pod.container()["state"]["terminated"]["reason"] == "Completed"


def test_a_pod_that_runs_for_a_while_costs_two_writes() -> None:
    pod = Life(a_pod(duration="5s"))
    pod.live(3)
    assert pod.writes == [(0, "Running")]
    assert pod.condition("Ready") == ("True", None)
    assert pod.pod["status"]["podIP"] == "10.0.0.7"
    assert pod.pod["status"]["startTime"] == status.timestamp(T0)
    assert pod.container()["ready"] is True
    pod.live()
    assert pod.writes == [(0, "Running"), (5, "Succeeded")]
    assert pod.container()["state"]["terminated"]["startedAt"] == status.timestamp(T0)
    assert pod.container()["state"]["terminated"]["finishedAt"] == status.timestamp(T0 + 5)


def test_the_transition_time_of_a_condition_moves_only_with_its_status() -> None:
    pod = Life(a_pod(duration="5s")).live()
    times = {condition["type"]: condition["lastTransitionTime"] for condition in pod.pod["status"]["conditions"]}
    assert times["Initialized"] == status.timestamp(T0)
    assert times["Ready"] == status.timestamp(T0 + 5)


def test_an_exit_code_fails_the_pod() -> None:
    pod = Life(a_pod(exit_code="3")).live()
    assert pod.writes == [(0, "Failed")]
    assert pod.container()["state"]["terminated"]["exitCode"] == 3
    assert pod.condition("Ready") == ("False", "PodFailed")


def test_exit_codes_by_container() -> None:
    pod = Life(a_pod("main", "helper", exit_code="helper=42")).live()
    assert pod.pod["status"]["phase"] == "Failed"
    assert pod.container("main")["state"]["terminated"]["exitCode"] == 0
    assert pod.container("helper")["state"]["terminated"]["exitCode"] == 42


def test_an_init_container_that_fails_keeps_the_others_from_starting() -> None:
    pod = Life(a_pod(inits=("setup", "later"), exit_code="setup=9", duration="2s")).live()
    assert pod.writes == [(2, "Failed")]
    codes = [item["state"] for item in pod.pod["status"]["initContainerStatuses"]]
    assert codes[0]["terminated"]["exitCode"] == 9
    assert codes[1] == {"waiting": {"reason": "PodInitializing"}}
    assert pod.container()["state"] == {"waiting": {"reason": "PodInitializing"}}


@pytest.mark.parametrize(("tries", "phase"), [(0, "Failed"), (1, "Failed"), (2, "Succeeded"), (3, "Succeeded")])
def test_fail_first_fails_the_first_tries_only(tries: int, phase: str) -> None:
    assert Life(a_pod(fail_first="2"), tries=tries).live().pod["status"]["phase"] == phase


def test_on_failure_restarts_the_container_at_once_and_then_with_growing_delays() -> None:
    pod = Life(a_pod(policy="OnFailure", fail_first="4", duration="1s", exit_code="7"))
    pod.live(1.5)
    assert pod.container()["restartCount"] == 1
    assert pod.container()["state"] == {"running": {"startedAt": status.timestamp(T0 + 1)}}
    assert pod.container()["lastState"]["terminated"]["exitCode"] == 7
    pod.live(1)
    assert pod.container()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert pod.condition("Ready") == ("False", "ContainersNotReady")
    pod.live()
    assert pod.container()["restartCount"] == 4
    assert pod.container()["state"]["terminated"]["exitCode"] == 0
    assert [when for when, _ in pod.writes] == [0, 1, 2, 12, 13, 33, 34, 74, 75]
    assert pod.pod["status"]["phase"] == "Succeeded"


def test_a_container_that_ended_well_is_not_restarted_with_the_others() -> None:
    pod = Life(a_pod("main", "helper", policy="OnFailure", exit_code="helper=1", fail_first="1")).live()
    assert (pod.container("main")["restartCount"], pod.container("helper")["restartCount"]) == (0, 1)
    assert pod.pod["status"]["phase"] == "Succeeded"


def test_a_service_runs_until_it_is_deleted() -> None:
    pod = Life(a_pod(policy="Always")).live(86_400)
    assert pod.writes == [(0, "Running")]


def test_a_deleted_pod_ends_by_sigterm_and_is_removed() -> None:
    pod = Life(a_pod(never_finish="true"))
    pod.live(10)
    pod.delete().live()
    assert pod.writes == [(0, "Running"), (10, "Failed")]
    assert pod.container()["state"]["terminated"]["exitCode"] == 143
    assert pod.steps[-1] == life.Remove()


def test_a_pod_that_ignores_sigterm_goes_on_for_that_long() -> None:
    pod = Life(a_pod(never_finish="true", ignore_sigterm="20s", sigterm_exit_code="0"))
    pod.live(10)
    pod.delete().live()
    assert pod.writes == [(0, "Running"), (30, "Succeeded")]


def test_a_pod_that_ignores_sigterm_for_too_long_is_killed_when_the_grace_period_ends() -> None:
    pod = Life(a_pod(never_finish="true", ignore_sigterm="1h"))
    pod.live(10)
    pod.delete(grace=5).live()
    assert pod.writes == [(0, "Running"), (15, "Failed")]
    assert pod.container()["state"]["terminated"]["exitCode"] == 137


def test_a_pod_that_would_end_anyway_within_its_grace_ends_as_it_would_have() -> None:
    pod = Life(a_pod(duration="12s", ignore_sigterm="1h"))
    pod.live(10)
    pod.delete().live()
    assert pod.writes[-1] == (12, "Succeeded")


def test_a_pod_deleted_before_it_started_fails_without_running() -> None:
    pod = Life(a_pod(start_after="1h"))
    pod.live(10)
    pod.delete().live()
    assert pod.writes == [(10, "Failed")]
    assert pod.container()["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert pod.steps[-1] == life.Remove()


def test_a_finished_pod_that_is_held_by_a_finalizer_is_removed_once() -> None:
    pod = Life(a_pod()).live().delete(grace=0).live()
    assert pod.steps[-1] == life.Nothing()


def test_an_unbound_pod_is_bound_unless_it_is_gated_or_leaving() -> None:
    unbound = a_pod()
    del unbound["spec"]["nodeName"]
    assert Life(unbound).live().steps == [life.Bind()]
    gated = a_pod(spec={"nodeName": "", "schedulingGates": [{"name": "example.com/wait"}]})
    assert Life(gated).live().steps == [life.Nothing()]
    assert Life(a_pod(spec={"nodeName": ""})).delete().live().steps == [life.Nothing()]


def test_ready_can_come_later_than_running() -> None:
    pod = Life(a_pod(duration="10s", ready_after="4s"))
    pod.live(1)
    assert pod.condition("Ready") == ("False", "ContainersNotReady")
    pod.live()
    assert pod.writes == [(0, "Running"), (4, "Running"), (10, "Succeeded")]


def test_an_evicted_pod_says_who_disrupted_it() -> None:
    pod = Life(a_pod(duration="3s", evict="true")).live()
    assert pod.pod["status"]["reason"] == "Evicted"
    assert pod.condition("DisruptionTarget") == ("True", "TerminationByKubelet")
    assert pod.writes == [(0, "Running"), (3, "Failed")]


def test_the_pods_own_deadline_fails_it() -> None:
    pod = Life(a_pod(never_finish="true", spec={"activeDeadlineSeconds": 7})).live()
    assert pod.writes == [(0, "Running"), (7, "Failed")]
    assert pod.pod["status"]["reason"] == "DeadlineExceeded"


def test_a_pod_that_crashes_its_node_says_so_instead_of_ending() -> None:
    pod = Life(a_pod(duration="2s", crash_node="30s")).live()
    assert pod.steps[-1] == life.Crash(30)
    assert pod.writes == [(0, "Running")]


def test_a_pod_whose_containers_went_down_with_the_node_fails() -> None:
    pod = Life(a_pod(duration="5s", crash_node="30s")).live()
    assert pod.memory.run is not None
    pod.memory.run.kill(pod.now)
    pod.live()
    assert pod.writes == [(0, "Running"), (5, "Failed")]
    assert pod.container()["state"]["terminated"]["exitCode"] == 137


def test_a_node_that_forgot_everything_goes_on_from_the_status() -> None:
    pod = Life(a_pod(duration="10s"))
    pod.live(4)
    pod.memory = life.Memory(noticed=pod.now, run=resumed(pod.pod, pod.behaviour, 0, pod.now))
    pod.live()
    assert pod.writes == [(0, "Running"), (10, "Succeeded")]


SECONDS = st.sampled_from(["0", "500ms", "3s", "20s"])
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        "duration": SECONDS,
        "exit_code": st.sampled_from(["0", "1", "main=2", "helper=3", "setup=4"]),
        "fail_first": st.sampled_from(["0", "1", "3"]),
        "never_finish": st.just("true"),
        "start_after": SECONDS,
        "ready_after": SECONDS,
        "ignore_sigterm": SECONDS,
        "sigterm_exit_code": st.sampled_from(["0", "9"]),
        "evict": st.just("true"),
    },
)


@given(
    annotations=ANNOTATIONS,
    policy=st.sampled_from(["Never", "OnFailure", "Always"]),
    inits=st.sampled_from([(), ("setup",)]),
    deadline=st.sampled_from([None, 5]),
    deleted_after=st.floats(0, 60),
    grace=st.sampled_from([1, 10]),
)
def test_whatever_it_does_a_deleted_pod_ends_once_and_in_time(
    *,
    annotations: dict[str, str],
    policy: str,
    inits: tuple[str, ...],
    deadline: int | None,
    deleted_after: float,
    grace: int,
) -> None:
    spec = {"activeDeadlineSeconds": deadline} if deadline else {}
    pod = Life(a_pod("main", "helper", policy=policy, inits=inits, spec=spec, **annotations))
    restarts = []

    def watched(patch: Json) -> None:
        Life.write(pod, patch)
        restarts.append(status.restart_count(pod.pod))

    pod.write = watched  # type: ignore[method-assign]
    pod.live(deleted_after)
    was_over = pod.pod["status"]["phase"] in life.TERMINAL
    pod.now = T0 + deleted_after
    pod.delete(0 if was_over else grace).live()
    phases = [phase for _, phase in pod.writes]
    assert phases[-1] in life.TERMINAL
    assert not set(phases[:-1]) & set(life.TERMINAL), "it ends once"
    assert was_over or pod.steps[-1] == life.Remove()
    assert pod.writes[-1][0] <= deleted_after + grace + 1e-6, "no longer than its grace"
    assert restarts == sorted(restarts), "restarts are never taken back"
    assert len(pod.writes) <= 3 + 3 * max(restarts), "few writes"

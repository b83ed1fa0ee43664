"""What `install` and `uninstall` decide without a cluster."""

from contextlib import closing
from typing import Any
from unittest import mock

import pytest

from multimirror.api import CLUSTER_ANNOTATION
from multimirror.cli.apply import differences
from multimirror.cli.installation.admission_change import SETTLE_SECONDS, Observed, Step, failing_open, steps
from multimirror.cli.installation.install import Installation, Report, why_not_ready
from multimirror.cli.installation.objects import Admission, InstallOptions, display_name, objects, superfluous
from multimirror.cli.installation.unfinished import summary
from multimirror.kube import Client, Connection
from tests.unit.kube.virtual_time import VirtualTimeLoop
from tests.unit.shell.fake_api import FakeCluster, Network, Refused


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        pytest.param({"a": 1}, {"a": 1}, [], id="nothing"),
        pytest.param({"spec": {"replicas": 2}}, {"spec": {"replicas": 3}}, ["spec.replicas"], id="a value"),
        pytest.param({"spec": {}}, {"spec": {"paused": True}}, ["spec.paused"], id="a field more"),
        pytest.param({"rules": [{"v": ["a"]}]}, {"rules": [{"v": ["b"]}]}, ["rules[0].v[0]"], id="inside of a list"),
        pytest.param({"rules": [1]}, {"rules": [1, 2]}, ["rules"], id="a longer list"),
    ],
)
def test_what_changed_is_named_as_people_write_it(before: Any, after: Any, fields: list[str]) -> None:
    assert sorted(differences(before, after)) == fields


def a_deployment(*, generation: int = 1, **status: int) -> dict[str, Any]:
    return {"kind": "Deployment", "metadata": {"generation": generation}, "spec": {"replicas": 2}, "status": status}


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        pytest.param(None, "is not there", id="nothing"),
        pytest.param({"kind": "CustomResourceDefinition"}, "is not served yet", id="a kind that was just made"),
        pytest.param(a_deployment(), "has not been looked at yet", id="a new one"),
        pytest.param(
            a_deployment(generation=2, observedGeneration=1, replicas=2, updatedReplicas=2, availableReplicas=2),
            "has not been looked at yet",
            id="changed a moment ago",
        ),
        pytest.param(
            a_deployment(observedGeneration=1, replicas=2, updatedReplicas=1),
            "1 of 2 replicas are new",
            id="in the middle of it",
        ),
        pytest.param(
            a_deployment(observedGeneration=1, replicas=3, updatedReplicas=2),
            "1 old replicas are on their way out",
            id="an old one is left",
        ),
        pytest.param(
            a_deployment(observedGeneration=1, replicas=2, updatedReplicas=2, availableReplicas=1),
            "1 of 2 replicas are available",
            id="one is not ready",
        ),
        pytest.param(
            a_deployment(observedGeneration=1, replicas=2, updatedReplicas=2, availableReplicas=2), None, id="done"
        ),
    ],
)
def test_a_wait_says_what_it_waits_for(obj: dict[str, Any] | None, words: str | None) -> None:
    assert why_not_ready(obj) == words


def test_what_is_needed_first_is_installed_first_and_what_blocks_is_removed_first() -> None:
    kinds = [obj["kind"] for obj in objects(InstallOptions())]
    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert kinds.index("ClusterRoleBinding") < kinds.index("Deployment") < kinds.index("MutatingWebhookConfiguration")
    gone = [display_name(obj) for obj in superfluous(InstallOptions(admission="policies"))]
    assert gone[0] == "mutatingwebhookconfiguration.admissionregistration.k8s.io/multimirror"


def test_unfinished_jobs_are_named_but_not_all_of_them() -> None:
    def job(number: int, **annotations: str) -> dict[str, Any]:
        return {"metadata": {"namespace": "team", "name": f"job-{number}", "annotations": annotations}}

    jobs = [job(0, **{CLUSTER_ANNOTATION: "east"}), job(1), job(2)]
    assert summary(jobs, most=2) == "team/job-0 on east, team/job-1 (waiting), and 1 more"


(CLOSED,) = [obj for obj in objects(InstallOptions()) if obj["kind"] == "MutatingWebhookConfiguration"]
OPEN = failing_open(CLOSED)


@pytest.mark.parametrize(
    ("wanted", "now", "done"),
    [
        pytest.param(
            "webhook",
            Observed(),
            ["apply", "wait", "try", "ask", "register", "remove"],
            id="the webhook, for the first time",
        ),
        pytest.param(
            "webhook",
            Observed(registration=CLOSED, webhook=True),
            ["apply", "register", "remove"],
            id="an upgrade of it",
        ),
        pytest.param(
            "webhook",
            Observed(policies=True),
            ["apply", "wait", "try", "ask", "register", "settle", "remove"],
            id="policies stay until it answers",
        ),
        pytest.param(
            "webhook",
            Observed(policies=True, registration=OPEN, webhook=True),
            ["apply", "wait", "try", "ask", "register", "settle", "remove"],
            id="a run that ended before it answered",
        ),
        pytest.param(
            "webhook",
            Observed(policies=True, registration=CLOSED, webhook=True),
            ["apply", "wait", "ask", "register", "settle", "remove"],
            id="a run that ended before the policies went: it is not opened again",
        ),
        pytest.param("policies", Observed(), ["apply", "remove"], id="policies, for the first time"),
        pytest.param(
            "policies",
            Observed(registration=CLOSED, webhook=True),
            ["apply", "settle", "unregister", "settle", "remove"],
            id="the webhook stays until policies act, and answers until it is forgotten",
        ),
        pytest.param(
            "policies",
            Observed(webhook=True),
            ["apply", "settle", "remove"],
            id="a run that ended when nobody was sent to the webhook any more",
        ),
        pytest.param(
            "none",
            Observed(registration=CLOSED, webhook=True),
            ["apply", "unregister", "settle", "remove"],
            id="nothing instead of the webhook: it answers until it is forgotten",
        ),
        pytest.param("none", Observed(policies=True), ["apply", "remove"], id="nothing instead of policies"),
    ],
)
def test_admission_changes_so_that_something_is_in_force_all_the_time(
    wanted: Admission, now: Observed, done: list[Step]
) -> None:
    assert steps(wanted, now) == done


def test_a_webhook_on_trial_asks_for_the_same_and_refuses_nobody() -> None:
    assert [each.pop("failurePolicy") for each in OPEN["webhooks"]] == ["Ignore", "Ignore"]
    assert [{**each, "failurePolicy": "Fail"} for each in OPEN["webhooks"]] == CLOSED["webhooks"]


@pytest.mark.parametrize(
    ("policies", "refused"), [(False, 403), (True, 403), (False, 400)], ids=["nothing before", "policies", "400"]
)
def test_where_others_refuse_the_question_nobody_is_told_that_the_webhook_is_not_reached(
    policies: bool, refused: int
) -> None:
    loop = VirtualTimeLoop(grace=0.0)
    cluster = FakeCluster("hub", loop.time)
    cluster.refuse = lambda request: Refused(refused, "Forbidden", "denied by somebody else's policy")
    network, warned = Network([cluster]), list[str]()

    async def ask() -> None:
        connection = Connection.strict(network.kubeconfig("hub"), name="management", plain_http=True)
        async with Client(connection) as client:
            run = Installation(
                client=client,
                options=InstallOptions(admission="webhook"),
                report=Report(lambda _: None),
                tell=lambda _: None,
                warn=warned.append,
                seconds=5.0,
            )
            await run._ask(Observed(policies=policies))

    with closing(loop), mock.patch("multimirror.kube.client.Http1Transport", network.transport):
        loop.run_until_complete(ask())
        assert warned == []
        assert loop.time() >= SETTLE_SECONDS, "time has to do instead of an answer"

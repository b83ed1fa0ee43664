"""`multimirror install` on a real API server: accepted without a warning, idempotent, and clear about what it did."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from clusters import chart
from clusters.local import BinariesMissingError
from clusters.local.helm import find_helm
from multimirror.admission import Registration, Service
from multimirror.admission.certificates import KeyPair, issue
from multimirror.cli.admission import AUTHORITY, SERVICE
from multimirror.cli.apply import apply_and_compare, find
from multimirror.cli.installation.authority import put_in
from multimirror.cli.installation.objects import COMPONENTS, KINDS, InstallOptions, everything, identity, objects
from multimirror.cli.manifests import manifest
from multimirror.kube import ApiError, Client
from multimirror.kube.errors import NotFound
from multimirror.kube.resources import NAMESPACES, SECRETS
from tests.e2e.installation.processes import SYSTEM, Json, multimirror
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster_kind("local")]
DEPLOYMENTS = KINDS["Deployment"]
WEBHOOK = ("--admission", "webhook")
WEBHOOKS = KINDS["MutatingWebhookConfiguration"]


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def clean(admin: Client) -> AsyncIterator[None]:
    """Nothing of ours is there at first, but our namespace."""
    with contextlib.suppress(ApiError):
        await admin.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
    with contextlib.suppress(NotFound):
        await admin.delete(SECRETS, AUTHORITY, SYSTEM)
    for component in COMPONENTS:
        for obj in everything(component, SYSTEM):
            if obj["kind"] not in {"Namespace", "CustomResourceDefinition"}:
                with contextlib.suppress(NotFound):
                    await admin.delete(KINDS[obj["kind"]], obj["metadata"]["name"], obj["metadata"].get("namespace"))
    yield


def helms(*values: str) -> list[Json]:
    try:
        return [obj for obj in yaml.safe_load_all(chart.render(*values)) if obj]
    except BinariesMissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("name", chart.PLAIN)
async def test_the_plain_manifests_are_accepted_without_a_warning(admin: Client, name: str) -> None:
    for obj in manifest(f"manifests/{name}"):
        outcome = await apply_and_compare(admin, obj, dry_run=True)
        assert (outcome.warnings, outcome.checked) == ([], True), identity(obj)


async def test_the_chart_with_everything_on_is_accepted_without_a_warning(admin: Client) -> None:
    values = (
        "admission=policies",
        "builtinController.enabled=true",
        "builtinController.gangScheduling=true",
        "metrics.dashboard.enabled=true",
        "dispatcher.priorityClassName=system-cluster-critical",
        "dispatcher.env[0].name=MULTIMIRROR_RUN_LOG_FORMAT",
        "dispatcher.env[0].value=text",
        "dispatcher.tolerations[0].operator=Exists",
        "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring",
        "networkPolicy.egress[0].ports[0].port=443",
        "imagePullSecrets[0].name=registry",
    )
    for obj in helms(*values):
        if obj["kind"] in KINDS:
            outcome = await apply_and_compare(admin, obj, dry_run=True)
            assert (outcome.warnings, outcome.checked) == ([], True), identity(obj)


async def test_warnings_and_unknown_fields_would_be_noticed(admin: Client) -> None:
    deployment = next(obj for obj in objects(InstallOptions()) if obj["kind"] == "Deployment")
    old = copy.deepcopy(deployment)
    old["spec"]["template"]["spec"]["nodeSelector"] = {"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "x"}
    outcome = await apply_and_compare(admin, old, dry_run=True)
    assert len(outcome.warnings) == 2
    assert "beta.kubernetes.io/" in outcome.warnings[0]
    odd = copy.deepcopy(deployment)
    odd["spec"]["replicaz"] = 2
    with pytest.raises(ApiError, match="replicaz"):
        await apply_and_compare(admin, odd, dry_run=True)


async def test_a_second_run_changes_nothing_and_a_flag_changes_its_field(admin: Client, kubeconfig: Path) -> None:
    first = await multimirror("install", *WEBHOOK, "--wait", kubeconfig=kubeconfig)
    assert first.code == 0, first.err
    assert first.err.count("warning: ") == first.err.count("gets no answer from them"), "the server has none"
    assert "deployment.apps/multimirror created" in first.out
    versions = await _versions(admin)
    again = await multimirror("install", *WEBHOOK, kubeconfig=kubeconfig)
    assert (again.code, again.err) == (0, "")
    assert again.out.splitlines()[-1] == f"{len(versions) + 1} unchanged"  # the webhook's authority is in no file
    assert await _versions(admin) == versions
    await admin.patch(DEPLOYMENTS, "multimirror", {"metadata": {"annotations": {"theirs": "stays"}}}, SYSTEM)
    more = await multimirror("install", *WEBHOOK, "--replicas", "3", "--image", "mm:2", kubeconfig=kubeconfig)
    changed = [line for line in more.out.splitlines()[:-1] if not line.endswith("unchanged")]
    image = "spec.template.spec.containers[0].image"
    assert changed == [
        f"deployment.apps/multimirror-admission configured ({image})",
        f"deployment.apps/multimirror configured (spec.replicas, {image})",
    ]
    deployment = await admin.get(DEPLOYMENTS, "multimirror", SYSTEM)
    assert deployment["metadata"]["annotations"]["theirs"] == "stays"


async def _versions(admin: Client) -> dict[tuple[str, str, str], str]:
    found = {}
    for obj in objects(InstallOptions()):
        live = await find(admin, obj)
        assert live is not None
        found[identity(obj)] = live["metadata"].get("generation", live["metadata"]["resourceVersion"])
    return found


async def test_a_dry_run_changes_nothing(admin: Client, kubeconfig: Path) -> None:
    served = await multimirror("install", *WEBHOOK, "--dry-run=server", "-n", "nowhere", kubeconfig=kubeconfig)
    assert served.code == 0, served.err
    assert "deployment.apps/multimirror created (not checked: its namespace is not there yet)" in served.out
    assert "clusterrole.rbac.authorization.k8s.io/multimirror-dispatcher created\n" in served.out
    assert "dry run: " in served.out
    printed = await multimirror("install", *WEBHOOK, "--dry-run", "--image", "mm:3", kubeconfig=kubeconfig)
    shown = list(yaml.safe_load_all(printed.out))
    (secret,) = [obj for obj in shown if obj["kind"] == "Secret"]
    pair = KeyPair.read(secret["data"])
    assert pair is not None
    assert shown == put_in(objects(InstallOptions(image="mm:3")), pair, SYSTEM)
    for obj in objects(InstallOptions(namespace="nowhere")):
        if obj["kind"] != "CustomResourceDefinition":
            assert await find(admin, obj) is None


async def test_no_webhook_stays_registered_that_nobody_answers(admin: Client, kubeconfig: Path) -> None:
    await multimirror("install", *WEBHOOK, kubeconfig=kubeconfig)
    assert await admin.get(WEBHOOKS, "multimirror")
    without = await multimirror("install", "--admission", "none", kubeconfig=kubeconfig)
    assert "mutatingwebhookconfiguration.admissionregistration.k8s.io/multimirror deleted" in without.out
    assert "role.rbac.authorization.k8s.io/multimirror-admission deleted" in without.out
    assert "deployment.apps/multimirror-admission deleted" in without.out
    assert "secret/multimirror-admission-ca deleted" in without.out
    with pytest.raises(NotFound):
        await admin.get(WEBHOOKS, "multimirror")


async def test_the_authority_is_kept_and_what_others_put_into_the_registration_is_not(
    admin: Client, kubeconfig: Path
) -> None:
    await multimirror("install", *WEBHOOK, kubeconfig=kubeconfig)
    before = await admin.get(SECRETS, AUTHORITY, SYSTEM)
    stored = KeyPair.read(before["data"])
    assert stored is not None
    registered = await admin.get(WEBHOOKS, "multimirror")
    wanted = Registration(service=Service(SYSTEM, "multimirror-admission"))
    assert wanted.missing(registered, issue(stored, wanted.hosts(), stored.begins)) == []
    foreign = {**registered["webhooks"][0], "name": "all.example.com"}
    await admin.replace(WEBHOOKS, {**registered, "webhooks": [*registered["webhooks"], foreign]})
    done = await multimirror("install", *WEBHOOK, kubeconfig=kubeconfig)
    assert done.code == 0, done.err
    assert (await admin.get(SECRETS, AUTHORITY, SYSTEM))["data"] == before["data"]
    assert (await admin.get(WEBHOOKS, "multimirror"))["webhooks"] == registered["webhooks"]


async def test_without_a_word_about_admission_policies_are_taken_where_there_are_any(
    admin: Client, kubeconfig: Path
) -> None:
    done = await multimirror("install", kubeconfig=kubeconfig)
    assert done.code == 0, done.err
    assert (await admin.list(KINDS["MutatingAdmissionPolicy"])).items
    with pytest.raises(NotFound):
        await admin.get(WEBHOOKS, "multimirror")


async def test_policies_stay_until_the_webhook_answers(admin: Client, kubeconfig: Path) -> None:
    policies = KINDS["MutatingAdmissionPolicy"]
    done = await multimirror("install", "--admission", "policies", kubeconfig=kubeconfig)
    assert done.code == 0, done.err
    (deployment,) = [obj for obj in objects(InstallOptions()) if identity(obj)[::2] == ("Deployment", SERVICE)]
    paused = {**deployment, "spec": {**deployment["spec"], "paused": True}}
    await admin.create(DEPLOYMENTS, paused, SYSTEM)  # no pod comes of it
    early = await multimirror("install", *WEBHOOK, "--timeout", "1", kubeconfig=kubeconfig)
    assert early.code == 1
    assert "error: not ready after 1 s" in early.err
    assert len((await admin.list(policies)).items) == 2
    with pytest.raises(NotFound):
        await admin.get(WEBHOOKS, "multimirror")
    await admin.patch(DEPLOYMENTS, SERVICE, {"spec": {"paused": False}}, SYSTEM)
    # Its pods are simulated: they are ready, and nobody answers.
    late = await multimirror("install", *WEBHOOK, "--timeout", "10", kubeconfig=kubeconfig)
    assert late.code == 1
    assert "the API server gets no answer from them: the policies stay" in late.err
    assert len((await admin.list(policies)).items) == 2
    with pytest.raises(NotFound):
        await admin.get(WEBHOOKS, "multimirror")
    back = await multimirror("install", "--admission", "policies", kubeconfig=kubeconfig)
    assert back.code == 0, back.err
    assert f"deployment.apps/{SERVICE} deleted" in back.out


async def test_a_webhook_that_nobody_can_reach_is_told_of(admin: Client, kubeconfig: Path) -> None:
    done = await multimirror("install", *WEBHOOK, kubeconfig=kubeconfig)
    assert done.code == 0, done.err
    assert "warning: the webhook's replicas are ready, but the API server gets no answer from them" in done.err
    registered = await admin.get(WEBHOOKS, "multimirror")
    assert {each["failurePolicy"] for each in registered["webhooks"]} == {"Fail"}, "as ever when it is away"


async def test_a_wait_that_comes_to_nothing_says_where_to_look(kubeconfig: Path) -> None:
    done = await multimirror("install", *WEBHOOK, "--wait", "--timeout", "0", kubeconfig=kubeconfig)
    assert done.code == 1
    assert done.err.splitlines()[-2:] == [
        "error: not ready after 0 s",
        f"  See `kubectl -n {SYSTEM} describe pods`, or give it more time with --timeout.",
    ]


async def test_helm_installs_upgrades_and_removes_it_and_is_left_its_own(admin: Client, kubeconfig: Path) -> None:
    for definition in (obj for obj in objects(InstallOptions()) if obj["kind"] == "CustomResourceDefinition"):
        with contextlib.suppress(NotFound):  # helm takes over nothing that it did not make
            await admin.delete(KINDS["CustomResourceDefinition"], definition["metadata"]["name"])
    told = await _helm("install", kubeconfig, "--set", "builtinController.enabled=true", "--set", "admission=webhook")
    authority = (await admin.get(SECRETS, AUTHORITY, SYSTEM))["data"]
    assert "warning" not in told.lower()
    refused = await multimirror("install", *WEBHOOK, kubeconfig=kubeconfig)
    assert refused.code == 4
    assert "belongs to the Helm release multimirror" in refused.err
    await _helm("upgrade", kubeconfig, "--set", "dispatcher.replicas=3", "--set", "admission=webhook")
    assert (await admin.get(SECRETS, AUTHORITY, SYSTEM))["data"] == authority, "an upgrade keeps it"
    assert (await admin.get(DEPLOYMENTS, "multimirror", SYSTEM))["spec"]["replicas"] == 3
    left = await multimirror("uninstall", kubeconfig=kubeconfig)
    assert f"next: `helm uninstall multimirror --namespace {SYSTEM}` removes the rest" in left.out
    assert await admin.get(DEPLOYMENTS, "multimirror", SYSTEM)
    await _helm("uninstall", kubeconfig)
    for obj in objects(InstallOptions()):
        kept = obj["kind"] in {"Namespace", "CustomResourceDefinition"}
        assert (await find(admin, obj) is not None) is kept, identity(obj)
    for definition in (obj for obj in objects(InstallOptions()) if obj["kind"] == "CustomResourceDefinition"):
        await admin.delete(KINDS["CustomResourceDefinition"], definition["metadata"]["name"])


async def test_by_helm_admission_changes_through_both(admin: Client, kubeconfig: Path) -> None:
    async def helm(verb: str, admission: str) -> bool:
        """Whether it is whole; what is in force is said either way."""
        told = await _helm(verb, kubeconfig, "--set", f"admission={admission}", "--set", "crds.install=false")
        return "is half done" not in told

    async def in_force() -> tuple[int, set[str]]:
        """How many policies there are, and how the webhook fails."""
        webhooks = [each for obj in (await admin.list(WEBHOOKS)).items for each in obj["webhooks"]]
        return len((await admin.list(KINDS["MutatingAdmissionPolicy"])).items), {e["failurePolicy"] for e in webhooks}

    for definition in manifest("manifests/multimirror-none.yaml"):
        if definition["kind"] == "CustomResourceDefinition":
            await apply_and_compare(admin, definition)
    assert await helm("install", "policies")
    assert await in_force() == (2, set())
    assert not await helm("upgrade", "webhook"), "the webhook does not run yet"
    assert await in_force() == (2, {"Ignore"})
    await eventually(lambda: helm("upgrade", "webhook"))
    assert await in_force() == (0, {"Fail"})
    assert await helm("upgrade", "webhook")
    assert await in_force() == (0, {"Fail"})
    assert not await helm("upgrade", "policies"), "nobody can know yet whether they act"
    assert await in_force() == (2, {"Ignore"})
    await eventually(lambda: helm("upgrade", "policies"))
    assert await in_force() == (2, set())
    assert await helm("upgrade", "none")
    assert not await helm("upgrade", "webhook"), "whoever sets managedBy himself is not refused meanwhile"
    assert await in_force() == (0, {"Ignore"})
    await eventually(lambda: helm("upgrade", "webhook"))
    assert not await helm("upgrade", "none"), "nobody is refused while the Service goes"
    assert await in_force() == (0, {"Ignore"})
    assert await helm("upgrade", "none")
    assert await in_force() == (0, set())
    await _helm("uninstall", kubeconfig)


async def _helm(verb: str, kubeconfig: Path, *arguments: str) -> str:
    try:
        path = find_helm()
    except BinariesMissingError as missing:
        pytest.skip(str(missing))
    where = [] if verb == "uninstall" else [str(chart.CHART)]
    process = await asyncio.create_subprocess_exec(
        *(str(path), verb, "multimirror", *where, "--namespace", SYSTEM, "--kubeconfig", str(kubeconfig), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()

"""The chart: what it renders, what it refuses, and that the plain manifests and `multimirror install` say the same."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import multimirror
from clusters import chart
from clusters.local import BinariesMissingError
from clusters.local.helm import find_helm
from multimirror.admission import placement, policies
from multimirror.admission.certificates import KeyPair, issue
from multimirror.admission.registration import Registration, Service
from multimirror.api import MANAGED_BY
from multimirror.cli.doctor.prerequisites import permissions
from multimirror.cli.installation.objects import (
    ADMISSIONS,
    KINDS,
    InstallOptions,
    everything,
    identity,
    objects,
    superfluous,
)

Json = dict[str, Any]
EVERYTHING = (
    "builtinController.enabled=true",
    "builtinController.gangScheduling=true",
    "metrics.serviceMonitor.enabled=true",
    "metrics.prometheusRule.enabled=true",
    "metrics.dashboard.enabled=true",
)
WITHOUT_KEYS = ("crds.keep=false", "admissionWebhook.tls.create=false")
"""What can be compared: Helm makes a new authority each time that it does not find one."""
pytestmark = pytest.mark.xdist_group("chart")


@pytest.fixture(scope="module", autouse=True)
def helm() -> None:
    try:
        find_helm()
    except BinariesMissingError as missing:
        pytest.skip(str(missing))


def rendered(*values: str, namespace: str = chart.NAMESPACE) -> list[Json]:
    return [obj for obj in yaml.safe_load_all(chart.render(*values, namespace=namespace)) if obj]


def refused(*values: str) -> str:
    with pytest.raises(subprocess.CalledProcessError) as error:
        chart.render(*values)
    return str(error.value.stderr)


@pytest.mark.parametrize("component", ["dispatcher", "builtinController"])
@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy"])
def test_a_proxy_that_nobody_would_use_is_refused(component: str, name: str) -> None:
    said = refused("builtinController.enabled=true", f"{component}.env[0].name={name}", f"{component}.env[0].value=x")
    assert f"{name}: API servers are reached directly" in said


def without_helms_labels(obj: Json) -> Json:
    metadata = dict(obj["metadata"])
    metadata["labels"] = {
        key: value
        for key, value in metadata["labels"].items()
        if key not in {"helm.sh/chart", "app.kubernetes.io/managed-by"}
    }
    obj = {**obj, "metadata": metadata}
    if obj["kind"] == "Deployment":
        obj["spec"] = {**obj["spec"], "template": without_helms_labels({"kind": "", **obj["spec"]["template"]})}
        obj["spec"]["template"].pop("kind")
    return obj


def test_the_linter_has_nothing_to_say() -> None:
    assert "[WARNING]" not in chart.helm("lint", "--strict", str(chart.CHART))


@pytest.mark.parametrize("name", chart.PLAIN)
def test_the_plain_manifests_are_current(name: str) -> None:
    stored = (chart.DEPLOY / "manifests" / name).read_text()
    assert list(yaml.safe_load_all(stored)) == list(yaml.safe_load_all(chart.plain(name))), "run `make manifests`"


def test_the_chart_carries_the_generated_files() -> None:
    for path in (chart.DEPLOY / "crds").iterdir():
        assert (chart.CHART / "files" / "crds" / path.name).read_text() == path.read_text(), "run `make manifests`"
    for name in ("policies.yaml", "placement.yaml"):
        generated = (chart.DEPLOY / "admission" / name).read_text()
        assert (chart.CHART / "files" / name).read_text() == generated, "run `make manifests`"


def test_the_chart_has_the_version_of_the_package() -> None:
    about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    project = Path(chart.DEPLOY.parent / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"$', project, re.MULTILINE)
    assert version is not None
    assert about["appVersion"] == about["version"] == version[1], multimirror.__name__


@pytest.mark.parametrize("admission", ADMISSIONS)
def test_the_command_installs_what_helm_would(admission: str) -> None:
    wanted = InstallOptions(namespace="elsewhere", image="registry.example.com/mm:v7", replicas=3, admission=admission)  # type: ignore[arg-type]
    values = ("image.repository=registry.example.com/mm", "image.tag=v7", "dispatcher.replicas=3", *WITHOUT_KEYS)
    helms = rendered(f"admission={admission}", *values, namespace="elsewhere")
    ours = [obj for obj in objects(wanted) if obj["kind"] != "Namespace"]
    assert {identity(obj): obj for obj in ours} == {identity(obj): without_helms_labels(obj) for obj in helms}


@pytest.mark.parametrize("admission", ADMISSIONS)
def test_policies_and_flags_are_rendered_for_the_manager_in_use(admission: str) -> None:
    name = "example.com/ours"
    helms = rendered(f"admission={admission}", f"managedBy={name}", *WITHOUT_KEYS)
    wanted = InstallOptions(admission=admission, managed_by=name)  # type: ignore[arg-type]
    ours = [obj for obj in objects(wanted) if obj["kind"] != "Namespace"]
    assert {identity(obj): obj for obj in ours} == {identity(obj): without_helms_labels(obj) for obj in helms}
    assert MANAGED_BY not in str(ours)
    found = {identity(obj): obj for obj in helms}
    code = [*placement.guards(name), *(policies(name) if admission == "policies" else [])]
    assert all(found[identity(each)] == each for each in code), "as the code would have it"
    (pod,) = (each for each in pods(helms) if "run" in each["containers"][0]["command"])
    assert f"--managed-by={name}" in pod["containers"][0]["args"]


@pytest.mark.parametrize(
    "name", ["ours", "example.com/o'urs", "example.com/ours' || true", "Example.com/ours", "a/b/c"]
)
def test_a_manager_that_no_job_can_have_is_refused(name: str) -> None:
    assert "managedBy" in refused(f"managedBy={name}")


def test_policies_are_rendered_for_the_size_in_use() -> None:
    found = str(rendered("admission=policies", "maxJobBytes=100000"))
    assert "variables.bytes <= 100000" in found
    assert "262144" not in found


def test_the_command_installs_the_builtin_controller_that_helm_would() -> None:
    wanted = InstallOptions(component="builtin-controller", namespace="elsewhere", image="mm:v7", replicas=1)
    values = ("dispatcher.enabled=false", "builtinController.enabled=true", "builtinController.replicas=1")
    helms = rendered(*values, "image.repository=mm", "image.tag=v7", namespace="elsewhere")
    ours = [obj for obj in objects(wanted) if obj["kind"] != "Namespace"]
    assert {identity(obj): obj for obj in ours} == {identity(obj): without_helms_labels(obj) for obj in helms}


def test_what_other_flags_installed_is_known_and_the_webhook_goes_first() -> None:
    left = superfluous(InstallOptions(admission="none"))
    assert left[0]["kind"] == "MutatingWebhookConfiguration"
    assert {obj["kind"] for obj in left} >= {"MutatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Role"}
    assert {identity(obj) for obj in left} < {identity(obj) for obj in everything("dispatcher", chart.NAMESPACE)}


def pods(found: list[Json]) -> list[Json]:
    return [obj["spec"]["template"]["spec"] for obj in found if obj["kind"] == "Deployment"]


def test_every_pod_is_locked_down() -> None:
    found = pods(rendered(*EVERYTHING))
    assert len(found) == 3
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any(pod.get(field) for field in ("hostNetwork", "hostPID", "hostIPC", "volumes"))
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"]
            assert container["resources"]["limits"]["memory"]


def test_two_replicas_spread_over_nodes_and_zones_and_only_one_may_be_away() -> None:
    found = rendered("admission=webhook")
    deployments = [obj for obj in found if obj["kind"] == "Deployment"]
    budgets = {obj["metadata"]["name"]: obj for obj in found if obj["kind"] == "PodDisruptionBudget"}
    assert [obj["metadata"]["name"] for obj in deployments] == ["multimirror-admission", "multimirror"]
    for deployment in deployments:
        budget = budgets[deployment["metadata"]["name"]]
        keys = [each["topologyKey"] for each in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]]
        assert (deployment["spec"]["replicas"], budget["spec"]["maxUnavailable"]) == (2, 1)
        assert budget["spec"]["selector"] == deployment["spec"]["selector"]
        assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]


def test_nobody_comes_in_who_is_not_named_but_api_servers() -> None:
    def ingress(*values: str) -> dict[str, Any]:
        found = [obj for obj in rendered("admission=webhook", *values) if obj["kind"] == "NetworkPolicy"]
        return {obj["metadata"]["name"]: obj["spec"].get("ingress") for obj in found}

    assert ingress() == {"multimirror": None, "multimirror-admission": [{"ports": [{"port": "webhook"}]}]}
    peer = {"ipBlock": {"cidr": "10.0.0.0/28"}}
    named = ingress(
        "networkPolicy.metricsFrom[0].ipBlock.cidr=10.0.0.0/28", "networkPolicy.webhookFrom[0].ipBlock.cidr=10.0.0.0/28"
    )
    metrics = {"ports": [{"port": "metrics"}], "from": [peer]}
    assert named == {
        "multimirror": [metrics],
        "multimirror-admission": [metrics, {"ports": [{"port": "webhook"}], "from": [peer]}],
    }


def test_no_account_of_ours_may_write_what_api_servers_do_at_admission() -> None:
    for _, rule in rules(rendered(*EVERYTHING, "admission=webhook")):
        if "admissionregistration.k8s.io" in rule["apiGroups"]:
            assert set(rule["verbs"]) == {"list", "watch"}
            assert rule["resourceNames"] == ["multimirror"]


def secrets(found: list[Json]) -> list[Json]:
    return [obj for obj in found if obj["kind"] == "Secret"]


def test_helm_makes_an_authority_that_the_registration_trusts() -> None:
    found = rendered("admission=webhook", "admissionWebhook.tls.secretName=authority")
    (secret,) = secrets(found)
    pair = KeyPair.read(secret["data"])
    assert pair is not None
    assert pair.is_authority
    (registration,) = [obj for obj in found if obj["kind"] == "MutatingWebhookConfiguration"]
    wanted = Registration(service=Service(chart.NAMESPACE, "multimirror-admission"))
    shown = issue(pair, wanted.hosts(), pair.begins)
    assert (wanted.missing(registration, shown), wanted.foreign(registration)) == ([], [])
    (role,) = [obj for obj in found if obj["kind"] == "Role" and obj["metadata"]["name"] == "multimirror-admission"]
    assert role["rules"][0]["resourceNames"] == ["authority"]


def failure_policies(found: list[Json]) -> set[str]:
    return {
        webhook["failurePolicy"]
        for obj in found
        if obj["kind"] == "MutatingWebhookConfiguration"
        for webhook in obj["webhooks"]
    }


def test_both_are_the_policies_and_a_webhook_that_fails_open() -> None:
    found = rendered("admission=both", *WITHOUT_KEYS)
    alone = [*rendered("admission=policies", *WITHOUT_KEYS), *rendered("admission=webhook", *WITHOUT_KEYS)]
    assert {identity(obj) for obj in found} == {identity(obj) for obj in alone}
    assert failure_policies(found) == {"Ignore"}
    assert failure_policies(alone) == {"Fail"}


def test_what_is_rendered_of_admission_is_decided_once_for_all_templates(tmp_path: Path) -> None:
    """It depends on the cluster and the time: two templates must not see two of them."""
    copied = Path(shutil.copytree(chart.CHART, tmp_path / "chart"))
    helpers = copied / "templates" / "_helpers.tpl"
    deciding = "{{- toJson $parts -}}"
    assert deciding in helpers.read_text()
    helpers.write_text(helpers.read_text().replace(deciding, '{"webhook": "{{ randAlphaNum 16 }}", "policies": false}'))
    template = 'kind: Seen\nmetadata: {name: {{ (include "multimirror.admission.parts" . | fromJson).webhook }}}\n'
    for name in ("a", "z"):
        (copied / "templates" / f"{name}.yaml").write_text(template)
    found = [obj for obj in yaml.safe_load_all(chart.helm("template", "multimirror", str(copied))) if obj]
    seen = [obj["metadata"]["name"] for obj in found if obj["kind"] == "Seen"]
    assert len(seen) == 2
    assert {*seen} == failure_policies(found)


def test_an_upgrade_that_is_rendered_without_a_cluster_is_whole() -> None:
    for admission in ADMISSIONS:
        values = ("--set", f"admission={admission}", "--set", "admissionWebhook.tls.create=false")
        text = chart.helm("template", "multimirror", str(chart.CHART), "--is-upgrade", *values)
        upgraded = [obj for obj in yaml.safe_load_all(text) if obj]
        assert failure_policies(upgraded) == ({"Fail"} if admission == "webhook" else set())


def test_certificates_can_be_brought_by_somebody_else() -> None:
    own = rendered("admission=webhook", "admissionWebhook.tls.create=false", "admissionWebhook.tls.caBundle=eA==")
    assert secrets(own) == []
    (registration,) = [obj for obj in own if obj["kind"] == "MutatingWebhookConfiguration"]
    assert {each["clientConfig"]["caBundle"] for each in registration["webhooks"]} == {"eA=="}
    manager = ("admissionWebhook.tls.certManager.enabled=true", "admissionWebhook.tls.certManager.issuerRef.name=ca")
    found = rendered("admission=webhook", *manager)
    assert secrets(found) == []
    (certificate,) = [obj for obj in found if obj["kind"] == "Certificate"]
    assert certificate["spec"]["dnsNames"] == [f"multimirror-admission.{chart.NAMESPACE}.svc"]
    (registration,) = [obj for obj in found if obj["kind"] == "MutatingWebhookConfiguration"]
    injected = {"cert-manager.io/inject-ca-from": f"{chart.NAMESPACE}/multimirror-admission"}
    assert registration["metadata"]["annotations"] == injected
    assert "which Issuer?" in refused("admission=webhook", "admissionWebhook.tls.certManager.enabled=true")


def test_whoever_knows_the_certificates_of_api_servers_can_let_nobody_else_in() -> None:
    found = rendered("admission=webhook", "admissionWebhook.tls.clientCAConfigMap=api-servers")
    (pod,) = [pod for pod in pods(found) if pod["serviceAccountName"] == "multimirror-admission"]
    (container,) = pod["containers"]
    (flag,) = [each for each in container["args"] if each.startswith("--client-ca=")]
    assert flag.removeprefix("--client-ca=").startswith(container["volumeMounts"][0]["mountPath"])
    assert pod["volumes"] == [{"name": "client-ca", "configMap": {"name": "api-servers"}}]


@pytest.mark.parametrize(
    ("served", "admission"),
    [(["--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"], "policies"), ([], "webhook")],
)
def test_auto_means_policies_where_the_server_has_them(served: list[str], admission: str) -> None:
    text = chart.helm("template", "multimirror", str(chart.CHART), "--kube-version", "1.33.0", *served)
    kinds = {obj["kind"] for obj in yaml.safe_load_all(text) if obj}
    expected = {"policies": "MutatingAdmissionPolicy", "webhook": "MutatingWebhookConfiguration"}
    assert kinds & set(expected.values()) == {expected[admission]}


def rules(found: list[Json]) -> list[tuple[str, Json]]:
    roles = [obj for obj in found if obj["kind"] in {"Role", "ClusterRole"}]
    return [(obj["kind"], rule) for obj in roles for rule in obj["rules"]]


def test_no_right_is_a_wildcard_and_secrets_and_leases_are_those_of_our_namespace() -> None:
    for kind, rule in rules(rendered(*EVERYTHING)):
        for field in ("apiGroups", "resources", "verbs"):
            assert "*" not in rule[field]
        if kind == "ClusterRole":
            assert not {"secrets", "leases", "serviceaccounts/token", "pods/exec"} & set(rule["resources"])
            assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])


def test_without_the_webhook_nothing_of_it_is_there() -> None:
    for admission in ("policies", "none"):
        assert "webhook" not in yaml.safe_dump(rendered(f"admission={admission}")).lower()


@pytest.mark.parametrize("admission", ADMISSIONS)
def test_where_jobs_are_is_left_to_the_dispatcher_however_they_are_admitted(admission: str) -> None:
    found = {identity(obj) for obj in rendered(f"admission={admission}")}
    assert ("ValidatingAdmissionPolicyBinding", "", "multimirror-placement") in found


def test_the_definitions_survive_the_release() -> None:
    crds = [obj for obj in rendered() if obj["kind"] == "CustomResourceDefinition"]
    assert len(crds) == 3
    assert all(crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for crd in crds)
    assert not [obj for obj in rendered("crds.install=false") if obj["kind"] == "CustomResourceDefinition"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param(
            "admission=maybe", "'auto', 'webhook', 'policies', 'both', 'none'", id="a choice that there is not"
        ),
        pytest.param("dispatcher.replicas=0", "minimum", id="no replica"),
        pytest.param("dispatcher.replica=3", "additional properties 'replica' not allowed", id="a misspelt value"),
        pytest.param("image.digest=abc", "pattern", id="a digest that is none"),
        pytest.param("dispatcher.extraArgs[0]=debug", "pattern", id="an argument that is no flag"),
        pytest.param("networkPolicy.enabled=perhaps", "boolean", id="neither true nor false"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(value: str, words: str) -> None:
    assert words in refused(value)


def schema_paths(schema: Json, path: str = "") -> set[str]:
    found = set()
    for name, inner in schema.get("properties", {}).items():
        found |= {f"{path}.{name}"} | schema_paths(inner, f"{path}.{name}")
    return found


def value_paths(values: Json, schema: Json, path: str = "") -> set[str]:
    found = set()
    for name, inner in values.items():
        known = schema.get("properties", {}).get(name, {})
        found |= {f"{path}.{name}"}
        if "properties" in known:
            found |= value_paths(inner, known, f"{path}.{name}")
    return found


def test_every_value_is_in_the_schema_and_has_a_default() -> None:
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text())
    schema = yaml.safe_load((chart.CHART / "values.schema.json").read_text())
    assert value_paths(values, schema) | {".global", ".imagePullSecrets.name"} == schema_paths(schema) | {
        ".imagePullSecrets.name"
    }


def test_all_kinds_that_are_rendered_can_be_installed_and_removed_by_the_command() -> None:
    kinds = {obj["kind"] for each in ADMISSIONS for obj in rendered(f"admission={each}")}
    assert kinds <= set(KINDS)


def test_what_run_checks_for_is_what_the_roles_grant() -> None:
    found = {
        (group, resource, verb)
        for _, rule in rules([obj for obj in rendered() if obj["metadata"]["name"] == "multimirror-dispatcher"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    asked = {(right.group, right.resource, right.verb) for right in permissions("ours", lease="lease", admission=False)}
    assert asked == found

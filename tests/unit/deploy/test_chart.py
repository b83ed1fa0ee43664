"""The chart: what it renders, what it refuses, and that the plain manifests and `multimirror install` say the same."""

import re
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
    values = ("image.repository=registry.example.com/mm", "image.tag=v7", "dispatcher.replicas=3", "crds.keep=false")
    helms = rendered(f"admission={admission}", *values, namespace="elsewhere")
    ours = [obj for obj in objects(wanted) if obj["kind"] != "Namespace"]
    assert {identity(obj): obj for obj in ours} == {identity(obj): without_helms_labels(obj) for obj in helms}


@pytest.mark.parametrize("admission", ADMISSIONS)
def test_policies_and_flags_are_rendered_for_the_manager_in_use(admission: str) -> None:
    name = "example.com/ours"
    helms = rendered(f"admission={admission}", f"managedBy={name}", "crds.keep=false")
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
    assert len(found) == 2
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
    found = rendered()
    (deployment,) = [obj for obj in found if obj["kind"] == "Deployment"]
    (budget,) = [obj for obj in found if obj["kind"] == "PodDisruptionBudget"]
    keys = [each["topologyKey"] for each in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]]
    assert (deployment["spec"]["replicas"], budget["spec"]["maxUnavailable"]) == (2, 1)
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]


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
    assert len(crds) == 2
    assert all(crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for crd in crds)
    assert not [obj for obj in rendered("crds.install=false") if obj["kind"] == "CustomResourceDefinition"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param("admission=maybe", "'webhook', 'policies', 'none'", id="a choice that there is not"),
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
        for _, rule in rules([obj for obj in rendered() if not obj["metadata"]["name"].endswith(("viewer", "editor"))])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    asked = {(right.group, right.resource, right.verb) for right in permissions("ours", lease="lease", admission=True)}
    assert asked | {("", "secrets", "update")} == found  # the certificates, renewed

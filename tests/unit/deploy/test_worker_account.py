"""What is applied to workers, read together: the policies cover what the roles grant."""

import yaml

from multimirror.api import WORKER_SYSTEM_NAMESPACE, is_protected
from multimirror.cli.manifests import manifest
from multimirror.cli.worker_account import limits, token_roles
from multimirror.workers.tokens import ACCOUNT, LONGEST_SECONDS, Slots

WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def test_the_policy_on_namespaces_is_about_everything_that_the_account_may_write_in_them() -> None:
    role = next(
        each for each in manifest("worker/worker.yaml") if each["metadata"]["name"] == "multimirror-worker-jobs"
    )
    written = {
        (group, resource)
        for rule in role["rules"]
        if WRITES & set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    (policy,) = (each for each in limits() if each["metadata"]["name"] == "multimirror-namespaces" and _is_policy(each))
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert written == {(group, resource) for group in rule["apiGroups"] for resource in rule["resources"]}
    assert set(rule["operations"]) == {"CREATE", "UPDATE", "DELETE"}


def _is_policy(document: dict[str, object]) -> bool:
    return document["kind"] == "ValidatingAdmissionPolicy"


def test_every_policy_is_about_the_account_alone_and_bound_to_deny() -> None:
    account = f"system:serviceaccount:{WORKER_SYSTEM_NAMESPACE}:{ACCOUNT}"
    policies = [each for each in limits() if _is_policy(each)]
    bindings = {each["spec"]["policyName"]: each["spec"] for each in limits() if not _is_policy(each)}
    assert len(policies) == 3
    for policy in policies:
        (condition,) = policy["spec"]["matchConditions"]
        assert account in condition["expression"]
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert bindings[policy["metadata"]["name"]]["validationActions"] == ["Deny"]


def test_policies_and_code_mean_the_same() -> None:
    text = yaml.safe_dump_all(limits(), width=10_000)
    assert f"<= {LONGEST_SECONDS}" in text
    assert "startsWith('kube-')" in text.replace("''", "'")
    assert f"!= '{WORKER_SYSTEM_NAMESPACE}'" in text.replace("''", "'")
    assert is_protected("kube-anything")
    assert is_protected(WORKER_SYSTEM_NAMESPACE)


def test_the_account_may_delete_the_secrets_of_its_tokens_and_no_others() -> None:
    slots = Slots.of("origin", "east")
    role, binding = token_roles(slots)
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": list(slots.names), "verbs": ["delete"]}
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == f"multimirror-tokens-{slots.key}"


def test_room_node_by_node_takes_the_right_to_list_pods_and_no_other_and_is_not_given_unasked() -> None:
    role, binding = manifest("worker/free-capacity.yaml")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    assert binding["kind"] == "ClusterRoleBinding"
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    bound = {each["roleRef"]["name"] for each in manifest("worker/worker.yaml") if each["kind"] == "ClusterRoleBinding"}
    assert role["metadata"]["name"] not in bound

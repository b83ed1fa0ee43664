"""What all of our admission policies are made of: the objects themselves, and the CEL that they share.

**Who we are** is asked of the cluster's own authorizer: a verb that was granted by its name, for the whole cluster.
Whoever may do everything (`*`: administrators, and the accounts with which Argo CD, Flux or Helm operators write what
tenants committed) has such a verb without having been given it, and is not us: what comes through such an account is
somebody else's wish. A person who has to write in our place says so (`kubectl --as` our account).

Rules look at what a request changes, never at how an object is: a controller that takes a finalizer off an object that
is on its way out is not refused for what somebody else did to it.
"""

from typing import Final

from multimirror.batch import Json
from multimirror.kinds import KINDS

GROUP: Final = "admissionregistration.k8s.io"


def policy(kind: str, name: str, spec: Json) -> Json:
    """A policy, or its binding."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "multimirror"}},
        "spec": spec,
    }


def validating(name: str, spec: Json, **binding: object) -> list[Json]:
    """A ValidatingAdmissionPolicy that fails closed, and its binding, which denies."""
    bound = {"policyName": name, "validationActions": ["Deny"], **binding}
    return [
        policy("ValidatingAdmissionPolicy", name, {"failurePolicy": "Fail", **spec}),
        policy("ValidatingAdmissionPolicyBinding", name, bound),
    ]


def validation(expression: str, message: str) -> Json:
    """A rule, and what is said to those who break it."""
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def statuses(*operations: str) -> list[Json]:
    """The rules that match these operations on the status of every mirrored kind: metadata can be written there too."""
    return [
        {
            "apiGroups": [kind.resource.group],
            "apiVersions": [kind.resource.version],
            "operations": list(operations),
            "resources": [f"{kind.resource.plural}/status"],
            "scope": "Namespaced",
        }
        for kind in KINDS
    ]


def now(field: str, key: str) -> str:
    """CEL: a label or annotation as it would be; without it, as with nothing in it: ''."""
    return f"object.metadata.?{field}[?{key}].orValue('')"


def before(field: str, key: str) -> str:
    """CEL: the same as it was; '' for what is only created."""
    return f"(oldObject == null ? '' : oldObject.metadata.?{field}[?{key}].orValue(''))"


def is_changed(field: str, key: str) -> str:
    """CEL: added, changed or removed; one with nothing in it is there, too."""
    old = f"(oldObject == null ? optional.none() : oldObject.metadata.?{field}[?{key}])"
    return f"object.metadata.?{field}[?{key}] != {old}"


def differs(path: str) -> str:
    """CEL: an update changes what is there; cheap, to be asked before anything is looked at key by key."""
    return f"object.{path} != oldObject.{path}"


def granted(group: str, resource: str, verb: str) -> str:
    """CEL: the account was given this verb by name, cluster-wide; whoever may do everything was not."""
    asked = f"authorizer.group('{group}').resource('{resource}')"
    return f"{asked}.check('{verb}').allowed() && !{asked}.check('*').allowed()"

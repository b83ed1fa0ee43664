"""The other built-in kinds in tables."""

from collections.abc import Mapping
from typing import Any, Final

from clusters.embedded.printers.columns import AGE, NAME, NONE, UNKNOWN, Column, Printer, age, age_of, is_true
from clusters.embedded.store import Object


def _node(obj: Object, now: float) -> list[Any]:
    status = obj.get("status", {})
    info = status.get("nodeInfo") or {}
    ready = [each.get("status") for each in status.get("conditions") or () if each.get("type") == "Ready"]
    shown = "Unknown" if not ready else "Ready" if ready[0] == "True" else "NotReady"
    if obj["spec"].get("unschedulable"):
        shown += ",SchedulingDisabled"
    row = [obj["metadata"]["name"], shown, _roles(obj), age_of(obj, now), info.get("kubeletVersion", "")]
    row += [_address(status, "InternalIP"), _address(status, "ExternalIP")]
    kernel = info.get("kernelVersion")
    if kernel and info.get("architecture"):
        kernel = f"{kernel} ({info['architecture']})"
    return [*row, info.get("osImage") or UNKNOWN, kernel or UNKNOWN, info.get("containerRuntimeVersion") or UNKNOWN]


def _roles(obj: Object) -> str:
    roles = set()
    for key, value in (obj["metadata"].get("labels") or {}).items():
        if key.startswith("node-role.kubernetes.io/"):
            roles.add(key.partition("/")[2])
        elif key == "kubernetes.io/role":
            roles.add(value)
    return ",".join(sorted(role for role in roles if role)) or NONE


def _address(status: Mapping[str, Any], kind: str) -> str:
    addresses = status.get("addresses") or ()
    return next((str(each.get("address")) for each in addresses if each.get("type") == kind), NONE)


def _event(obj: Object, now: float) -> list[Any]:
    involved, source = obj.get("involvedObject", {}), obj.get("source") or {}
    moment = obj.get("eventTime")
    series = obj.get("series") or {}
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or moment
    component = source.get("component") or obj.get("reportingComponent", "")
    shown = f"{component}, {source['host']}" if source.get("host") else component
    return [
        age(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{involved.get('kind', '').lower()}/{involved.get('name', '')}",
        involved.get("fieldPath", ""),
        shown,
        obj.get("message", "").strip(),
        age(obj.get("firstTimestamp") or moment, now),
        series.get("count") or obj.get("count") or 1,
        obj["metadata"]["name"],
    ]


def _binding(obj: Object, now: float) -> list[Any]:
    role = obj.get("roleRef") or {}
    subjects = obj.get("subjects") or ()
    users = [each["name"] for each in subjects if each.get("kind") == "User"]
    groups = [each["name"] for each in subjects if each.get("kind") == "Group"]
    accounts = [
        f"{each.get('namespace', '')}/{each['name']}" for each in subjects if each.get("kind") == "ServiceAccount"
    ]
    row = [obj["metadata"]["name"], f"{role.get('kind')}/{role.get('name')}", age_of(obj, now)]
    return row + [", ".join(each) for each in (users, groups, accounts)]


def _pod_group(obj: Object, now: float) -> list[Any]:
    spec = obj["spec"]
    shown = "Pending"
    for each in obj.get("status", {}).get("conditions") or ():
        if each["type"] == "PodGroupScheduled":
            shown = "Scheduled" if is_true(obj, "PodGroupScheduled") else "Unschedulable"
    for each in obj.get("status", {}).get("conditions") or ():
        if each["type"] == "DisruptionTarget":
            shown = each.get("reason", "")
    workload = ((spec.get("podGroupTemplateRef") or {}).get("workload") or {}).get("workloadName", NONE)
    policy = "Gang" if (spec.get("schedulingPolicy") or {}).get("gang") is not None else "Basic"
    return [obj["metadata"]["name"], policy, workload, shown, age_of(obj, now)]


def _service(obj: Object, now: float) -> list[Any]:
    spec = obj["spec"]
    ports = ",".join(f"{each.get('port')}/{each.get('protocol', 'TCP')}" for each in spec.get("ports") or ())
    outside = ",".join(spec.get("externalIPs") or ()) or spec.get("externalName") or NONE
    selector = ",".join(f"{key}={value}" for key, value in sorted((spec.get("selector") or {}).items()))
    address = spec.get("clusterIP") or NONE
    row = [obj["metadata"]["name"], spec.get("type", ""), address, outside, ports or NONE, age_of(obj, now)]
    return [*row, selector or NONE]


def _secret(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"]["name"], obj.get("type", ""), len(obj.get("data") or {}), age_of(obj, now)]


def _configmap(obj: Object, now: float) -> list[Any]:
    size = len(obj.get("data") or {}) + len(obj.get("binaryData") or {})
    return [obj["metadata"]["name"], size, age_of(obj, now)]


_WEBHOOKS: Final = Printer(
    (NAME, Column("Webhooks", "integer", description="How many webhooks it has."), AGE),
    lambda obj, now: [obj["metadata"]["name"], len(obj.get("webhooks") or ()), age_of(obj, now)],
)
_BINDINGS: Final = Printer(
    (
        NAME,
        Column("Role", description="The role that is given."),
        AGE,
        Column("Users", description="The users that it is given to.", priority=1),
        Column("Groups", description="The groups that it is given to.", priority=1),
        Column("ServiceAccounts", description="The service accounts that it is given to.", priority=1),
    ),
    _binding,
)
_NAME_AND_AGE: Final = Printer((NAME, AGE), lambda obj, now: [obj["metadata"]["name"], age_of(obj, now)])

PRINTERS: Final = {
    "nodes": Printer(
        (
            NAME,
            Column("Status", description="Whether the node is ready."),
            Column("Roles", description="The node's roles."),
            AGE,
            Column("Version", description="The kubelet's version."),
            Column("Internal-IP", description="The address inside the cluster.", priority=1),
            Column("External-IP", description="The address outside the cluster.", priority=1),
            Column("OS-Image", description="The operating system.", priority=1),
            Column("Kernel-Version", description="The kernel.", priority=1),
            Column("Container-Runtime", description="What runs the containers.", priority=1),
        ),
        _node,
    ),
    "namespaces": Printer(
        (NAME, Column("Status", description="Active or Terminating."), AGE),
        lambda obj, now: [obj["metadata"]["name"], obj.get("status", {}).get("phase", ""), age_of(obj, now)],
    ),
    "secrets": Printer(
        (
            NAME,
            Column("Type", description="What the secret is for."),
            Column("Data", description="How many entries it has."),
            AGE,
        ),
        _secret,
    ),
    "services": Printer(
        (
            NAME,
            Column("Type", description="How the service is reached."),
            Column("Cluster-IP", description="Its address inside the cluster."),
            Column("External-IP", description="Its addresses outside the cluster."),
            Column("Port(s)", description="Its ports."),
            AGE,
            Column("Selector", description="How its pods are found.", priority=1),
        ),
        _service,
    ),
    "configmaps": Printer((NAME, Column("Data", description="How many entries it has."), AGE), _configmap),
    "serviceaccounts": _NAME_AND_AGE,
    "leases.coordination.k8s.io": Printer(
        (NAME, Column("Holder", description="Who holds the lease."), AGE),
        lambda obj, now: [obj["metadata"]["name"], (obj.get("spec") or {}).get("holderIdentity", ""), age_of(obj, now)],
    ),
    "events": Printer(
        (
            Column("Last Seen", description="How long ago it happened last."),
            Column("Type", description="Normal or Warning."),
            Column("Reason", description="What happened, in one word."),
            Column("Object", description="What it happened to."),
            Column("Subobject", description="The part that it happened to.", priority=1),
            Column("Source", description="Who says so.", priority=1),
            Column("Message", description="What happened."),
            Column("First Seen", description="How long ago it happened first.", priority=1),
            Column("Count", description="How often it happened.", priority=1),
            Column("Name", format="name", description="The event's name.", priority=1),
        ),
        _event,
    ),
    "rolebindings.rbac.authorization.k8s.io": _BINDINGS,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDINGS,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "workloads.scheduling.k8s.io": _NAME_AND_AGE,
    "podgroups.scheduling.k8s.io": Printer(
        (
            NAME,
            Column("Policy", description="How its pods are scheduled."),
            Column("Workload", description="The Workload that it was made of."),
            Column("Status", description="Whether it is scheduled."),
            AGE,
        ),
        _pod_group,
    ),
}

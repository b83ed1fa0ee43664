"""Quota by flavor and resource, made into quota by resource: what flavors have is added up.

Kueue counts each resource of each flavor for itself; we count each resource once, and where Jobs may run is said by
workers and selectors. The sums never give a queue less than it had. `borrow` is the sum of the limits, and none where
one flavor has none. `lend` is the sum of what each flavor lends, which is all of it where it has no limit.

Kueue admits no Job to a queue that does not list a resource which the Job asks for; here it would not be limited. So
what other queues list, and this one does not, is 0 here: its Jobs do not use it, as before. `pods` is the exception:
Kueue counts them only where they are listed, and so do we.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from multimirror.batch import Json
from multimirror.batch.quantities import canonical, quantity
from multimirror.cli.kueue.findings import Findings
from multimirror.cli.kueue.objects import ClusterQueue, Cohort, FlavorQuota

MOST_RESOURCES: Final = 64
_PODS: Final = "pods"
_KIBI: Final = 1024


def queue_quota(queue: ClusterQueue, everywhere: Iterable[str], findings: Findings) -> Json:
    """The quota of a MirrorQueue. `everywhere`: the resources that any queue or cohort lists."""
    about = f"ClusterQueue {queue.name}"
    by_resource = _by_resource(queue.quotas)
    _tell_merged(about, by_resource, findings)
    shared = queue.cohort is not None
    quota = _limits(about, by_resource, "cohort", findings, shared=shared, lends_own=True)
    for name in sorted(set(everywhere) - set(by_resource) - {_PODS}):
        quota.setdefault("resources", {})[name] = 0
        if shared:
            quota.setdefault("borrow", {})[name] = 0
        findings.note(about, f"quota of {name}", "is 0, because other queues list it and this one does not")
    return _bounded(about, {key: quota[key] for key in ("resources", "borrow", "lend") if key in quota}, findings)


def cohort_quota(cohort: Cohort, findings: Findings) -> Json:
    """The quota of a Cohort of ours."""
    about = f"Cohort {cohort.name}"
    by_resource = _by_resource(cohort.quotas)
    _tell_merged(about, by_resource, findings)
    quota = _limits(about, by_resource, "parent", findings, shared=cohort.parent is not None, lends_own=False)
    return _bounded(about, quota, findings)


def total(amounts: Sequence[str]) -> int | str:
    """A sum of quantities, as people would write it: a number, or with the largest suffix that keeps it exact."""
    if len(amounts) == 1:
        return _plain(canonical(amounts[0]))
    number = sum((quantity(amount) for amount in amounts), Decimal(0))
    binary = any(amount.endswith("i") for amount in amounts) and number % _KIBI == 0
    return _plain(canonical(f"{int(number) // _KIBI}Ki" if binary else f"{number:f}"))


def _plain(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _by_resource(quotas: Iterable[FlavorQuota]) -> dict[str, list[FlavorQuota]]:
    found: dict[str, list[FlavorQuota]] = {}
    for quota in quotas:
        found.setdefault(quota.resource, []).append(quota)
    return found


def _tell_merged(about: str, by_resource: Mapping[str, Sequence[FlavorQuota]], findings: Findings) -> None:
    for name, quotas in by_resource.items():
        if len(quotas) > 1:
            parts = " + ".join(f"{each.nominal} of flavor {each.flavor}" for each in quotas)
            findings.changed(
                about,
                f"nominalQuota of {name}",
                f"is {total([each.nominal for each in quotas])}, one number for {parts}",
                "make a queue for each flavor, with spec.workers for the clusters that have it",
            )


def _limits(
    about: str,
    by_resource: Mapping[str, Sequence[FlavorQuota]],
    other: str,
    findings: Findings,
    *,
    shared: bool,
    lends_own: bool,
) -> Json:
    quota: Json = {}
    for name, quotas in by_resource.items():
        quota.setdefault("resources", {})[name] = total([each.nominal for each in quotas])
        limited = [each for each in quotas if each.borrowing is not None or each.lending is not None]
        if limited and not shared:
            findings.left_out(about, f"limits of {name}", f"there is no {other} to share with", f"name a {other} first")
        if not shared:
            continue
        borrowing = [each.borrowing for each in quotas if each.borrowing is not None]
        if len(borrowing) == len(quotas):
            quota.setdefault("borrow", {})[name] = total(borrowing)
        elif borrowing:
            text = "is none: of the flavors that were added up, one has no limit"
            findings.changed(about, f"borrowingLimit of {name}", text, f"set spec.quota.borrow for {name}")
        lending = [each.lending for each in quotas if each.lending is not None]
        if not lending:
            continue
        if lends_own:
            quota.setdefault("lend", {})[name] = total([each.lending or each.nominal for each in quotas])
        elif len(lending) == len(quotas):
            quota.setdefault("lend", {})[name] = total(lending)
        else:
            text = "is none: of the flavors that were added up, one has no limit"
            findings.changed(about, f"lendingLimit of {name}", text, f"set spec.quota.lend for {name}")
    return quota


def _bounded(about: str, quota: Json, findings: Findings) -> Json:
    """No more resources than our kinds take."""
    named = list(quota.get("resources", {}))
    over = set(named[MOST_RESOURCES:])
    if not over:
        return quota
    text = f"{len(over)} more than the {MOST_RESOURCES} that a quota can have are not limited"
    findings.left_out(
        about,
        "spec.resourceGroups",
        text,
        f"take out of spec.quota what matters least: {', '.join(sorted(over)[:5])} ...",
    )
    return {key: {n: v for n, v in amounts.items() if n not in over} for key, amounts in quota.items()}

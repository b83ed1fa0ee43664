"""What trees of cohorts mean together: flavors that were kept apart, and cohorts that are each other's parents."""

from collections.abc import Mapping

from multimirror.cli.kueue.findings import Findings
from multimirror.cli.kueue.objects import Cohort, KueueObjects


def tell_merged_flavors(kueue: KueueObjects, findings: Findings) -> None:
    """In Kueue a queue borrows a resource only in the flavors that it lists; here a resource is one thing.

    Where all members list the same flavors, it is enough that each says how they were added up.
    """
    trees: dict[str, dict[str, set[frozenset[str]]]] = {}
    members = [(queue.cohort, queue.quotas) for queue in kueue.cluster_queues.values() if queue.cohort is not None]
    members += [(cohort.name, cohort.quotas) for cohort in kueue.cohorts.values()]
    for cohort, quotas in members:
        tree = trees.setdefault(root_of(cohort, kueue.cohorts), {})
        for resource in {quota.resource for quota in quotas}:
            flavors = frozenset(quota.flavor for quota in quotas if quota.resource == resource)
            tree.setdefault(resource, set()).add(flavors)
    for root, resources in sorted(trees.items()):
        for resource, lists in sorted(resources.items()):
            if len(lists) > 1:
                text = (
                    f"its queues share {resource} of the flavors {', '.join(sorted(frozenset().union(*lists)))} as one"
                )
                remedy = "where they must not be mixed, make a cohort for each flavor"
                findings.changed(f"Cohort {root}", f"flavors of {resource}", text, remedy)


def tell_cycles(cohorts: Mapping[str, Cohort], findings: Findings) -> None:
    """Kueue admits nothing in a cycle; neither do we."""
    for name in cohorts:
        seen = _ancestors(name, cohorts)
        if seen[-1] == name and len(seen) > 1 and name == min(seen):
            findings.note(f"Cohort {name}", "parent", f"is in a cycle ({' in '.join(seen)}): its queues place nothing")


def root_of(name: str, cohorts: Mapping[str, Cohort]) -> str:
    """The top of its tree; in a cycle, the first by name."""
    seen = _ancestors(name, cohorts)
    return seen[-1] if seen.count(seen[-1]) == 1 else min(seen[seen.index(seen[-1]) :])


def _ancestors(name: str, cohorts: Mapping[str, Cohort]) -> list[str]:
    """Itself, its parent and so on, to the root or to the first that was there already."""
    seen = [name]
    while (parent := cohorts[seen[-1]].parent if seen[-1] in cohorts else None) is not None:
        seen.append(parent)
        if parent in seen[:-1]:
            break
    return seen

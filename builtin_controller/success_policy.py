"""spec.successPolicy (KEP-3998): an Indexed Job may be done before all of its indexes are."""

from builtin_controller.indexes import read_indexes
from multimirror.batch import IndexSet, Json


def match(policy: Json | None, completions: int, succeeded: IndexSet) -> str | None:
    """The message that names the rule which is satisfied; None when none is."""
    if not succeeded:
        return None
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        if _satisfied(rule, completions, succeeded):
            return f"Matched rules at index {number}"
    return None


def _satisfied(rule: Json, completions: int, succeeded: IndexSet) -> bool:
    wanted, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if wanted is None:
        return count is not None and len(succeeded) >= count
    asked = read_indexes(wanted, completions)
    if not asked:
        return False  # nothing in it could be read
    have = len(asked & succeeded)
    return have == len(asked) or (count is not None and have >= count)

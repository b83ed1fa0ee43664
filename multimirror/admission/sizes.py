"""How large a Job is, in CEL, for clusters where no webhook counts its bytes.

CEL cannot write an object as JSON, but it can format one as text, which is nearly the same: some blanks more (a fifth,
for lists of single letters), and letters of several bytes counted as one. So this is an estimate. The dispatcher counts
exactly (api/limits.py), does not place what came in all the same, and keeps no pod template of anything.

Summing up field by field is no way: lists that are built in CEL cost the square of their length, and 40,000 words in a
command kept an API server busy for ten seconds. Formatting is linear.
"""

from typing import Final

from multimirror.api.limits import MAX_JOB_BYTES
from multimirror.batch import Json

_COUNTED: Final = ("object.spec", "object.metadata.?annotations.orValue({})", "object.metadata.?labels.orValue({})")


def size_variable() -> Json:
    """`variables.bytes`."""
    return {"name": "bytes", "expression": " + ".join(f"size('%s'.format([{each}]))" for each in _COUNTED)}


def size_rule(limit: int = MAX_JOB_BYTES) -> Json:
    """Nearly in the webhook's words."""
    return {
        "expression": f"variables.bytes <= {limit}",
        "messageExpression": "'this Job has about ' + string(variables.bytes / 1024) + ' KiB of metadata and spec, "
        f"more than the ' + string({limit} / 1024) + ' KiB that may be placed'",
        "reason": "Forbidden",
    }

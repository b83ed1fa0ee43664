"""Reasons of events and conditions, from the table in multimirror.api.reasons."""

from collections.abc import Mapping
from typing import Final

from docs.generator.markdown import code, table
from multimirror.api.reasons import CONDITIONS, EVENTS, WAITING, Reason

_OPENING: Final = """# Events, and reasons of conditions

For whoever sees one of these words and wants to know what to do.
By symptom instead: [troubleshooting](../troubleshooting.md).
"""


def page() -> str:
    """All of them."""
    return "\n".join(
        [
            _OPENING,
            "## Events on a Job\n\n`kubectl describe job NAME` on the management cluster shows them.\n",
            _table(EVENTS),
            "## Why a Job waits\n\nIn the event `Waiting`, and as `status.head.reason` of its MirrorQueue.\n",
            _table(WAITING),
            "## Conditions of our own kinds\n\n`kubectl get wc -o wide` shows the message.\n",
            _table(CONDITIONS),
        ]
    )


def _table(reasons: Mapping[str, Reason]) -> str:
    rows = [[code(name), each.means, each.remedy] for name, each in reasons.items()]
    return table(["reason", "means", "remedy"], rows)

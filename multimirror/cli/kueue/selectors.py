"""Who may use a queue. In Kueue: a namespace that has a LocalQueue for it, and that the queue's selector admits.

Here there is the selector alone, so the namespaces that have LocalQueues are named in it, beside what it asked for.
"""

from collections.abc import Sequence
from typing import Final

from multimirror.batch import Json
from multimirror.cli.kueue.findings import Findings
from multimirror.cli.kueue.objects import ClusterQueue, LocalQueue

_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""On every namespace, by Kubernetes: its name."""
_MOST_VALUES: Final = 64
_MOST_EXPRESSIONS: Final = 32
_PARTS: Final = ("matchLabels", "matchExpressions")
_NOBODY: Final[Json] = {"matchExpressions": [{"key": _NAME_LABEL, "operator": "DoesNotExist"}]}


def namespace_selector(queue: ClusterQueue, local: Sequence[LocalQueue], findings: Findings) -> Json:
    """The selector of the MirrorQueue. `local`: the LocalQueues that point to it."""
    about = f"ClusterQueue {queue.name}"
    if queue.namespace_selector is None:
        findings.note(about, "spec.namespaceSelector", "is not set, which in Kueue admits nobody: so it is here")
        return _NOBODY
    selector = {key: part for key, part in queue.namespace_selector.items() if key in _PARTS and part}
    expressions = list(selector.get("matchExpressions") or ())
    if len(expressions) > _MOST_EXPRESSIONS or any(
        len(each.get("values") or ()) > _MOST_VALUES for each in expressions
    ):
        remedy = "give the namespaces a label, and select by that"
        text = f"has more than {_MOST_EXPRESSIONS} requirements, or {_MOST_VALUES} values, and admits nobody here"
        findings.left_out(about, "spec.namespaceSelector", text, remedy)
        return _NOBODY
    namespaces = sorted({each.namespace for each in local})
    if not namespaces:
        text = "no LocalQueue among the objects points to it, so every namespace that its selector admits may use it"
        findings.changed(about, "spec.namespaceSelector", text, "read the LocalQueues as well, or name the namespaces")
        return selector
    if len(namespaces) > _MOST_VALUES or len(expressions) == _MOST_EXPRESSIONS:
        text = f"{len(namespaces)} namespaces have LocalQueues; every namespace that its selector admits may use it"
        findings.changed(about, "spec.namespaceSelector", text, "give those namespaces a label, and select by that")
        return selector
    named = {"key": _NAME_LABEL, "operator": "In", "values": namespaces}
    return {**selector, "matchExpressions": [*expressions, named]}

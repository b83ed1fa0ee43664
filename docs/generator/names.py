"""Labels and annotations: the constants that name them, and the sentence below each."""

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Final

from docs.generator.markdown import code, table
from multimirror.api import names
from multimirror.kinds.job import copy as copies

_OPENING: Final = """# Labels and annotations

For whoever writes Jobs, or looks at them.
Annotations that say what simulated pods do are in [simulated nodes](../simulated-nodes.md).
"""
_WORDS: Final = {"LABEL": "label", "ANNOTATION": "annotation"}


def page() -> str:
    """All of them."""
    found = [*_constants(names), *_constants(copies)]
    rows = [
        [code(value), _WORDS[name.rpartition("_")[2]], text]
        for name, value, text in found
        if name.rpartition("_")[2] in _WORDS
    ]
    yours = [row for row in rows if "by us" not in row[2]]
    ours = [[row[0], row[1], row[2].replace(", by us", "")] for row in rows if "by us" in row[2]]
    managed_by = next(value for name, value, _ in found if name == "MANAGED_BY")
    parts = [
        _OPENING,
        "## Written by you\n",
        table(["key", "", "where, and what it means"], yours),
        "## Written by multimirror\n",
        table(["key", "", "where, and what it means"], ours),
        f"`spec.managedBy` of our Jobs is `{managed_by}`; `multimirror run --managed-by` changes that.\n",
    ]
    return "\n".join(parts)


def _constants(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    body = ast.parse(inspect.getsource(module)).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if (
            not isinstance(node, ast.AnnAssign)
            or not isinstance(node.target, ast.Name)
            or node.target.id.startswith("_")
        ):
            continue
        value = getattr(module, node.target.id)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(value, str):
            yield node.target.id, value, str(after.value.value)

"""Objects on a worker that carry our labels and are not ours, as they were read. Pure.

The dispatcher leaves them alone: it does not mirror, change or delete them, and waits for none. They are told because
somebody made them: by mistake (a backup that was restored on another cluster), or to deceive.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from multimirror.api.placement import Copy, attempt_of, copy_uid_of, origin_uid
from multimirror.batch import Json
from multimirror.cli.doctor.findings import ASK, Finding, ok, warning
from multimirror.kube import key_of

_NAMED: Final = 5


def split_replaced(copies: Iterable[Json], originals: Mapping[str, Json]) -> tuple[list[Json], list[Json]]:
    """Of what we have signed: what is ours, and what was put in the place of a copy that is gone."""
    ours: list[Json] = []
    replaced: list[Json] = []
    for copy in copies:
        original = originals.get(origin_uid(copy))
        latest = original is not None and Copy("", copy).attempt == attempt_of(original)
        uid = copy_uid_of(original) if original is not None and latest else None
        (ours if uid in {None, copy["metadata"]["uid"]} else replaced).append(copy)
    return ours, replaced


def check_foreign(subject: str, foreign: Iterable[Json], *, can_tell: bool) -> list[Finding]:
    """`can_tell`: the key of our signatures was to be read."""
    names = sorted(key_of(each) for each in foreign)
    if not can_tell:
        message = "you may not read the key of our signatures: which copies there are ours was not checked"
        return [warning("Foreign", subject, message, ASK)]
    if not names:
        return [ok("Foreign", subject, "nothing there carries our labels that is not ours")]
    shown = ", ".join(names[:_NAMED]) + (" ..." if len(names) > _NAMED else "")
    message = f"{len(names)} Jobs there carry our labels and are not ours: {shown}"
    namespace, _, name = names[0].rpartition("/")
    remedy = (
        "Nothing is done with them. See who made them "
        f"(`kubectl get job {name} -n {namespace} -o yaml --show-managed-fields`), and delete them."
    )
    return [warning("Foreign", subject, message, remedy)]

"""What is told about a translation: as comments above the YAML, and on standard error.

Everything in it may come from elsewhere: a name with a line break must not end the comment and become YAML that is
applied. So each line is made one line, whatever is in it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import yaml

from multimirror.api import DEFAULT_QUEUE_LABEL, PRIORITY_LABEL, QUEUE_LABEL
from multimirror.cli.kueue.findings import Outcome
from multimirror.cli.kueue.translate import DEFAULT_QUEUE, Translation
from multimirror.cli.output import table
from multimirror.kube.terminal import printable

_Dumper: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TITLES: Final = {
    Outcome.LEFT_OUT: "Left out",
    Outcome.CHANGED: "Changed, and means something else here",
    Outcome.NOTE: "To know",
}


def as_yaml(translation: Translation) -> str:
    """What can be applied, below what must be known."""
    comments = [
        f"# {_one_line(line)}".rstrip() for line in ("From Kueue: " + summary(translation), *report(translation))
    ]
    documents = yaml.dump_all(translation.objects, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=120)
    return "\n".join(comments) + "\n" + (documents if translation.objects else "")


def as_list(translation: Translation) -> dict[str, object]:
    """The same for programs: a List, without a word."""
    return {"apiVersion": "v1", "kind": "List", "items": list(translation.objects)}


def summary(translation: Translation) -> str:
    """How much there is, in one line."""
    kinds = Counter(str(each["kind"]) for each in translation.objects)
    outcomes = Counter(each.outcome for each in translation.findings)
    return (
        f"{_counted(kinds['MirrorQueue'], 'MirrorQueue')} and {_counted(kinds['Cohort'], 'Cohort')}; "
        f"{outcomes[Outcome.LEFT_OUT]} left out, {outcomes[Outcome.CHANGED]} changed"
    )


def report(translation: Translation) -> list[str]:
    """Lines for people; each is one line."""
    lines: list[str] = []
    for outcome, title in _TITLES.items():
        found = [each for each in translation.findings if each.outcome is outcome]
        if found:
            lines += ["", f"{title}:", *(f"  {each}" for each in found)]
    lines += _labels(translation)
    lines += _priorities(translation)
    if translation.workers:
        lines += ["", "Clusters to join (`multimirror join`), if they are not workers yet:"]
        lines.append(f"  {', '.join(translation.workers)}")
    return [_one_line(line) for line in lines]


def _labels(translation: Translation) -> list[str]:
    if not translation.labels:
        return []
    rows = [(each.namespace, each.local_queue, f"{QUEUE_LABEL}: {each.queue}") for each in translation.labels]
    lines = ["", "The label of Jobs, instead of kueue.x-k8s.io/queue-name:"]
    lines += _table(("NAMESPACE", "LOCALQUEUE", "LABEL"), rows)
    defaults = [each for each in translation.labels if each.local_queue == DEFAULT_QUEUE]
    if defaults:
        lines += ["", "Namespaces whose Jobs need no label (their LocalQueue is the default one):"]
        for each in defaults:
            lines.append(f"  kubectl label namespace {each.namespace} {DEFAULT_QUEUE_LABEL}={each.queue}")
    return lines


def _priorities(translation: Translation) -> list[str]:
    numbers = translation.priorities
    if not numbers.rows:
        return []
    rows = [(each.kind, each.name, str(each.value), f'{PRIORITY_LABEL}: "{each.number}"') for each in numbers.rows]
    without = f'{PRIORITY_LABEL}: "{numbers.without}"' if numbers.without else "none is needed"
    rows.append(("no class", "-", "-", without))
    title = "The label of Jobs, instead of kueue.x-k8s.io/priority-class or a priorityClassName:"
    return ["", title, *_table(("CLASS", "NAME", "VALUE", "LABEL"), rows)]


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"  {line}" for line in table(titles, rows)]


def _one_line(text: str) -> str:
    indent = text[: len(text) - len(text.lstrip(" "))]
    return indent + printable(" ".join(text.lstrip(" ").splitlines())).replace("\t", " ")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"

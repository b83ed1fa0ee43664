"""The story of a run that broke a promise: what was planned, what was broken, and which writes show it."""

import re

from faults.running import Outcome

_MOST_LINES = 60


def tell(outcome: Outcome) -> list[str]:
    """Line by line: the scenario, the violations, and what happened to the Jobs that they name."""
    lines = [*outcome.scenario.story(), "", "broken:"]
    lines += [f"  {line}" for violation in outcome.violations for line in str(violation).splitlines()]
    names = sorted({name for violation in outcome.violations for name in re.findall(r"job-\d+", str(violation))})
    for name in names[:2]:
        lines += ["", f"what happened to {name}:", *_about(outcome, name)]
    return lines


def _about(outcome: Outcome, name: str) -> list[str]:
    record, moments = outcome.record, []
    for each in record.exchanges:
        target = str((each.body or {}).get("metadata", {}).get("name", "")) if isinstance(each.body, dict) else ""
        if each.is_write and name in (each.call.name, target) and each.call.resource.startswith("jobs"):
            moments.append((each.time, f"  {each}"))
    moments += [
        (seen.time, f"  {seen.time:8.3f}      {_seen(seen.cluster, seen.type, seen.object)}")
        for seen in record.changes("Job")
        if seen.object["metadata"]["name"] == name
    ]
    moments += [(struck.time, f"  {struck.time:8.3f}  ** {struck.fault}") for struck in record.struck]
    moments += [
        (life.time, "\n        ".join([f"  {life.time:8.3f}  ** {life.client} {life.what}", *life.why]))
        for life in record.lives
    ]
    told = [text for _, text in sorted(moments, key=lambda each: each[0])]
    if len(told) > _MOST_LINES:
        left_out = len(told) - _MOST_LINES
        told = [*told[: _MOST_LINES // 2], f"  ... {left_out} lines left out ...", *told[-_MOST_LINES // 2 :]]
    return told


def _seen(cluster: str, what: str, job: dict[str, object]) -> str:
    metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
    assert isinstance(metadata, dict)
    assert isinstance(spec, dict)
    assert isinstance(status, dict)
    labels = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    where = labels.get("multimirror.dev/cluster")
    facts = [f"attempt {labels.get('multimirror.dev/attempt', '-')}" + (f" on {where}" if where else "")]
    facts += ["suspended"] if spec.get("suspend") else []
    facts += ["being deleted"] if "deletionTimestamp" in metadata else []
    facts += [f"{key} {status[key]}" for key in ("active", "ready", "succeeded", "failed") if status.get(key)]
    facts += [c["type"] for c in status.get("conditions") or () if c["status"] == "True"]
    return f"{cluster}: {what.lower()}: {', '.join(facts)}"

"""Texts of a tenant that a terminal would obey, on their way to an operator's terminal."""

from multimirror.kube.resources import EVENTS
from tests.security.installation import Installation, a_job

CLIPBOARD = "\x1b]52;c;Y3VybCBldmlsIHwgc2g=\x07"
_RULES = [
    {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]


def is_harmless(text: str) -> bool:
    return all(each.isprintable() or each in "\n\t" for each in text)


async def test_an_operator_who_looks_at_a_tenants_job_keeps_his_clipboard(installation: Installation) -> None:
    tenant = await installation.tenant("writer", rules=_RULES)
    job = await tenant.create(a_job("bait", None, suspend=True))
    metadata = job["metadata"]
    event = {
        "metadata": {"name": "bait.1"},
        "involvedObject": {"kind": "Job", "namespace": tenant.namespace, "name": "bait", "uid": metadata["uid"]},
        "reason": "Bait",
        "type": "Normal",
        "message": f"look {CLIPBOARD}\x1b[2Jhere\r\u202e",
        "source": {"component": "tenant"},
    }
    await tenant.client.create(EVENTS, event, tenant.namespace)
    seen = []
    for command in (
        ("events", "job/bait", "-n", tenant.namespace),
        ("explain", "job/bait", "-n", tenant.namespace),
        ("get", "jobs", "-n", tenant.namespace),
        ("events", "job/bait", "-n", tenant.namespace, "-o", "json"),
        ("events", "job/bait", "-n", tenant.namespace, "-o", "yaml"),
        ("get", "job", f"nope{CLIPBOARD}", "-n", tenant.namespace),
    ):
        _, out, err = await installation.command(*command)
        assert is_harmless(out + err), (command, out + err)
        seen.append(out)
    assert "look" in seen[0], "the text itself is there"

"""Whoever may write Secrets in our namespace writes kubeconfigs that take long to read. Nobody waits for them."""

import asyncio
import base64
import functools
from typing import Any

import pytest
import yaml

from multimirror.api import WORKER_CLUSTERS
from multimirror.kube.resources import SECRETS
from tests.security.installation import SYSTEM, DispatcherProcess, Installation, a_job, unique
from tests.waiting import eventually

SOON_DONE = {"node.multimirror.dev/duration": "10ms"}


def merge_bomb() -> bytes:
    """Half a kilobyte that takes half a minute."""
    lines = ["kind: Config", "x0: &x0 {a: b}"]
    lines += [f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 9)}]}}" for n in range(1, 8)]
    return "\n".join(lines).encode()


def large() -> bytes:
    """Correct, and 0.3 MiB."""
    entry = {"cluster": {"server": "https://example.dev:6443"}}
    config = {
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c-0"}}],
        "clusters": [{"name": f"c-{number}", **entry} for number in range(5000)],
    }
    return yaml.dump(config, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)).encode()


def deep() -> bytes:
    return b"kind: Config\na: " + b"[" * 60_000


@pytest.mark.parametrize(
    ("kubeconfig", "why"),
    [(merge_bomb, "anchors or aliases"), (large, "larger than 64 KiB"), (deep, "nested deeper")],
)
async def test_a_kubeconfig_that_takes_long_to_read_is_refused_and_nobody_waits(
    installation: Installation, dispatcher: DispatcherProcess, kubeconfig: Any, why: str
) -> None:
    queue, tenant, content = await installation.queue("waits"), await installation.tenant("waits"), kubeconfig()
    names = [unique("slow") for _ in range(10)]
    data = {"kubeconfig": base64.b64encode(content).decode()}
    for name in names:
        await installation.admin.create(SECRETS, {"metadata": {"name": name}, "data": data}, SYSTEM)
        spec = {"kubeconfig": {"secret": {"name": name}}}
        await installation.admin.create(WORKER_CLUSTERS, {"metadata": {"name": name}, "spec": spec})
    try:
        async with asyncio.timeout(20):  # ten of them took more than half a minute each, again and again
            await tenant.create(a_job("job", queue, pods=SOON_DONE))
            await tenant.until_complete("job")
            for name in names:
                found = await eventually(
                    functools.partial(installation.admin.get, WORKER_CLUSTERS, name),
                    lambda found: (found.get("status") or {}).get("conditions"),
                )
                assert why in found["status"]["conditions"][0]["message"]
        assert dispatcher.alive
        assert (await dispatcher.get("/readyz"))[0] == 200
    finally:
        for name in names:
            await installation.admin.delete(WORKER_CLUSTERS, name)
            await installation.admin.delete(SECRETS, name, SYSTEM)

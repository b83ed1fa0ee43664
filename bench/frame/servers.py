"""Embedded clusters as a process of their own: `python -m bench.frame.servers WORKERS`.

Prints the kubeconfigs of all clusters as one line of JSON; answers each line of its input with the requests that were
asked of its servers so far, as JSON; runs until its input ends.
"""

import asyncio
import sys
from collections import Counter
from typing import Any

import orjson
import uvloop

from clusters.embedded import EmbeddedFleet
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.fleet import EmbeddedOptions
from multimirror.kube.logs import configure_logging
from multimirror.kube.process import relax_garbage_collector

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_WINDOW = 100_000  # writes that can be watched again: a dispatcher that starts late must not miss any


def _count(cluster: EmbeddedCluster, counts: Counter[tuple[str, str, str, str]]) -> None:
    """Count every request by cluster, agent, verb and resource, as an audit log would."""
    server = cluster.server
    assert server is not None, "it is up"
    handle = server.handle

    def counted(request: Any) -> Any:
        agent = request.headers.get("user-agent", "").partition("/")[0]
        verb = "watch" if request.flag("watch") else _VERBS.get(request.method, request.method)
        counts[cluster.name, agent, verb, _resource(request.path)] += 1
        return handle(request)

    server.handle = counted  # type: ignore[method-assign]  # nothing but counting is added


def _resource(path: str) -> str:
    """`jobs/status` of `/apis/batch/v1/namespaces/default/jobs/x/status`; other paths as they are."""
    parts = path.strip("/").split("/")
    if parts[0] not in ("api", "apis"):
        return path
    rest = parts[2 if parts[0] == "api" else 3 :]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return "/".join([*rest[:1], *rest[2:3]]) or path


async def _main(workers: int) -> None:
    async with EmbeddedFleet(EmbeddedOptions(workers=workers, nodes=False, history=_WINDOW)) as fleet:
        counts: Counter[tuple[str, str, str, str]] = Counter()
        clusters = [fleet.management, *fleet.workers.values()]
        for cluster in clusters:
            _count(cluster, counts)
        print(orjson.dumps({cluster.name: cluster.kubeconfig for cluster in clusters}).decode(), flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(orjson.dumps([[*key, count] for key, count in counts.items()]).decode(), flush=True)


if __name__ == "__main__":
    configure_logging("text", "error")
    relax_garbage_collector()
    uvloop.run(_main(int(sys.argv[1])))

"""The part of a kubelet's own API that API servers call: container logs, over HTTPS on loopback.

    GET /containerLogs/{namespace}/{pod}/{container}
        ?follow&tailLines&sinceSeconds&sinceTime&limitBytes&timestamps&previous

The node's status says at which port; `kubectl logs` then works as on any cluster. The certificate is made at each
start and signed by nobody: an API server that does not demand a kubelet authority accepts it. Anyone on this host may
read the logs.
"""

import time
from datetime import datetime

from aiohttp import web

from clusters.embedded.tls import make_certificates
from clusters.nodes.logs import Logs, Wanted


class KubeletServer:
    """Serves the logs of one cluster's simulated nodes. An async context manager; `port` is known inside."""

    def __init__(self, logs: Logs, host: str = "127.0.0.1") -> None:
        self._logs, self._host = logs, host
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._read)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, 0, ssl_context=make_certificates().server_context())
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop, and cut off whoever still follows a log."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _read(self, request: web.Request) -> web.StreamResponse:
        where = (request.match_info[part] for part in ("namespace", "pod", "container"))
        query = request.query
        log = self._logs.find(*where, previous=query.get("previous") == "true")
        if log is None:
            return web.Response(status=404, text="the simulated node has no log of that container\n")
        try:
            wanted = _wanted(dict(query))
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for chunk in log.read(wanted):
            await response.write(chunk)
        await response.write_eof()
        return response


def _wanted(query: dict[str, str]) -> Wanted:
    since = 0.0
    if "sinceSeconds" in query:
        since = time.time() - int(query["sinceSeconds"])
    elif "sinceTime" in query:
        since = datetime.fromisoformat(query["sinceTime"]).timestamp()
    return Wanted(
        follow=query.get("follow") == "true",
        tail=int(query["tailLines"]) if "tailLines" in query else None,
        since=since,
        limit_bytes=int(query["limitBytes"]) if "limitBytes" in query else None,
        timestamps=query.get("timestamps") == "true",
    )

"""A pod's own endpoints: binding to a node, eviction, and its containers' logs.

Logs are read from the node's kubelet, at the address and port that the node's status gives: a simulated node has one
too. A kubelet's certificate is not checked, as by an API server that was given no authority for kubelets.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiohttp

from clusters.embedded import errors
from clusters.embedded.bodies import parse_shaped
from clusters.embedded.context import Clock, Context
from clusters.embedded.deleting import Deleter, check_preconditions
from clusters.embedded.http import Answer, Response, Sink, Stream
from clusters.embedded.kinds import Kinds
from clusters.embedded.routing import Router
from clusters.embedded.schemas import builtin
from clusters.embedded.store import Object
from clusters.embedded.writing import Writer

SUCCESS: Final[Object] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
_PLAIN: Final = "text/plain; charset=utf-8"
_CONNECT_SECONDS: Final = 10


class PodEndpoints:
    """Serves them."""

    def __init__(self, kinds: Kinds, clock: Clock, writer: Writer, deleter: Deleter) -> None:
        self._kinds, self._clock, self._writer, self._deleter = kinds, clock, writer, deleter
        self._session: aiohttp.ClientSession | None = None

    def register(self, router: Router) -> None:
        """Take over the endpoints."""
        router.subresources["POST", "pods", "binding"] = self.bind
        router.subresources["POST", "pods", "eviction"] = self.evict
        router.subresources["GET", "pods", "log"] = self.log

    async def close(self) -> None:
        """Let go of connections."""
        if self._session:
            await self._session.close()

    def bind(self, ctx: Context) -> Answer | Awaitable[Answer]:
        """Give the pod to a node."""
        body = parse_shaped(ctx.request, builtin().struct("io.k8s.api.core.v1.Binding"))
        _check_name(ctx, body, "Binding")
        target = (body.get("target") or {}).get("name", "")
        if not target:
            raise errors.bad_request("target.name: Required value: a binding needs the name of a node")
        pod = ctx.item().decode()
        assigned = pod["spec"].get("nodeName")
        why = ""
        if pod["metadata"].get("deletionTimestamp"):
            why = f"pod {ctx.name} is being deleted, cannot be assigned to a host"
        elif assigned:
            why = f'pod {ctx.name} is already assigned to node "{assigned}"'
        if why:
            raise errors.conflict("", "pods/binding", ctx.name or "", why)

        def bound(old: Object) -> Object:
            old = copy.deepcopy(old)
            condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
            condition["lastTransitionTime"] = self._clock.now()
            old["spec"]["nodeName"] = target
            others = [each for each in old["status"].get("conditions") or () if each["type"] != "PodScheduled"]
            old["status"]["conditions"] = [*others, condition]
            return old

        return _then(self._writer.change(ctx, bound), lambda: Response.json(201, SUCCESS))

    def evict(self, ctx: Context) -> Answer | Awaitable[Answer]:
        """Delete the pod, as somebody who is allowed to disrupt it."""
        body = parse_shaped(ctx.request, builtin().struct("io.k8s.api.policy.v1.Eviction"))
        _check_name(ctx, body, "Eviction")
        options: dict[str, Any] = body.get("deleteOptions") or {}
        check_preconditions(ctx.kind, ctx.item().decode(), options)

        def delete() -> Answer:
            self._deleter.delete_item(ctx, ctx.item(), options)
            return Response.json(201, SUCCESS)

        if ctx.dry_run:
            return delete()
        status = Context(ctx.request, ctx.kind, ctx.namespace, ctx.name, "status")
        return _then(self._writer.change(status, self._disrupted), delete)

    def _disrupted(self, pod: Object) -> Object:
        pod = copy.deepcopy(pod)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": self._clock.now(),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        others = [each for each in pod["status"].get("conditions") or () if each["type"] != "DisruptionTarget"]
        pod["status"]["conditions"] = [*others, condition]
        return pod

    def log(self, ctx: Context) -> Answer | Awaitable[Answer]:
        """A container's log."""
        pod = ctx.item().decode()
        container = self._container(ctx, pod)
        node = pod["spec"].get("nodeName")
        if not node:
            return Response(204, b"", _PLAIN)
        return self._read(ctx, pod, container, node)

    def _container(self, ctx: Context, pod: Object) -> str:
        names = [each["name"] for each in pod["spec"].get("containers") or ()]
        others = [each["name"] for each in pod["spec"].get("initContainers") or ()]
        asked = ctx.request.query.get("container")
        if asked:
            if asked not in names + others:
                raise errors.bad_request(f"container {asked} is not valid for pod {ctx.name}")
            return asked
        if len(names) == 1:
            return str(names[0])
        shown = f"choose one of: [{' '.join(names)}]"
        if others:
            shown += f" or one of the init containers: [{' '.join(others)}]"
        raise errors.bad_request(f"a container name must be specified for pod {ctx.name}, {shown}")

    def _kubelet(self, name: str) -> str:
        nodes = self._kinds.find("", "v1", "nodes")
        item = nodes.table.get(name) if nodes else None
        if item is None:
            raise errors.not_found("", "nodes", name)
        status = item.decode().get("status", {})
        port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port", 0)
        addresses = [each["address"] for each in status.get("addresses") or () if each.get("type") == "InternalIP"]
        if not port or not addresses:
            raise errors.internal(f"node {name} tells no address of a kubelet, so there are no logs")
        return f"https://{addresses[0]}:{port}"

    async def _read(self, ctx: Context, pod: Object, container: str, node: str) -> Answer:
        waiting = _why_waiting(pod, container)
        if waiting:
            raise errors.bad_request(f'container "{container}" in pod "{ctx.name}" is {waiting}')
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        url = f"{self._kubelet(node)}/containerLogs/{ctx.namespace}/{ctx.name}/{container}"
        query = {key: value for key, value in ctx.request.query.items() if key != "container"}
        try:
            response = await self._session.get(url, params=query, ssl=False)
        except aiohttp.ClientError as error:
            raise errors.internal(f'Get "{url}": {error}') from error
        if ctx.request.flag("follow") and response.status == 200:
            return FollowedLog(response)
        body = await response.read()
        if response.status != 200:
            raise errors.StatusError(response.status, "NotFound", body.decode(errors="replace").strip())
        return Response(200, body, _PLAIN)


def _then(written: Answer | Awaitable[Answer], answer: Callable[[], Answer]) -> Answer | Awaitable[Answer]:
    """The answer once something has been written, which webhooks may have to be awaited for."""
    if not isinstance(written, Awaitable):
        return answer()
    pending = written

    async def later() -> Answer:
        await pending
        return answer()

    return later()


def _why_waiting(pod: Object, container: str) -> str:
    for each in pod.get("status", {}).get("containerStatuses") or ():
        waiting = each.get("state", {}).get("waiting")
        if each["name"] == container and waiting is not None and not each.get("restartCount"):
            return f"waiting to start: {waiting.get('reason', 'ContainerCreating')}"
    return ""


class FollowedLog(Stream):
    """A log that goes on, from the kubelet to the client."""

    content_type = _PLAIN

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()

    def start(self, sink: Sink) -> None:
        """Pump."""
        self._task = asyncio.ensure_future(self._pump(sink))

    def resume(self) -> None:
        """The client can take more."""
        self._room.set()

    def stop(self) -> None:
        """The client left, or the log ended."""
        self._response.close()
        if self._task and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _pump(self, sink: Sink) -> None:
        try:
            async for chunk in self._response.content.iter_any():
                sink.send(chunk)
                if not sink.ready:
                    self._room.clear()
                    await self._room.wait()
        except aiohttp.ClientError:
            pass  # the kubelet hung up: so does the log
        sink.finish()


def _check_name(ctx: Context, body: Object, kind: str) -> None:
    if (body.get("metadata") or {}).get("name", "") != ctx.name:
        raise errors.bad_request(f"name in URL does not match name in {kind} object")

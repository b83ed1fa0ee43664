"""Asking the dispatcher: what it alone knows of what waits (`/explain`, `/queue`, `/what-if`).

It answers to its own host only. So the question goes where `kubectl exec` goes, into the pod of the one that leads, and
`multimirror ask` puts it there. Whoever runs a dispatcher elsewhere, or may only port-forward, names its address
(`--dispatcher http://127.0.0.1:8080`).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import click
import orjson

from multimirror.batch import Json
from multimirror.cli.dispatcher_lease import LEASE
from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.relay.calling import DISPATCHER_CONTAINER, DISPATCHER_PODS, choose_pod
from multimirror.kube import ApiError, Client, Connection, resources
from multimirror.kube.errors import Forbidden, NotFound
from multimirror.kube.pod_exec import pod_exec

_SECONDS: Final = 20.0
_LONGEST: Final = 4 * 1024 * 1024
_LONGEST_WORDS: Final = 500
_Command = TypeVar("_Command", bound=Callable[..., Any])


def dispatcher_option(function: _Command) -> _Command:
    """`--dispatcher`: where it answers."""
    return click.option(
        "--dispatcher",
        metavar="URL",
        help="Where its health server answers, such as http://127.0.0.1:8080 of a `kubectl port-forward`.  "
        "[default: in its pod, by exec]",
    )(function)


class Dispatcher:
    """As far as it can be asked. `address`: where it answers; None: in its pod."""

    def __init__(self, client: Client, system: str, address: str | None) -> None:
        self._client, self._system, self._address = client, system, address

    async def ask(self, path: str, parameters: Mapping[str, str]) -> Json:
        """Raises CommandError."""
        question = f"{path}?{urlencode(parameters)}"
        try:
            async with asyncio.timeout(_SECONDS):
                if self._address is not None:
                    return _read(await fetch(self._address, question))
                return _read(await self._in_pod(question))
        except TimeoutError:
            raise CommandError(f"the dispatcher did not answer in {_SECONDS:g} s") from None
        except Forbidden as error:
            needs = f"it needs `list pods`, and `get` and `create` on pods/exec, in namespace {self._system}"
            raise CommandError(
                f"the dispatcher cannot be asked: {error.message}", f"{needs}; or --dispatcher URL."
            ) from error
        except (ApiError, OSError) as error:
            why = error.message if isinstance(error, ApiError) else str(error)
            raise CommandError(f"the dispatcher cannot be asked: {why}") from error

    async def _in_pod(self, question: str) -> bytes:
        pods = (await self._client.list(resources.PODS, self._system, label_selector=DISPATCHER_PODS)).items
        pod = choose_pod(pods, leader=await self._leader())
        if pod is None:
            message = f"no pod of the dispatcher runs in namespace {self._system}"
            raise CommandError(message, "Where it runs elsewhere, say so: --dispatcher URL.")
        command = ["multimirror", "ask", question]
        found = b""
        async with await pod_exec(self._client, self._system, pod, command, container=DISPATCHER_CONTAINER) as process:
            try:
                async for piece in process.output():
                    found += piece
                    if len(found) > _LONGEST:
                        raise CommandError("the dispatcher's answer is too long")
            except ApiError as error:
                raise CommandError(f"pod {pod} cannot be asked: {process.last_words or error.message}") from error
        return found

    async def _leader(self) -> str:
        """The name of its pod; empty where nobody can tell."""
        try:
            lease = await self._client.get(resources.LEASES, LEASE, self._system)
        except (Forbidden, NotFound):
            return ""
        return str((lease.get("spec") or {}).get("holderIdentity") or "").rpartition("_")[0]


async def fetch(address: str, question: str) -> bytes:
    """What is answered there, whatever it says. Raises ApiError."""
    if not address.startswith(("http://", "https://")):
        raise CommandError(f"{address!r} is no address: write http://HOST:PORT", code=Exit.USAGE)
    connection = Connection(name="dispatcher", server=address.rstrip("/"))
    async with Client(connection, user_agent="multimirror-cli", timeout=_SECONDS) as client:
        try:
            return (await client.request("GET", question)).body
        except ApiError as error:
            if not error.status:
                raise
            start = error.message.find('{"error"')
            return error.message[start:].encode() if start >= 0 else orjson.dumps({"error": error.message})


def _read(answer: bytes) -> Json:
    try:
        found = orjson.loads(answer)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise CommandError("what answers is no dispatcher, or one of another version")
    if "error" in found:
        raise CommandError(str(found["error"])[:_LONGEST_WORDS], code=Exit.REFUSED)
    return found

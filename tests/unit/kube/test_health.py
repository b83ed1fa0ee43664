"""Health, readiness and metrics: what they tell, and that nothing that is done to the port costs the event loop."""

import asyncio
import contextlib
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from multimirror.kube import Client, Connection
from multimirror.kube.health import HealthServer, _is_of_this_host
from multimirror.kube.pages import MOST_CONNECTIONS, MOST_OF_A_PEER

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


async def fetch(health: HealthServer, path: str) -> tuple[int, str]:
    """What a person sees with curl."""
    async with Client(Connection(name="health", server=f"http://127.0.0.1:{health.port}"), timeout=20) as client:
        try:
            response = await client.request("GET", path)
        except Exception as error:  # noqa: BLE001
            return getattr(error, "status", 0), str(error)
        return response.status, response.body.decode()


async def test_readiness_says_what_is_missing_and_health_does_not_depend_on_it() -> None:
    why: str | None = "jobs.batch is not filled yet"
    async with HealthServer("127.0.0.1", 0) as health:
        health.add_ready_check("caches", lambda: why)
        assert await fetch(health, "/healthz") == (200, "ok\n")
        code, text = await fetch(health, "/readyz")
        assert code == 503
        assert "[-]caches failed: jobs.batch is not filled yet" in text
        why = None
        assert await fetch(health, "/readyz") == (200, "[+]caches ok\nok\n")
        assert (await fetch(health, "/nothing"))[0] == 404


async def test_health_is_served_over_one_connection_and_only_to_be_read() -> None:
    async with HealthServer("127.0.0.1", 0) as health:
        reader, writer = await asyncio.open_connection("127.0.0.1", health.port)
        for line, body in (b"GET /healthz", b"ok\n"), (b"HEAD /readyz?verbose", b""):
            writer.write(line + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"Content-Length: 3\r\n" in head
            assert await reader.readexactly(len(body)) == body
        writer.write(b"POST /healthz HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        assert (await reader.read()).startswith(b"HTTP/1.1 405 ")  # and hangs up
        writer.close()


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\r\n\r\n", b"GET /healthz\r\n\r\n", b"x" * 100_000], ids=["TLS", "no HTTP", "endless"]
)
async def test_who_does_not_speak_http_is_hung_up_on_and_the_others_are_served(garbage: bytes) -> None:
    async with HealthServer("127.0.0.1", 0) as health:
        reader, writer = await asyncio.open_connection("127.0.0.1", health.port)
        writer.write(garbage)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert await fetch(health, "/healthz") == (200, "ok\n")


async def test_a_connection_that_is_kept_does_not_hold_up_the_end() -> None:
    async with asyncio.timeout(30):
        async with HealthServer("127.0.0.1", 0) as health:
            reader, writer = await asyncio.open_connection("127.0.0.1", health.port)
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            await reader.readuntil(b"ok\n")
        assert await reader.read() == b""
        writer.close()


async def test_who_asks_again_before_the_answer_is_hung_up_on() -> None:
    async with HealthServer("127.0.0.1", 0) as health:
        reader, writer = await asyncio.open_connection("127.0.0.1", health.port)
        writer.write(GET * 1000)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert await fetch(health, "/healthz") == (200, "ok\n")


async def test_connections_that_are_only_held_keep_nobody_out() -> None:
    async with HealthServer("127.0.0.1", 0) as health:
        held = [await asyncio.open_connection("127.0.0.1", health.port) for _ in range(2 * MOST_CONNECTIONS)]
        for _, writer in held:
            writer.write(b"GET /healthz HTTP/1.1\r\nX: ")
        assert await fetch(health, "/healthz") == (200, "ok\n")
        assert health._server is not None
        assert len(health._server._connections) <= MOST_OF_A_PEER
        for _, writer in held:
            writer.close()


async def test_half_a_request_and_an_answer_that_nobody_reads_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multimirror.kube.pages._HEAD_SECONDS", 0.05)
    monkeypatch.setattr("multimirror.kube.pages._WRITE_SECONDS", 0.05)
    registry = CollectorRegistry()
    registry.register(Many(200_000))
    async with HealthServer("127.0.0.1", 0, registry=registry) as health, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", health.port)
        writer.write(b"GET /hea")
        assert await reader.read() == b""
        writer.close()
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", health.port))
        deaf.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert health._server is not None
        while not any(each.requests for each in list(health._server._connections.values())):
            await asyncio.sleep(0.01)
        while health._server._connections:
            await asyncio.sleep(0.01)
        deaf.close()


class Many(Collector):
    """Metrics that take long to render, and are counted when they are."""

    def __init__(self, lines: int) -> None:
        self.lines, self.rendered = lines, 0

    def collect(self) -> Iterable[GaugeMetricFamily]:
        self.rendered += 1
        family = GaugeMetricFamily("many", "lines", labels=["number"])
        for number in range(self.lines):
            family.add_metric([str(number)], number)
        yield family


async def test_metrics_are_rendered_once_a_second_however_often_they_are_asked_for() -> None:
    registry, many = CollectorRegistry(), Many(10)
    registry.register(many)
    before, many.rendered = time.monotonic(), 0
    async with HealthServer("127.0.0.1", 0, registry=registry) as health:
        answers = [await fetch(health, "/metrics") for _ in range(30)]
    assert {status for status, _ in answers} == {200}
    assert many.rendered <= 1 + (time.monotonic() - before)


def test_a_loop_that_does_not_turn_is_told_by_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multimirror.kube.pages.ANSWER_SECONDS", 0.2)
    seen: list[int] = []

    def ask(port: int) -> None:
        try:
            seen.append(urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz").status)
        except urllib.error.HTTPError as error:
            seen.append(error.code)
            error.close()

    async def blocked() -> None:
        async with HealthServer("127.0.0.1", 0) as health:
            thread = threading.Thread(target=ask, args=(health.port,))
            thread.start()
            thread.join()  # on the loop: nothing else happens there
            assert await fetch(health, "/healthz") == (200, "ok\n")

    asyncio.run(blocked())
    assert seen == [503]


async def test_a_check_that_fails_is_an_answer_too(capsys: pytest.CaptureFixture[str]) -> None:
    async with HealthServer("127.0.0.1", 0) as health:
        health.add_ready_check("odd", lambda: str(1 / 0))
        assert (await fetch(health, "/readyz"))[0] == 503
        assert await fetch(health, "/healthz") == (200, "ok\n")
    assert "ZeroDivisionError" in capsys.readouterr().out


async def test_questions_are_answered_in_json() -> None:
    async with HealthServer("127.0.0.1", 0) as health:
        health.add_question("/why", lambda parameters: (200, {"asked": dict(parameters)}))
        assert await fetch(health, "/why?a=1&a=2") == (200, '{"asked":{"a":"2"}}')


async def test_a_question_may_be_refused_and_the_next_one_is_answered() -> None:
    async with HealthServer("127.0.0.1", 0) as health:
        health.add_question("/no", lambda _: (409, {"error": "not now"}))
        code, text = await fetch(health, "/no")
        assert (code, "not now" in text) == (409, True)
        assert await fetch(health, "/healthz") == (200, "ok\n")


async def test_a_question_that_takes_its_time_does_not_hold_up_others() -> None:
    done = asyncio.Event()

    async def slow(_: object) -> tuple[int, object]:
        await done.wait()
        return 200, "at last"

    async with HealthServer("127.0.0.1", 0) as health:
        health.add_question("/slow", slow)
        health.add_question("/quick", lambda _: (200, "at once"))
        asked = asyncio.ensure_future(fetch(health, "/slow"))
        assert await fetch(health, "/quick") == (200, '"at once"')
        assert not asked.done()
        done.set()
        assert await asked == (200, '"at last"')


async def test_a_question_that_is_never_answered_ends_with_the_server() -> None:
    began = asyncio.Event()

    async def never(_: object) -> tuple[int, object]:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with HealthServer("127.0.0.1", 0) as health:
        health.add_question("/never", never)
        asked = asyncio.ensure_future(fetch(health, "/never"))
        await began.wait()
    async with asyncio.timeout(10):
        assert (await asked)[0] in (0, 503)


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.7", False),
        ("fe80::1%eth0", False),
        ("::ffff:10.0.0.7", False),
    ],
)
def test_questions_are_for_this_host(address: str, here: bool) -> None:
    assert _is_of_this_host(address) is here

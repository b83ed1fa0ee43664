"""`multimirror logs -f` beside a dispatcher at work: a Job that moves, a worker that is gone, and one that comes back.

And what no command does when a cluster is out of reach: show its user the log lines of the libraries below it.
"""

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from clusters.tcp_proxy import TcpProxy
from faults.record import MANAGEMENT
from multimirror.cli.job_logs import follow
from multimirror.cli.logs import LogOptions
from multimirror.kube import Client, Connection
from multimirror.kube.resources import JOBS, NAMESPACES, SECRETS
from tests.e2e.cli.operating import embedded_only
from tests.e2e.dispatching import Stage, cluster_of, running, secret
from tests.waiting import DEADLINE, eventually

LINE = "hello from a pod"
OURS = re.compile(r"(note|error): .*|  .*")
"""What a command writes to standard error."""


@dataclass
class Operator:
    """Somebody who follows the Job, on ways of his own to each cluster: those of dispatchers know no streams."""

    stage: Stage
    system: str
    ways: dict[str, TcpProxy]
    out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def follows(self) -> AsyncIterator[asyncio.Task[None]]:
        connection = Connection.from_kubeconfig(self.stage.kubeconfig_of(MANAGEMENT))
        work = follow(
            lambda: Client(connection),
            await self.stage.job(),
            LogOptions(),
            system=self.system,
            write=self.out.append,
            note=self.notes.append,
        )
        task = asyncio.ensure_future(work)
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def sees(self, *lines: str) -> None:
        async def shown() -> list[str]:
            return self.out

        await eventually(shown, lambda out: out == list(lines))

    async def is_told(self, text: str) -> None:
        async def told() -> list[str]:
            return self.notes

        await eventually(told, lambda notes: any(text in note for note in notes))

    def cut(self, worker: str) -> None:
        """For everybody."""
        self.stage.cut(worker)
        self.ways[worker].cut()

    def mend(self, worker: str) -> None:
        self.stage.mend(worker)
        self.ways[worker].restore()


@contextlib.asynccontextmanager
async def an_operator(stage: Stage) -> AsyncIterator[Operator]:
    own = f"{stage.namespace}-operator"
    await stage.management.create(NAMESPACES, {"metadata": {"name": own}})
    async with contextlib.AsyncExitStack() as stack:
        ways = {name: await stack.enter_async_context(TcpProxy(stage.kubeconfig_of(name))) for name in stage.workers}
        for name, way in ways.items():
            await stage.management.create(SECRETS, secret(name, way.kubeconfig), own)
        yield Operator(stage, own, ways)


async def ended(task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(DEADLINE):
        await task


@embedded_only
async def test_logs_follow_a_job_from_a_lost_worker_to_another_and_to_its_end(stage: Stage) -> None:
    await stage.set_queue(onWorkerLost={"action": "Redispatch", "after": "1s"})
    async with stage.dispatcher(), an_operator(stage) as operator:
        await stage.submit(never_finish="true", log=LINE)
        first, _ = await stage.copy(running)
        async with operator.follows() as following:
            await operator.sees(LINE)
            operator.cut(first)
            job = await stage.until(lambda job: cluster_of(job) not in {None, first} and running(job))
            await operator.sees(LINE, LINE)
            assert f"attempt 2, on {cluster_of(job)} ({first} was lost)" in operator.notes
            operator.mend(first)
            await stage.finish()
            await ended(following)
            assert operator.out == [LINE, LINE]


@embedded_only
async def test_logs_end_with_a_job_whose_worker_never_comes_back(stage: Stage) -> None:
    await stage.set_queue(onWorkerLost={"action": "Fail", "after": "1s"})
    async with stage.dispatcher(), an_operator(stage) as operator:
        await stage.submit(never_finish="true", log=LINE)
        worker, _ = await stage.copy(running)
        async with operator.follows() as following:
            await operator.sees(LINE)
            operator.cut(worker)
            await ended(following)
            assert operator.out == [LINE]
            assert f"the rest of the logs could not be read: {worker} cannot be reached" in operator.notes[-1]


@embedded_only
async def test_logs_go_on_when_a_worker_is_back_and_repeat_nothing(stage: Stage) -> None:
    await stage.set_queue(onWorkerLost={"action": "Wait"})
    async with stage.dispatcher(), an_operator(stage) as operator:
        await stage.submit(never_finish="true", log=LINE)
        worker, _ = await stage.copy(running)
        async with operator.follows() as following:
            await operator.sees(LINE)
            operator.cut(worker)
            await operator.is_told(f"{worker} cannot be reached")
            operator.mend(worker)
            await operator.is_told(f"{worker} answers again")
            await stage.finish()
            await ended(following)
            assert operator.out == [LINE]


@embedded_only
async def test_commands_show_no_log_lines_when_a_worker_is_out_of_reach(stage: Stage, tmp_path: Path) -> None:
    await stage.set_queue(onWorkerLost={"action": "Wait"})
    path = tmp_path / "management.yaml"
    path.write_text(yaml.safe_dump(stage.kubeconfig_of(MANAGEMENT)))
    async with stage.dispatcher(), an_operator(stage) as operator:
        await stage.submit(never_finish="true", log=LINE)
        worker, _ = await stage.copy(running)
        where = ("job/job", "-n", stage.namespace, "--system-namespace", operator.system, "--kubeconfig", str(path))
        following = await _command("logs", *where, "-f")
        assert following.stdout is not None
        assert (await following.stdout.readline()).decode() == f"{LINE}\n"
        operator.cut(worker)
        for words in (("explain", *where), ("events", *where), ("logs", *where)):
            process = await _command(*words)
            out, err = await process.communicate()
            assert [line for line in err.decode().splitlines() if not OURS.fullmatch(line)] == [], words
            assert re.search(r"\[(info|warning|error) *\]", out.decode()) is None, words
        await stage.management.delete(JOBS, "job", stage.namespace, propagation="Background")
        out, err = await following.communicate()
        assert following.returncode == 0
        assert [line for line in err.decode().splitlines() if not line.startswith("note: ")] == []
        assert "note: the Job was deleted" in err.decode()


async def _command(*words: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "multimirror.cli", *words), stdout=pipe, stderr=pipe
    )

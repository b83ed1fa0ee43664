"""Fleets from the command line: `python -m clusters up`, `status`, `down`.

`up` stays in the foreground until Ctrl-C. While it runs it holds a lock in its directory, which is how `status` and
`down` know that what they find there is alive, and whom to stop.
"""

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import yaml

from clusters.fleet import Fleet, FleetError, FleetOptions, open_fleet

_DEFAULT_DIRECTORY: Final = Path("~/.multimirror/fleet")
_STOP_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 5.0
_EPILOG: Final = """examples:
  python -m clusters up                              one management cluster and two workers in this process
  python -m clusters up --workers 5 --data-dir state the same again after a restart
  python -m clusters up --kind local                 real control planes as processes
  python -m clusters status -o json
  python -m clusters down

exit codes: 0 done, 1 failed (one line says why), 2 wrong usage"""


@dataclass(frozen=True, slots=True)
class Place:
    """The directory in which a running fleet can be found."""

    directory: Path

    @property
    def state(self) -> Path:
        """What is up."""
        return self.directory / "fleet.json"

    def kubeconfig(self, name: str) -> Path:
        """Of one cluster."""
        return self.directory / f"{name}.kubeconfig"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory, or say who does."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock_file() as file:
            if not _locked(file):
                raise FleetError(
                    f"a fleet is already up in {self.directory}: stop it with `python -m clusters down"
                    f" --directory {self.directory}`, or choose another --directory"
                )
            yield

    def running(self) -> dict[str, Any]:
        """The fleet that is up here."""
        nothing = f"no fleet is up in {self.directory}: start one with `python -m clusters up`"
        if not self.state.exists():
            raise FleetError(nothing)
        if self.is_free():
            raise FleetError(f"{nothing} (the last one was killed)")
        state: dict[str, Any] = json.loads(self.state.read_text())
        return state

    def is_free(self) -> bool:
        """Whether nobody holds it."""
        with self._lock_file() as file:
            return _locked(file)

    def _lock_file(self) -> IO[str]:
        return (self.directory / "lock").open("a")


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def up(arguments: argparse.Namespace) -> None:
    """Bring a fleet up and keep it until told to stop."""
    place = Place(arguments.directory)
    options = FleetOptions(
        workers=arguments.workers,
        nodes=arguments.nodes,
        job_controller=arguments.job_controller,
        data_dir=arguments.data_dir,
    )
    with place.held():
        started = time.monotonic()
        stop = _stop_signal()
        fleet = open_fleet(arguments.kind, options)
        starting = asyncio.ensure_future(fleet.__aenter__())
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                await asyncio.wait([starting])
                return
            starting.result()
            _announce(fleet, place, arguments, time.monotonic() - started)
            await stopping
        finally:
            stopping.cancel()
            if starting.done() and not starting.cancelled() and starting.exception() is None:
                await fleet.__aexit__(None, None, None)
            _tidy(place)


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _announce(fleet: Fleet, place: Place, arguments: argparse.Namespace, seconds: float) -> None:
    rows = []
    for cluster in fleet.clusters():
        path = place.kubeconfig(cluster.name)
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(cluster.kubeconfig))
        server = cluster.kubeconfig["clusters"][0]["cluster"]["server"]
        rows.append({"name": cluster.name, "server": server, "kubeconfig": str(path)})
    state = {"kind": arguments.kind, "pid": os.getpid(), "clusters": rows}
    place.state.write_text(json.dumps(state))
    if arguments.output != "table":
        _print(state, rows, arguments.output)
        return
    print(f"{_counted(rows, arguments.kind)} up in {seconds:.1f} s\n")
    _print(state, rows, "table")
    print("\nTry:\n")
    print(f"  kubectl --kubeconfig {rows[0]['kubeconfig']} get nodes")
    print(f"  kubectl --kubeconfig {rows[-1]['kubeconfig']} create job hello --image=busybox -- echo hello")
    print(f"  kubectl --kubeconfig {rows[-1]['kubeconfig']} wait --for=condition=complete job/hello")
    print(f"  kubectl --kubeconfig {rows[-1]['kubeconfig']} get jobs,pods")
    print("\nCtrl-C stops it.", flush=True)


def _tidy(place: Place) -> None:
    place.state.unlink(missing_ok=True)
    for path in place.directory.glob("*.kubeconfig"):
        path.unlink()


async def down(arguments: argparse.Namespace) -> None:
    """Stop the fleet that is up in the directory."""
    place = Place(arguments.directory)
    state = place.running()
    os.kill(state["pid"], signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            while not place.is_free():  # noqa: ASYNC110 - the lock of another process cannot be awaited
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise FleetError(
            f"process {state['pid']} did not stop within {_STOP_SECONDS:g} s: look at its output, then kill it"
        ) from None
    print(f"{_counted(state['clusters'], state['kind'])} stopped")


async def status(arguments: argparse.Namespace) -> None:
    """Ask every cluster of the fleet that is up."""
    state = Place(arguments.directory).running()
    rows = await asyncio.gather(*(_ask(cluster) for cluster in state["clusters"]))
    _print({**state, "clusters": rows}, rows, arguments.output)
    if not all(row["ready"] for row in rows):
        raise FleetError("not every cluster answers: look at the output of `python -m clusters up`")


async def _ask(cluster: dict[str, Any]) -> dict[str, Any]:
    from multimirror.kube import Client, Connection, KubeError, Resource  # noqa: PLC0415 - slow, and only needed here

    row = {**cluster, "ready": False, "version": "", "nodes": 0}
    nodes_of_it = Resource("", "v1", "nodes", "Node", namespaced=False)
    try:
        connection = Connection.from_kubeconfig(Path(cluster["kubeconfig"]), name=cluster["name"])
        async with Client(connection, timeout=_ANSWER_SECONDS) as client:
            version = json.loads((await client.request("GET", "/version")).body)["gitVersion"]
            nodes = await client.list(nodes_of_it)
    except KubeError:
        return row
    return {**row, "ready": True, "version": version, "nodes": len(nodes.items)}


def _print(whole: dict[str, Any], rows: Sequence[dict[str, Any]], output: str) -> None:
    if output == "json":
        print(json.dumps(whole, indent=2), flush=True)
    elif output == "yaml":
        print(yaml.safe_dump(whole, sort_keys=False), end="", flush=True)
    else:
        titles = list(rows[0])
        table = [[title.upper() for title in titles], *([_cell(row[title]) for title in titles] for row in rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(titles))]
        for line in table:
            print("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _counted(clusters: Sequence[object], kind: str) -> str:
    return f"{len(clusters)} {kind} cluster{'' if len(clusters) == 1 else 's'}"


def _cell(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _whole_number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def _directory(text: str) -> Path:
    return Path(text).expanduser().resolve()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    main = argparse.ArgumentParser(
        prog="python -m clusters",
        description="A fleet of Kubernetes clusters: one management cluster and some workers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = main.add_subparsers(title="commands", required=True, metavar="up|status|down")
    for name, run, text in (
        ("up", up, "bring a fleet up and keep it until Ctrl-C"),
        ("status", status, "ask every cluster of the fleet that is up"),
        ("down", down, "stop the fleet that is up"),
    ):
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.set_defaults(run=run)
        command.add_argument(
            "--directory",
            type=_directory,
            default=_DEFAULT_DIRECTORY.expanduser(),
            metavar="DIR",
            help=f"where kubeconfigs are written and the fleet is found again (default: {_DEFAULT_DIRECTORY})",
        )
        if name != "down":
            command.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
        if name == "up":
            command.add_argument("--kind", choices=("embedded", "local", "kind"), default="embedded")
            command.add_argument("--workers", type=_whole_number, default=2, metavar="N", help="default: 2")
            command.add_argument("--data-dir", type=_directory, metavar="DIR", help="keep the clusters' state here")
            command.add_argument(
                "--nodes",
                action=argparse.BooleanOptionalAction,
                default=True,
                help="simulated nodes run the pods (default: yes; kind has real ones)",
            )
            command.add_argument(
                "--job-controller",
                action=argparse.BooleanOptionalAction,
                default=True,
                help="our Job controller runs embedded clusters' Jobs (default: yes; others have Kubernetes' own)",
            )
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    given = parser().parse_args(arguments)
    try:
        asyncio.run(given.run(given))
    except KeyboardInterrupt:
        return 130
    except (FleetError, OSError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

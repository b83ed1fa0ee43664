"""The process that owns the control planes' processes, so that nothing outlives the one who asked for them.

Run as a script (standard library only: it starts in milliseconds and stays small). It starts what its parent asks for
over standard input, and reports exits over standard output, a JSON object a line each way:

    in   {"id": 1, "op": "start", "name": "worker-1/etcd", "argv": [...], "log": "/..."}
    out  {"id": 1, "pid": 4711}
    in   {"id": 2, "op": "signal", "name": "worker-1/etcd", "signal": 19}
    out  {"id": 2}
    out  {"exit": "worker-1/etcd", "code": 0}

However the parent ends, SIGKILL included, its end of the pipe closes: then every process is stopped and, for a home
that is not to be kept, the directory removed. Should this process be killed itself, the kernel kills its children
(PR_SET_PDEATHSIG, Linux), and the directory is swept by the next run, which finds its lock free (see `homes`).
Signals go through here and not from the parent straight to a pid: whoever reaps a pid is the only one who knows that
it still means the same process.
"""

import argparse
import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PIDS = "pids.json"
_PR_SET_PDEATHSIG = 1


class Supervisor:
    def __init__(self, home: Path, grace: float, *, remove: bool) -> None:
        self._home = home
        self._grace = grace
        self._remove = remove
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = False
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._pid = os.getpid()

    def run(self) -> None:
        wakeup_read, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else _pipe()
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only there to wake the selector
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(wakeup_read, selectors.EVENT_READ)
            pending = b""
            while not self._stopping:
                ready = {key.fd for key, _ in selector.select()}
                if wakeup_read in ready:
                    os.read(wakeup_read, 4096)
                self._reap()
                if 0 in ready:
                    data = os.read(0, 65536)
                    if not data:
                        break
                    *lines, pending = (pending + data).split(b"\n")
                    for line in lines:
                        self._answer(json.loads(line))
        self._shut_down()

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _answer(self, request: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"id": request["id"]}
        try:
            if request["op"] == "start":
                reply["pid"] = self._start(request["name"], request["argv"], request["log"])
            else:
                self._signal(request["name"], request["signal"])
        except (OSError, ProcessLookupError) as error:
            reply["error"] = str(error)
        self._say(reply)

    def _start(self, name: str, argv: list[str], log: str) -> int:
        if name in self._children:
            raise ProcessLookupError(f"{name} is running already")
        with Path(log).open("ab") as output:
            child = subprocess.Popen(  # noqa: S603 - running what the parent asks for is what this process is for
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                preexec_fn=self._die_with_me,  # noqa: PLW1509 - safe: this process has one thread
            )
        self._children[name] = child
        # In a file of its own, renamed into place: a half-written list would hide processes from the next run's sweep.
        draft = self._home / f"{PIDS}.new"
        draft.write_text(json.dumps({name: child.pid for name, child in self._children.items()}))
        draft.replace(self._home / PIDS)
        return child.pid

    def _die_with_me(self) -> None:
        if self._libc is not None:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._pid:  # died between fork and prctl
                os.kill(os.getpid(), signal.SIGKILL)

    def _signal(self, name: str, number: int) -> None:
        child = self._children.get(name)
        if child is None or child.poll() is not None:
            raise ProcessLookupError(f"{name} is not running")
        child.send_signal(number)

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            code = child.poll()
            if code is not None:
                del self._children[name]
                self._say({"exit": name, "code": code})

    def _say(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more: the end of input says so next
            os.write(1, json.dumps(message).encode() + b"\n")

    def _shut_down(self) -> None:
        """Last started, first stopped; with no grace everything is killed at once."""
        for child in reversed(list(self._children.values())):
            if self._grace > 0 and child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(self._grace)
            if child.poll() is None:
                child.kill()
        for child in self._children.values():
            child.wait()
        (self._home / PIDS).unlink(missing_ok=True)
        if self._remove:
            _remove_tree(self._home)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def _remove_tree(path: Path) -> None:
    """Somebody may still be writing a file into it (an audit reader, an editor): a few tries, then the next sweep's."""
    for _ in range(5):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--grace", type=float, default=0.0)
    parser.add_argument("--remove", action="store_true")
    arguments = parser.parse_args()
    Supervisor(arguments.home, arguments.grace, remove=arguments.remove).run()


if __name__ == "__main__":
    main()

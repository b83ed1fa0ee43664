"""Stand-ins for `docker` and `kind` that record their calls."""

import json
import sys
from pathlib import Path

GIB = 1 << 30

STAND_IN = f"""#!{sys.executable} -IS
import json, os, pathlib, subprocess, sys, time
here = pathlib.Path(__file__).parent
program, arguments = pathlib.Path(__file__).name, sys.argv[1:]
settings = json.loads((here / "settings").read_text())
given = sys.stdin.read() if "-" in arguments else ""
with (here / "calls").open("a") as calls:
    print(json.dumps([program, *arguments]), file=calls)
name = arguments[arguments.index("--name") + 1] if "--name" in arguments else ""
line = " ".join([program, *arguments])
for part, complaint in settings.get("fail", {{}}).items():
    if part in line:
        print(complaint, file=sys.stderr)
        sys.exit(1)
if line.startswith("docker image inspect"):
    print("sha256:" + arguments[-1])
    sys.exit("known" in settings and arguments[-1] not in settings["known"] + settings.get("pulled", []))
elif line.startswith("docker pull"):
    settings["pulled"] = [*settings.get("pulled", []), arguments[-1]]
    (here / "settings").write_text(json.dumps(settings))
elif line.startswith("docker info"):
    print(json.dumps({{"MemTotal": settings["memory"]}}))
elif line.startswith("docker image ls"):
    print("\\n".join(settings.get("images", [])))
elif line.startswith("docker network ls"):
    print(settings.get("networks", "bridge kind").replace(" ", "\\n"))
elif line.startswith("docker ps"):
    print(settings.get("containers", ""))
elif line == "kind version":
    print("kind v0.32.0 go1.26.0 linux/amd64")
elif line == "kind get clusters":
    print("\\n".join(path.name for path in (here / "clusters").iterdir()))
elif line.startswith("kind create cluster"):
    (here / "clusters" / name).touch()
    (here / f"{{name}}.yaml").write_text(given)
    if "late" in settings:  # a child, as `docker run` is one, that goes on when kind is ended
        child = [sys.executable, "-IS", "-c", settings["child"], settings["late"], str(here / "clusters" / name)]
        subprocess.Popen(child, close_fds=False)
        (here / "child").touch()
    time.sleep(settings.get("creating", 0))
    while settings.get("creating_until") and not pathlib.Path(settings["creating_until"]).exists():
        time.sleep(0.05)
elif line.startswith("kind delete cluster"):
    (here / "clusters" / name).unlink(missing_ok=True)
elif line.startswith("kind get kubeconfig"):
    server = f"https://{{name}}-control-plane:6443" if "--internal" in arguments else "https://127.0.0.1:40001"
    kind = f"kind-{{name}}"
    print(json.dumps({{
        "apiVersion": "v1", "kind": "Config", "current-context": kind,
        "clusters": [{{"name": kind, "cluster": {{"server": server, "certificate-authority-data": "Y2E="}}}}],
        "users": [{{"name": kind, "user": {{"client-certificate-data": "Yw==", "client-key-data": "aw=="}}}}],
        "contexts": [{{"name": kind, "context": {{"cluster": kind, "user": kind}}}}],
    }}))
"""


CHILD = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
pathlib.Path(sys.argv[2]).touch()
"""


class Machine:
    """A machine on which docker and kind are stand-ins."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "clusters").mkdir(parents=True)
        self.settings()
        for program in ("docker", "kind"):
            (directory / program).write_text(STAND_IN)
            (directory / program).chmod(0o755)

    def settings(self, memory: int = 8 * GIB, **settings: object) -> None:
        (self.directory / "settings").write_text(json.dumps({"memory": memory, "child": CHILD, **settings}))

    def calls(self, *beginning: str) -> list[list[str]]:
        path = self.directory / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call for call in map(json.loads, lines) if call[: len(beginning)] == list(beginning)]

    @property
    def clusters(self) -> set[str]:
        return {path.name for path in (self.directory / "clusters").iterdir()}

    @property
    def records(self) -> list[str]:
        """Fleets that were begun and not ended."""
        return [path.parent.name for path in (self.directory.parent / "cache").glob("multimirror/kind/*/lock")]

"""Lines for people to type, exactly as they work in the shell that they have."""

import shutil
import sys
from pathlib import Path


def short(path: Path) -> str:
    """As a person would type it."""
    for base, sign in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return f"{sign}{path.relative_to(base)}"
    return str(path)


def ours() -> str:
    """How `multimirror` is called: by its name where that works, else by its file in this environment."""
    found = shutil.which("multimirror")
    beside = Path(sys.executable).parent / "multimirror"
    return "multimirror" if found or not beside.exists() else short(beside)


def first_lines(kubeconfig: Path, job: str) -> list[str]:
    """A kubeconfig's first commands. `job`: one that can be explained."""
    return [
        f"export KUBECONFIG={short(kubeconfig)}",
        "kubectl create job hello --image=busybox -- echo hello",
        "kubectl get jobs",
        "kubectl get workerclusters,mirrorqueues",
        f"{ours()} get jobs",
        f"{ours()} explain job/{job}",
    ]

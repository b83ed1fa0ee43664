"""The lines of a log that say why a process ended: what a person would quote when asking for help."""

import re
from pathlib import Path
from typing import Final

_TELLING: Final = re.compile(
    r"^[FE]\d{4} |"  # klog: fatal, error
    r'"level":"(?:fatal|panic|error)"|'  # etcd
    r"^(?:Error|error|panic|fatal error|runtime):? |^Error: |"
    r"unknown (?:flag|shorthand)|invalid argument|address already in use"
)
_TAIL_BYTES: Final = 256 * 1024


def tail(path: Path) -> str:
    """The end of a log; empty where there is none."""
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            return log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def telling_lines(text: str, limit: int = 8, width: int = 400) -> list[str]:
    """The last errors, each once (servers repeat themselves while they retry); the last lines where there are none."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors: dict[str, str] = {}
    for line in lines:
        if _TELLING.search(line):
            key = re.sub(r"^[FE]\d{4} \S+ +\d+ |\"ts\":\"[^\"]*\"|\d+", "", line)
            errors.pop(key, None)
            errors[key] = line
    chosen = list(errors.values())[-limit:] or lines[-limit:]
    return [line if len(line) <= width else f"{line[: width - 2]} …" for line in chosen]

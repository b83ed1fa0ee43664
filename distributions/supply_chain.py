"""What the image is made of: a bill of materials from the lock file, and an audit of it.

    python distributions/supply_chain.py sbom     writes sbom.cdx.json (CycloneDX 1.6), the same each time
    python distributions/supply_chain.py audit    known vulnerabilities of what is locked, by pip-audit
    python distributions/supply_chain.py needs    what the image needs of what pyproject.toml asks for (`make lock`)

The first two read requirements.lock alone: what is not in there is not in the image (pip is told to require hashes).
The base image and its digest are read off the Dockerfile. The audit asks PyPI; where nobody answers it says so.
What it finds is told, and no error unless `--strict` is given: a vulnerability that was published today is no fault of
the change that is being checked.
"""

import json
import re
import subprocess
import sys
import tomllib
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK, SBOM = ROOT / "requirements.lock", ROOT / "sbom.cdx.json"
PATIENCE_SECONDS = 60
NOT_IN_IMAGE = frozenset(("kubernetes",))
"""Large, and used by people's own kubeconfigs only (programs and identity providers that give credentials)."""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_BASE = re.compile(r"^ARG BASE=(\S+?)@sha256:([0-9a-f]{64})$", re.MULTILINE)


@dataclass(frozen=True)
class Pin:
    """One line of a lock file."""

    name: str
    version: str
    hashes: tuple[str, ...]


def pins(lock: str) -> list[Pin]:
    """Each with the hashes that follow it."""
    starts = list(_PIN.finditer(lock))
    ends = [start.start() for start in starts[1:]] + [len(lock)]
    return [
        Pin(start[1].lower(), start[2], tuple(sorted(_HASH.findall(lock[start.end() : end]))))
        for start, end in zip(starts, ends, strict=True)
    ]


def needed_in_image(dependencies: list[str]) -> list[str]:
    """Of a project's dependencies."""
    return [each for each in dependencies if re.split(r"[^A-Za-z0-9_-]", each)[0].lower() not in NOT_IN_IMAGE]


def base_image(dockerfile: str) -> tuple[str, str]:
    """Its name and its digest."""
    found = _BASE.search(dockerfile)
    if found is None:
        raise ValueError("the Dockerfile names no base image by its digest")
    return found[1], found[2]


def sbom(lock: str, dockerfile: str, version: str) -> dict[str, Any]:
    """A CycloneDX document; nothing in it depends on when or where it is made."""
    name, digest = base_image(dockerfile)
    base = {
        "type": "container",
        "bom-ref": f"base@sha256:{digest}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }
    libraries = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{pin.name}@{pin.version}",
            "name": pin.name,
            "version": pin.version,
            "purl": f"pkg:pypi/{pin.name}@{pin.version}",
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"pkg:pypi/{pin.name}@{pin.version}",
                    "hashes": [{"alg": "SHA-256", "content": content} for content in pin.hashes],
                }
            ],
        }
        for pin in pins(lock)
    ]
    ours = {"type": "application", "bom-ref": "multimirror", "name": "multimirror", "version": version}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": ours},
        "components": [base, *libraries],
        "dependencies": [{"ref": "multimirror", "dependsOn": [each["bom-ref"] for each in (base, *libraries)]}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    return {"serialNumber": f"urn:uuid:{serial}", **document}


def rendered() -> str:
    """What sbom.cdx.json has to say."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return json.dumps(sbom(LOCK.read_text(), (ROOT / "Dockerfile").read_text(), version), indent=1) + "\n"


def audit(*, strict: bool) -> int:
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--requirement", str(LOCK)]
    command += ["--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
        found = [
            f"{each['name']} {each['version']}: {known['id']}, mended in {', '.join(known['fix_versions']) or 'none'}"
            for each in json.loads(done.stdout)["dependencies"]
            for known in each.get("vulns", ())
        ]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError):
        print("pip-audit: not done (it is not installed, or PyPI does not answer)")
        return 0
    for line in found:
        print(f"pip-audit: {line}")
    print(f"pip-audit: {len(found) or 'no'} known vulnerabilities in {len(pins(LOCK.read_text()))} locked packages")
    return 1 if found and strict else 0


def main(arguments: list[str]) -> int:
    match arguments:
        case ["sbom"]:
            SBOM.write_text(rendered())
            return 0
        case ["needs"]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            print("\n".join(needed_in_image(project["dependencies"])))
            return 0
        case ["audit", *flags]:
            return audit(strict="--strict" in flags)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Where Kueue's objects come from: files and directories as kubectl takes them, standard input, or a cluster.

Files may be anybody's, so they are bounded: 10 MB each, no aliases, no tags (multimirror.kube.yaml_text). What is wrong
with one is said with its name and the number of its document.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson
import yaml

from multimirror.cli.errors import CommandError, Exit
from multimirror.cli.kueue.objects import Sourced
from multimirror.cli.kueue.reading import ALPHA_TOO, GROUP, SCHEDULING_GROUP, VERSIONS
from multimirror.kube import Client, Resource
from multimirror.kube.errors import NotFound
from multimirror.kube.yaml_text import NotPlain, load_plain_documents

LARGEST_FILE: Final = 10_000_000
_MOST_VALUES: Final = 2_000_000
_SUFFIXES: Final = {".yaml", ".yml", ".json"}
_STANDARD_INPUT: Final = "-"
_KINDS: Final = {
    "clusterqueues": "ClusterQueue",
    "cohorts": "Cohort",
    "localqueues": "LocalQueue",
    "resourceflavors": "ResourceFlavor",
    "workloadpriorityclasses": "WorkloadPriorityClass",
    "admissionchecks": "AdmissionCheck",
    "multikueueconfigs": "MultiKueueConfig",
    "multikueueclusters": "MultiKueueCluster",
    "topologies": "Topology",
}
_PRIORITY_CLASSES: Final = Resource(SCHEDULING_GROUP, "v1", "priorityclasses", "PriorityClass", namespaced=False)


def from_files(names: Iterable[str]) -> list[Sourced]:
    """The objects in these files, directories, or standard input (-). Raises CommandError."""
    found: list[Sourced] = []
    for name in names:
        if name == _STANDARD_INPUT:
            found += _documents("standard input", _bytes(sys.stdin.buffer, "standard input"))
            continue
        for path in _files(Path(name)):
            try:
                with path.open("rb") as file:
                    text = _bytes(file, str(path))
            except OSError as error:
                raise _wrong(f"{path}: {error.strerror or error}") from error
            found += _documents(str(path), text)
    return found


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise _wrong(f"-f: there is no file {path}")
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES and each.is_file())
    if not files:
        raise _wrong(f"-f: there is no file in {path} that ends in .yaml, .yml or .json")
    return files


def _bytes(file: BinaryIO, name: str) -> bytes:
    text = file.read(LARGEST_FILE + 1)
    if len(text) > LARGEST_FILE:
        raise _wrong(f"{name}: is larger than {LARGEST_FILE // 1_000_000} MB; split it")
    return text


def _documents(name: str, text: bytes) -> Iterator[Sourced]:
    for number, value in enumerate(_parsed(name, text), 1):
        if value is not None:
            yield from _items(f"{name}, document {number}", value)


def _parsed(name: str, text: bytes) -> Iterator[object]:
    """Its documents, as JSON where it is JSON. YAML would do for both, but takes fifty times as long."""
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            yield orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # several documents, or YAML that begins so
        else:
            return
    try:
        yield from load_plain_documents(text, _MOST_VALUES)
    except NotPlain as error:
        raise _wrong(f"{name}: line {error.line}: {error}") from error
    except UnicodeDecodeError as error:
        raise _wrong(f"{name}: is no text in UTF-8") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise _wrong(f"{name}: {_syntax(error)}") from error


def _syntax(error: Exception) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = f"line {mark.line + 1}: " if mark is not None else ""
    return f"{where}is no YAML: {problem or str(error).splitlines()[0]}"


def _items(where: str, value: Any) -> Iterator[Sourced]:
    """The objects of a List, or the one that it is."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list):
        for number, item in enumerate(value["items"], 1):
            # The items of a ClusterQueueList need not say what they are.
            known = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
            yield Sourced(f"{where}, item {number}", {**known, **item} if isinstance(item, dict) else item)
    else:
        yield Sourced(where, value)


def _wrong(message: str) -> CommandError:
    return CommandError(message, code=Exit.USAGE)


async def from_cluster(client: Client) -> list[Sourced]:
    """All of Kueue's objects on a cluster, and its PriorityClasses."""
    version = await _version(client)
    found: list[Sourced] = []
    for plural, kind in _KINDS.items():
        versions = (version, "v1alpha1") if kind in ALPHA_TOO else (version,)
        found += await _listed(client, [Resource(GROUP, each, plural, kind) for each in versions])
    return found + await _listed(client, [_PRIORITY_CLASSES])


async def _version(client: Client) -> str:
    remedy = "Choose Kueue's cluster with --context, or give its objects as files with -f."
    try:
        answer = await client.request("GET", f"/apis/{GROUP}")
    except NotFound:
        raise CommandError("there is no Kueue on this cluster", remedy, code=Exit.REFUSED) from None
    served = {each.get("version") for each in orjson.loads(answer.body).get("versions") or ()}
    for version in VERSIONS:
        if version in served:
            return version
    message = f"Kueue serves none of the versions that are read here: {', '.join(VERSIONS)}"
    raise CommandError(message, remedy, code=Exit.REFUSED)


async def _listed(client: Client, resources: list[Resource]) -> list[Sourced]:
    """The objects of the first of these that is served."""
    for resource in resources:
        try:
            return [Sourced("the cluster", item) for item in (await client.list(resource, limit=500)).items]
        except NotFound:
            continue
    return []

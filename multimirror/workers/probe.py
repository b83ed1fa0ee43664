"""Before a worker gets Jobs: is it there, which version, which cluster, and may we do what we will have to do?

What it says about itself is shown to people and written into statuses, so it is taken only in the form that it has in
truth: a short version, a plain identity, a clock that is not days away.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

import orjson

from multimirror.kube import Client
from multimirror.kube.access import Permission, denied
from multimirror.kube.errors import BadAnswer, printable
from multimirror.kube.resources import NAMESPACES

_LONGEST_VERSION: Final = 64
_FURTHEST_CLOCK: Final = 86400.0
"""Seconds; certificates and tokens would not be valid with a clock that is further away than that."""
_IDENTITY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_SEEN: Final = ("list", "watch")
_NEEDED: Final = ("list", "watch", "create", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker said about itself."""

    version: str
    identity: str
    missing: tuple[str, ...]
    sees_namespaces: bool
    sees_nodes: bool
    clock_ahead: float = 0.0
    lacking: frozenset[str] = frozenset()
    """The namespaces in which something is missing; "" stands for all of them."""
    sees_pods: bool = False
    """Those of all namespaces, whosever they are."""


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """An answer to the question which cluster it is."""

    identity: str
    """The uid of its kube-system namespace, which lives as long as the cluster does."""
    clock_ahead: float
    """By how much its clock is ahead of ours, in seconds. Its answer is a little old when we read it and names whole
    seconds, so this is too small by up to a second and the way here, and never too large. 0 where it does not say."""


async def check(client: Client, namespaces: Sequence[str] | None, clock: Callable[[], float] = time.time) -> Facts:
    """Ask everything. `namespaces`: where copies may go; None: everywhere."""
    version, answer = await version_of(client), await probe(client, clock=clock)
    questions = [("jobs", "batch", verb, namespace) for namespace in namespaces or [""] for verb in _NEEDED]
    questions += [("namespaces", "", "list", ""), ("nodes", "", "list", "")]
    questions += [("pods", "", verb, "") for verb in _SEEN]
    permissions = [Permission(verb, resource, group, namespace) for resource, group, verb, namespace in questions]
    lacking = set(await denied(client, permissions))
    answers = {question: asked not in lacking for question, asked in zip(questions, permissions, strict=True)}
    refused = [question for question, yes in answers.items() if not yes and question[1]]
    missing = tuple(
        f"{verb} {resource}.{group}" + (f" in namespace {namespace}" if namespace else " in all namespaces")
        for resource, group, verb, namespace in refused
    )
    return Facts(
        version,
        answer.identity,
        missing,
        sees_namespaces=answers["namespaces", "", "list", ""],
        sees_nodes=answers["nodes", "", "list", ""],
        clock_ahead=answer.clock_ahead,
        lacking=frozenset(namespace for *_, namespace in refused),
        sees_pods=all(answers["pods", "", verb, ""] for verb in _SEEN),
    )


async def sees_pods(client: Client) -> bool:
    """Whether we may follow its nodes and the pods of all namespaces."""
    asked = [Permission("list", "nodes", "", ""), *(Permission(verb, "pods", "", "") for verb in _SEEN)]
    return not await denied(client, asked)


async def probe(client: Client, seconds: float | None = None, clock: Callable[[], float] = time.time) -> ProbeAnswer:
    """Ask which cluster it is, and wait at most so long.

    Any answer would show that it is there. This one is asked for because a cluster that was replaced behind the same
    address answers everything else as if it were the old one, and its watches stay silent until its versions have
    caught up with ours.
    """
    answer = await client.request("GET", NAMESPACES.path(None, "kube-system"), timeout=seconds)
    try:
        identity = orjson.loads(answer.body)["metadata"]["uid"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise BadAnswer("the answer about namespace kube-system has no uid", cluster=client.cluster) from error
    if not isinstance(identity, str) or not _IDENTITY.fullmatch(identity):
        raise BadAnswer("the uid of namespace kube-system is none", cluster=client.cluster)
    return ProbeAnswer(identity, clock_ahead(answer.headers.get("date"), clock()))


async def identity_of(client: Client) -> str:
    """Which cluster it is."""
    return (await probe(client)).identity


async def version_of(client: Client) -> str:
    """As `kubectl version` shows it; empty where it does not say."""
    answer = await client.request("GET", "/version")
    try:
        found = orjson.loads(answer.body)
    except orjson.JSONDecodeError as error:
        raise BadAnswer("the answer about its version is not JSON", cluster=client.cluster) from error
    version = found.get("gitVersion") if isinstance(found, dict) else None
    return printable(version, _LONGEST_VERSION) if isinstance(version, str) else ""


def clock_ahead(date: str | None, now: float) -> float:
    """From the Date header of an answer."""
    try:
        ahead = parsedate_to_datetime(date).timestamp() - now if date is not None else 0.0
    except (ValueError, OverflowError, OSError):
        return 0.0
    return min(max(ahead, -_FURTHEST_CLOCK), _FURTHEST_CLOCK)

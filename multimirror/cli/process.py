"""`multimirror run`: the dispatcher as a process, with health, leadership and an orderly end.

How such a process lives is in kube/manager.py. One that loses the lease, or a task that it relies on, ends with exit
code 1 and is started again by whoever runs it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from multimirror.cli.admission import AdmissionOptions, serve_admission
from multimirror.cli.dispatcher_lease import LEASE
from multimirror.dispatcher import COMPONENT, Dispatcher
from multimirror.kube import Connection
from multimirror.kube.health import HealthServer
from multimirror.kube.manager import Election, Manager
from multimirror.observe.questions import DEFAULT_LISTED
from multimirror.observe.what_if import Changes, NotPlanned
from multimirror.options import DispatcherOptions

_NOTHING_YET: Final = {"error": "this replica has just started, and knows nothing yet: ask again"}
_LONGEST_NUMBER: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    kubeconfig: Path | None
    context: str | None
    identity: str | None
    leader_elect: bool
    lease_seconds: int
    health_host: str
    health_port: int
    concurrency: int
    dispatcher: DispatcherOptions
    admission: AdmissionOptions | None = None
    """None: Jobs are made ours by admission policies, or by whoever creates them."""


async def serve(options: RunOptions, stop: asyncio.Event) -> None:
    connection = Connection.own(options.kubeconfig, options.context, name="management")
    health = HealthServer(options.health_host, options.health_port)
    election = _election(options) if options.leader_elect else None
    async with Manager(
        connection, COMPONENT, concurrency=options.concurrency, election=election, health=health
    ) as manager:
        dispatcher = await Dispatcher.connect(manager.client, options.dispatcher, guard=manager.guard)
        health.add_question("/explain", partial(explain, dispatcher))
        health.add_question("/queue", partial(queue, dispatcher))
        health.add_question("/what-if", partial(what_if, dispatcher))
        beside = None
        if options.admission is not None:
            beside = serve_admission(options.admission, connection, health, stop)
        await manager.run(dispatcher, stop, beside=beside)


async def queue(dispatcher: Dispatcher, parameters: Mapping[str, str]) -> tuple[int, object]:
    """/queue?name=NAME&limit=20: who waits there, in order. Only who leads knows the order."""
    name, limit = parameters.get("name", ""), parameters.get("limit", str(DEFAULT_LISTED))
    if not name or not limit.isdecimal() or len(limit) > _LONGEST_NUMBER:
        return 400, {"error": "say which queue, and how many of it: /queue?name=NAME&limit=20"}
    if not dispatcher.has_synced:
        return 503, _NOTHING_YET
    answer = await dispatcher.questions.queue(name, int(limit))
    return (200, answer) if answer is not None else (404, {"error": f"there is no MirrorQueue {name}"})


def _election(options: RunOptions) -> Election:
    """Times in the proportions that Kubernetes uses: of 15 s, 10 to be renewed in, every 2."""
    seconds = options.lease_seconds
    return Election(
        LEASE,
        options.dispatcher.namespace,
        options.identity,
        lease_duration=seconds,
        renew_deadline=seconds * 2 / 3,
        retry_period=min(2.0, seconds * 2 / 15),
    )


async def what_if(dispatcher: Dispatcher, parameters: Mapping[str, str]) -> tuple[int, object]:
    """/what-if?job=NAMESPACE/NAME&priority=50: what would be decided about it, were it so. Only who leads plans."""
    key = parameters.get("job", "")
    if key.count("/") != 1:
        return 400, {"error": "say which Job, and what would be otherwise: /what-if?job=NAMESPACE/NAME&priority=50"}
    if not dispatcher.has_synced:
        return 503, _NOTHING_YET
    try:
        answer = await dispatcher.questions.what_if(key, Changes.read(parameters))
    except NotPlanned as error:
        return 409, {"error": str(error)}
    return (200, answer) if answer is not None else (404, {"error": f"there is no Job {key} that multimirror manages"})


async def explain(dispatcher: Dispatcher, parameters: Mapping[str, str]) -> tuple[int, object]:
    """/explain?job=NAMESPACE/NAME: where it is, and why it is not further. Every replica answers, leading or not."""
    key = parameters.get("job", "")
    if key.count("/") != 1:
        return 400, {"error": "say which Job: /explain?job=NAMESPACE/NAME"}
    if not dispatcher.has_synced:
        return 503, _NOTHING_YET
    answer = await dispatcher.questions.explain(key)
    return (200, answer) if answer is not None else (404, {"error": f"there is no Job {key} that multimirror manages"})

"""How admission comes in, or changes from one kind to another, without a Job that is refused or missed on the way.

Policies and webhook may be in force together: what one has made ours, the other leaves as it is. So a change goes
through both of them, and what was there goes only when what is to be there has been seen to act:

- the webhook is registered when its replicas are available, at first so that it fails open, which harms nobody: what
  was in force before still is. When API servers get answers, it is made to fail closed;
- policies go when the webhook answers; the registration goes when policies have had the time to act, and the webhook
  itself when API servers have had the time to forget it.

API servers hear of each of these by a watch, and there may be several, of which we see one: so much time is left them.
Wherever a run ends, all that was in force still is, and the next one does the rest: what it does depends on what is
there, and on nothing else.
"""

from dataclasses import dataclass
from typing import Final, Literal

from multimirror.admission.server import REFUSED
from multimirror.api import QUEUE_LABEL
from multimirror.batch import Json
from multimirror.cli.doctor.jobs import PROBE, probe_job
from multimirror.cli.installation.objects import Admission
from multimirror.kube import ApiError, Client
from multimirror.kube.errors import BadRequest, Forbidden, Invalid
from multimirror.kube.resources import JOBS

SETTLE_SECONDS: Final = 10.0
"""For API servers to have heard of a change. One compiles new policies once a second."""
ANSWERS_IN_A_ROW: Final = 5
"""With which the webhook is known to be reached: of several replicas, each was probably asked."""

Step = Literal["apply", "wait", "try", "ask", "register", "settle", "unregister", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What there is of admission."""

    policies: bool = False
    registration: Json | None = None
    webhook: bool = False
    """Its Deployment."""

    @property
    def fails_closed(self) -> bool:
        """The webhook is registered, and in charge."""
        webhooks = (self.registration or {}).get("webhooks") or ()
        return bool(webhooks) and all(each.get("failurePolicy") != "Ignore" for each in webhooks)


def steps(wanted: Admission, now: Observed) -> list[Step]:
    """What is to be done, in order. Pure.

    apply: all but the registration. wait: until the webhook is available. try: register it so that it fails open. ask:
    until it answers. register: so that it fails closed. settle: give API servers time. remove: whatever is not wanted.
    """
    if wanted == "webhook":
        tried: list[Step] = ["wait", "try", "ask"]
        if now.fails_closed:
            tried = ["wait", "ask"] if now.policies else []
        rest: list[Step] = ["settle", "remove"] if now.policies else ["remove"]
        return ["apply", *tried, "register", *rest]
    found: list[Step] = ["apply"]
    if now.registration is not None:
        found += ["settle", "unregister"] if wanted == "policies" else ["unregister"]
    if now.webhook:
        found.append("settle")
    return [*found, "remove"]


def failing_open(registration: Json) -> Json:
    """The same, asking for nothing when it is not answered. Pure."""
    return {**registration, "webhooks": [{**each, "failurePolicy": "Ignore"} for each in registration["webhooks"]]}


async def answers(client: Client, namespace: str) -> bool | None:
    """Whether the API server that we speak with gets an answer from the webhook; None: that cannot be seen.

    A Job of a queue that there is not is refused by the webhook, and by no policy of ours. Somebody else's may."""
    try:
        await client.create(JOBS, probe_job({QUEUE_LABEL: PROBE}), namespace, dry_run=True)
    except ApiError as error:
        if any(cause.reason == REFUSED for cause in error.causes):
            return True
        return None if isinstance(error, (Forbidden, BadRequest, Invalid)) else False
    return False

"""Whether the pods of a copy that was suspended are still there: asked of the worker while they stop. Pure.

Kubernetes' Job controller looks at a Job a second after a pod of it went; so long its status goes on to count a pod
that is gone, and whoever waits for the room waits a second for nothing. So the worker is asked for the pods themselves:
one of them is enough. They are asked for soon after they were told to stop, and more and more seldom; once more when
their own time to stop is over and they are killed; and not at all where asking would be no sooner than the status.

No pods count as none only after some were seen: an account that may not list them, or sees none, goes by the status.
What the copy says of itself has to be final but for those pods (`Kind.is_stopping`), so nothing is lost by not waiting.
"""

from typing import Final

from multimirror.api.placement import Copy
from multimirror.reconcile.actions import Action, AskStopping, Requeue
from multimirror.reconcile.state import ObservedState, StoppingPods

_SHORTEST_SECONDS: Final = 0.25
_PART: Final = 0.2
"""Of the time that has passed, until it is asked again."""
_STATUS_SECONDS: Final = 1.0
"""So late the status of a Job is anyway."""


def are_gone(state: ObservedState, copy: Copy) -> bool:
    """The worker had pods of this copy, and has none any more."""
    found = _known(state, copy) if not copy.terminating else None
    return found is not None and found.seen and not found.there and state.kind.is_stopping(copy.object)


def asked(state: ObservedState, copy: Copy, since: float | None, grace: float) -> list[Action]:
    """Ask for them, if it is time; else when it will be. `since`: when they began to stop; `grace`: how long they may
    take."""
    if since is None or not state.kind.is_stopping(copy.object):
        return []
    found, passed = _known(state, copy), state.now - since
    if found is not None and not found.there:
        return []  # seen to be gone, or never seen
    again = max(_SHORTEST_SECONDS, _PART * (passed - grace if passed >= grace else passed))
    if again >= _STATUS_SECONDS:
        return [Requeue(grace - passed + _SHORTEST_SECONDS)] if passed < grace else []
    left = found.at + again - state.now if found is not None else 0.0
    if left > 0:
        return [Requeue(left)]
    return [AskStopping(copy.worker, copy.namespace, copy.uid), Requeue(again)]


def _known(state: ObservedState, copy: Copy) -> StoppingPods | None:
    found = state.stopping
    return found if found is not None and found.copy == copy.uid else None

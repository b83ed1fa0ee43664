"""The caches of the management cluster: our objects, their queues, cohorts and namespaces, and how workers are
reached.

An installation that is older than the kind Cohort goes on without: no queue of it can be in a tree.

Nothing here is asked of an API server, and nothing is written. Objects from the caches are shared: do not change them.
"""

import time
from collections.abc import Callable

import structlog

from multimirror.api import COHORTS, MIRROR_QUEUES, WORKER_CLUSTERS, CohortSpec, Hold, MirrorQueueSpec, SpecError
from multimirror.api.mirror_queue_status import HELD
from multimirror.batch import find_condition
from multimirror.batch.times import seconds_of
from multimirror.kinds import KINDS, Kinds
from multimirror.kube import Change, Client, Informer
from multimirror.kube.resources import NAMESPACES, SECRETS
from multimirror.options import DispatcherOptions
from multimirror.reconcile.originals import Originals
from multimirror.workers import trim_namespace, trim_secret

_log = structlog.get_logger(__name__)


class ManagementCache:
    """Everything that is followed on the management cluster."""

    def __init__(
        self,
        client: Client,
        options: DispatcherOptions,
        kinds: Kinds = KINDS,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self.namespaces = Informer(client, NAMESPACES, trim=trim_namespace)
        self.queues = Informer(client, MIRROR_QUEUES)
        self.cohorts = Informer(client, COHORTS, optional=True)
        self.clusters = Informer(client, WORKER_CLUSTERS)
        self.secrets = Informer(client, SECRETS, options.namespace, trim=trim_secret)
        self.originals = Originals(client, kinds, options.managed_by, self.namespaces)
        self.queue_specs: dict[str, MirrorQueueSpec] = {}
        """The queues that can be read, by name."""
        self.cohort_specs: dict[str, CohortSpec] = {}
        """The Cohorts that can be read, by name. Any other cohort is what a name makes of it: the root of a tree."""
        self.held_since: dict[str, float] = {}
        """By queue: since when it is held, where that is known. (For people.)"""
        self.queues.add_handler(self._queue_changed)
        self.cohorts.add_handler(self._cohort_changed)

    @property
    def informers(self) -> tuple[Informer, ...]:
        return (
            self.namespaces,
            self.queues,
            self.cohorts,
            self.clusters,
            self.secrets,
            *self.originals.informers,
        )

    @property
    def has_synced(self) -> bool:
        return all(informer.has_synced for informer in self.informers)

    async def synced(self) -> None:
        for informer in self.informers:
            await informer.synced()

    def past_use(self, is_queue: bool, name: str) -> object:
        """What the status of a queue, or of a Cohort, has of what it used before."""
        found = (self.queues if is_queue else self.cohorts).get(name)
        return ((found or {}).get("status") or {}).get("pastUse")

    def _queue_changed(self, change: Change) -> None:
        self._note_hold(change)
        if not spec_changed(change):
            return  # whoever decided on its rules must not think that they are others
        name = change.object["metadata"]["name"]
        self.queue_specs.pop(name, None)
        if change.new is not None:
            try:
                self.queue_specs[name] = MirrorQueueSpec.read(change.new)
            except SpecError as error:
                _log.warning("a queue cannot be used", queue=name, error=str(error))

    def _note_hold(self, change: Change) -> None:
        """From its status; before that says so, from when it was seen to be held."""
        name, queue = change.object["metadata"]["name"], change.new or {}
        if (queue.get("spec") or {}).get("hold", Hold.NONE) == Hold.NONE:
            self.held_since.pop(name, None)
            return
        held = find_condition((queue.get("status") or {}).get("conditions") or (), HELD)
        since = seconds_of(held.get("lastTransitionTime"), 0.0) if held is not None else 0.0
        if since:
            self.held_since[name] = since
        elif change.old is not None:
            self.held_since.setdefault(name, self._clock())

    def _cohort_changed(self, change: Change) -> None:
        if not spec_changed(change):
            return
        name = change.object["metadata"]["name"]
        self.cohort_specs.pop(name, None)
        if change.new is not None:
            try:
                self.cohort_specs[name] = CohortSpec.read(change.new)
            except SpecError as error:
                _log.warning("a cohort counts as a name alone", cohort=name, error=str(error))


def spec_changed(change: Change) -> bool:
    """Not only its status, or its labels."""
    return change.old is None or change.new is None or change.old.get("spec") != change.new.get("spec")

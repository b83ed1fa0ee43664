"""What a MirrorQueue tells: how many wait and run, why the first one waits, and what it shares with whom."""

from typing import Final

from multimirror.api import schema
from multimirror.api.cohorts import past_use_schema
from multimirror.api.schema import Schema
from multimirror.batch import Json

READY: Final = "Ready"
"""The condition that the queue's Jobs are taken."""
BORROWING: Final = "Borrowing"
"""The condition that the queue uses more than its own."""
OVERUSED: Final = "Overused"
"""The condition that the queue uses more than it may have, since quota was taken away."""
HELD: Final = "Held"
"""The condition that nothing of the queue is placed, as its spec.hold says."""
INFINITE: Final = "infinite"
"""The share of a queue that borrows although its weight is 0."""


def status_schema() -> Schema:
    """The schema of status."""
    worker = schema.struct(
        "What this queue has on one cluster.",
        {
            "name": schema.text("The WorkerCluster."),
            "running": schema.whole("Jobs there that have not finished."),
            "finished": schema.whole("Finished Jobs that it had, and that are still on the management cluster."),
        },
        required=("name",),
    )
    head = schema.struct(
        "The Job that would go next, and why it waits.",
        {
            "job": schema.text("Its namespace and name.", limit=320),
            "since": schema.timestamp("Since when it waits."),
            "reason": schema.text("Why, in one CamelCase word.", limit=128),
            "message": {"type": "string", "description": "Why, in words.", "maxLength": 32768},
        },
    )
    return schema.struct(
        "How the queue is doing. Written by multimirror.",
        {
            "observedGeneration": schema.generation("The generation of the spec that this status answers."),
            "conditions": schema.conditions(
                "Ready: Jobs are taken. Borrowing: it uses more than its own. Overused: more than it may have, since "
                "quota was taken away. Held: nothing is placed, as spec.hold says. Each with the reason."
            ),
            "pending": schema.whole("Jobs that wait."),
            "running": schema.whole("Jobs that were given to a cluster and have not finished."),
            "finished": schema.whole("Finished Jobs that are still there."),
            "workers": schema.keyed("By cluster.", worker, "name", limit=4096),
            "head": head,
            **_sharing_schemas(),
        },
    )


def _sharing_schemas() -> dict[str, Schema]:
    waits = schema.struct(
        "How many seconds the latest Jobs waited that were placed in the last hour (100 at most). The hour begins anew "
        "when another dispatcher leads.",
        {
            "p50": schema.whole("Half of them waited no longer."),
            "p90": schema.whole("Nine of ten waited no longer."),
        },
    )
    return {
        "own": schema.quantities("What it has of its own: spec.quota.resources."),
        "used": schema.quantities("What its Jobs ask for that were given to a cluster."),
        "borrowed": schema.quantities("What of that is more than its own. It may be taken back."),
        "lent": schema.quantities("What of its own others of its cohort use."),
        "share": schema.whole_or(
            "What it borrows of what can be lent in its cohort, in thousandths, over its weight; of the resource of "
            "which it borrows most. Who has least goes first. infinite: it borrows, and its weight is 0.",
            INFINITE,
        ),
        "fairShare": schema.whole(
            "What is due to it by weight of what is left over in its cohort, with what others do not ask for dealt out "
            "again, in thousandths of all that can be lent there; of the resource of which it borrows most, or else of "
            "which least is due to it."
        ),
        "pastUse": past_use_schema(),
        "waitSeconds": waits,
        "startsPerHour": schema.whole("How many of its Jobs were placed in the last hour."),
    }


def printer_columns() -> list[Json]:
    """What `kubectl get` shows."""
    return [
        {
            "name": "Placement",
            "type": "string",
            "jsonPath": ".spec.placement",
            "description": "How clusters are chosen",
        },
        {"name": "Pending", "type": "integer", "jsonPath": ".status.pending", "description": "Jobs that wait"},
        {"name": "Running", "type": "integer", "jsonPath": ".status.running", "description": "Jobs on a cluster"},
        {
            "name": "Waiting",
            "type": "string",
            "jsonPath": ".status.head.reason",
            "description": "Why the next Job waits",
        },
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {
            "name": "Cohort",
            "type": "string",
            "jsonPath": ".spec.cohort",
            "description": "With whom it shares",
            "priority": 1,
        },
        {"name": "Own", "type": "string", "jsonPath": ".status.own", "description": "What is its own", "priority": 1},
        {
            "name": "Used",
            "type": "string",
            "jsonPath": ".status.used",
            "description": "What its Jobs have",
            "priority": 1,
        },
        {
            "name": "Borrowed",
            "type": "string",
            "jsonPath": ".status.borrowed",
            "description": "What of that is not its own",
            "priority": 1,
        },
        {
            "name": "Lent",
            "type": "string",
            "jsonPath": ".status.lent",
            "description": "What others have of its own",
            "priority": 1,
        },
        {
            "name": "Share",
            "type": "string",
            "jsonPath": ".status.share",
            "description": "What it borrows of what can be lent, in thousandths, over its weight",
            "priority": 1,
        },
        {"name": "Finished", "type": "integer", "jsonPath": ".status.finished", "priority": 1},
        {"name": "Lost", "type": "string", "jsonPath": ".spec.onWorkerLost.action", "priority": 1},
        {"name": "Why", "type": "string", "jsonPath": ".status.head.message", "priority": 1},
    ]

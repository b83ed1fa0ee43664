"""Every reason that a user can meet on a Job, a WorkerCluster or a MirrorQueue: what it means, and what to do.

One table, from which the reference is made. A test holds it to the code: what is said there is here, and the other way
round.
"""

from typing import Final, NamedTuple


class Reason(NamedTuple):
    """One CamelCase word, in words."""

    means: str
    remedy: str


EVENTS: Final = {
    "Waiting": Reason(
        "The Job has no worker yet. The message names every worker of its queue, and why not that one.",
        "None if it only waits for room. Else see the reasons for waiting.",
    ),
    "Held": Reason(
        "The Job has the annotation multimirror.dev/hold: it is not placed, as its user asked.",
        "Remove the annotation, or set spec.suspend to false.",
    ),
    "Assigned": Reason("The Job was given to a worker; the message says which, and how it compared.", "None."),
    "Preempting": Reason(
        "Other Jobs are stopped so that this one can run; the message names them. It waits until their pods are gone.",
        "None. For what the Jobs of a queue may stop others: spec.preempts of the MirrorQueue.",
    ),
    "RoomKept": Reason(
        "The Job has waited as long as headWait of its queue says: what becomes free on the named worker is kept for "
        "it.",
        "None. It starts when there is enough, there or elsewhere.",
    ),
    "AssignmentRefused": Reason(
        "The management cluster does not let us write down where the Job goes: a policy or webhook, or a right "
        "that the dispatcher's account lacks. It waits, and is tried again.",
        "Put right what the message says; `multimirror run --check` compares the account's rights.",
    ),
    "Grown": Reason(
        "A running Job asked for more pods at once (spec.parallelism), and may have them: its queue's quota and its "
        "worker have room.",
        "None.",
    ),
    "TemplateChanged": Reason(
        "The pod template of a Job was changed after it had been given to a worker. What runs is what was counted, so "
        "the Job is taken from its worker, counted anew, and started again as another attempt.",
        "None. To change a Job without that, delete it and create it again.",
    ),
    "NotStarted": Reason(
        "The Job's pods were not all ready within the time that its queue allows (spec.start). The message says how "
        "many were not, and what they say where the worker lets us read that. It is taken back and tried on another "
        "worker; after as many attempts as the queue allows it is held.",
        "Put right what the pods say (an image, a node selector, a volume), then set spec.suspend to false.",
    ),
    "Refused": Reason(
        "A worker would not take the copy: a policy, a missing namespace, or a Job of that name that is not ours.",
        "None if another worker takes it; the one that refused is asked again after five minutes. Else put right on "
        "the worker what the message says.",
    ),
    "WorkerLost": Reason(
        "The Job's worker cannot be reached. The message says what happens, and when.",
        "Bring the worker back, or let the queue's onWorkerLost do what it says.",
    ),
    "FenceExpired": Reason(
        "The worker did not hear from us for as long as the queue's fence allows, and ended the copy itself. The Job "
        "is started again.",
        "None. If it comes often: a longer fence.timeout, or a better network.",
    ),
    "CopyVanished": Reason(
        "Somebody deleted the copy on the worker while it ran. The Job is started again, as another attempt.",
        "Find out who deletes Jobs there: a TTL of another tool, a person, a policy.",
    ),
    "CopyTerminating": Reason(
        "Somebody deleted the copy on the worker while it ran, and it is not gone yet. The Job waits for that, and is "
        "then started again (CopyVanished).",
        "Where it stays: see what keeps it there (its finalizers).",
    ),
    "Preempted": Reason(
        "The Job is stopped on its worker, and waits in its queue again: its room is needed (Reclaim, Priority, "
        "FairShare), its queue is drained (Drain), or its pods did not start (NotStarted). The first message says "
        "for whom and why, the second that its pods are gone.",
        "None. To keep it from being placed again, set the annotation multimirror.dev/hold to true.",
    ),
    "NotStopped": Reason(
        "The Job is to be stopped on its worker, and its pods stay longer than they may. If the worker has noticed, "
        "the copy is deleted there; no pod is forced to end. If it has not, it is waited for.",
        "Look at the pods there: what keeps them? Where the worker has not noticed: does its Job controller run?",
    ),
    "DeadlineKept": Reason(
        "The Job runs, and its activeDeadlineSeconds was raised or taken away, while room that it uses is kept for "
        "one that has waited for headWait. When there is room for that is reckoned by deadlines, so the copy keeps "
        "the one that it was placed with.",
        "Wait: it is granted when the other Job has been placed. Otherwise it ends as it said at first.",
    ),
    "CopyNotChanged": Reason(
        "A change of the Job (suspend, parallelism, deadline, completions) did not reach the copy: the worker refuses "
        "it, or changes it back.",
        "Look for a webhook or a policy on the worker that does this.",
    ),
    "StatusRefused": Reason(
        "What the worker says about the copy breaks the rules of the Job API, or this API server refused it. It was "
        "not written.",
        "Look at the copy on the worker: who writes its status?",
    ),
    "NotAdmitted": Reason(
        "The Job was on a worker without a queue that had admitted it there. It is taken away, and waits in its queue.",
        "None, if it had been placed by an older version. Otherwise find out who writes our annotations.",
    ),
    "EarlierCopyRemains": Reason(
        "The copy of an earlier attempt is still on a worker that was told to delete it, and may still run. It is "
        "waited for as the queue's onWorkerLost says.",
        "See what keeps it there (its finalizers), or take that worker out.",
    ),
    "ManagedByIgnored": Reason(
        "Another controller writes to this Job, although spec.managedBy names this one. It is not placed; one that was "
        "placed is suspended, and its copy deleted.",
        "API server and kube-controller-manager of the management cluster must know spec.managedBy: Kubernetes 1.32 or "
        "newer. Then create the Job again.",
    ),
    "NotManaged": Reason(
        "The Job asks for a queue, but spec.managedBy was not set when it was created. It runs on this cluster.",
        "Put admission in place (webhook or policies), then delete the Job and create it again.",
    ),
}
"""Events on Jobs of the management cluster, by reason."""

WAITING: Final = {
    "QueueMissing": Reason("There is no MirrorQueue of that name.", "Create it, or correct the Job's label."),
    "QuotaExceeded": Reason(
        "The queue runs as much as its quota allows.", "Wait, or raise the quota, or give the Job a higher priority."
    ),
    "CohortFull": Reason(
        "The queue may borrow what the Job asks for, but others of its cohort use it; the message names them.",
        "Wait, or let the queue's Jobs stop others (preempts), or raise quotas of the cohort.",
    ),
    "OthersFirst": Reason(
        "It would fit, but a Job that comes before it took what was left, or what is left is kept for one.",
        "Wait. The queue's weight decides how much of what is shared it has before others.",
    ),
    "WaitsForVictims": Reason(
        "Other Jobs are being stopped so that this one can run, and it goes first when they are gone; the message "
        "names them. Or it will fit when Jobs are gone that are being stopped for others.",
        "Wait: pods have their own time to stop (terminationGracePeriodSeconds).",
    ),
    "NobodyToStop": Reason(
        "The Job asks for no more than is left of its queue's own quota, but what others have of it cannot be taken "
        "back now: they are within their own quota, or must not be stopped.",
        "Wait; or see who runs: Jobs that were placed before quotas were changed keep what they have.",
    ),
    "Protected": Reason(
        "Jobs that could make room have not run as long as minRuntime of their queue says; the message names them.",
        "Wait, or shorten minRuntime of that queue.",
    ),
    "OwnQuotaOnly": Reason(
        'The Job is never to be stopped (multimirror.dev/preemptible: "false"), or was stopped three times while it '
        "borrowed. So it may use nothing but its queue's own quota, and that is in use.",
        "Wait, or raise quota.resources of the queue, or ask for less.",
    ),
    "Held": Reason(
        "The queue is held (spec.hold is Hold): nothing of it is placed, what runs goes on.",
        "Set spec.hold of the MirrorQueue to None.",
    ),
    "Draining": Reason(
        "The queue is drained (spec.hold is Drain): nothing of it is placed, and what ran is taken back.",
        "Set spec.hold of the MirrorQueue to None.",
    ),
    "Cycle": Reason(
        "Cohorts above the queue are each other's parents; the message names them. Nothing of the queue is placed.",
        "Change or remove spec.parent of one of them.",
    ),
    "NoWorkers": Reason(
        "The queue has no worker clusters.", "Correct spec.workers of the MirrorQueue, or label WorkerClusters."
    ),
    "Claimed": Reason(
        "There is room for it, but that is kept for a Job that has waited for long (headWait of its queue); the "
        "message names that one.",
        "Wait. With spec.activeDeadlineSeconds a Job goes ahead that is over before the other one can start.",
    ),
    "NoWorkerFits": Reason(
        "Every worker of the queue has a reason against it now; the message names them all.",
        "Wait for room, or put right what the message says (cordoned, not ready, no such namespace, ...).",
    ),
    "NeverFits": Reason(
        "The Job asks for more than the whole quota, than any worker has in all, for a resource that no worker has, or "
        "for clusters that are not its queue's. It holds up nobody behind it.",
        "Ask for less or for others, or add a larger worker, or raise the quota.",
    ),
    "GrowthWaits": Reason(
        "The Job runs, and asks for more pods at once than were reserved for it (spec.parallelism was raised). There "
        "is no room for them now; it keeps what it has, and holds up nobody.",
        "Wait, or ask for less, or raise the quota.",
    ),
    "GrowthNeverFits": Reason(
        "The Job runs, and asks for more pods at once than the whole quota, or its worker, has room for. It keeps what "
        "it has.",
        "Ask for less, or raise the quota.",
    ),
    "BlockedByQueue": Reason(
        "The queue is strict (StrictFIFO), and a Job before this one waits for quota, or for room on a worker.",
        "Wait, or set queueingStrategy to BestEffortFIFO.",
    ),
    "Invalid": Reason(
        "A label or annotation of the Job cannot be read, its namespace may not use the queue, or it is larger than "
        "the operator allows.",
        "Correct what the message names.",
    ),
}
"""Why a Job waits: in the event Waiting, and as status.head.reason of its MirrorQueue."""

CONDITIONS: Final = {
    "Ready": Reason("The worker takes Jobs; the queue can be used.", "None."),
    "Connected": Reason("The worker answers, and our caches of it are filled.", "None."),
    "Connecting": Reason("The worker was not tried yet.", "Wait a moment."),
    "Reconnecting": Reason("Its credentials or its settings have changed.", "Wait a moment."),
    "Cordoned": Reason("The worker takes no new Jobs, as spec.cordoned says.", "`multimirror uncordon NAME`."),
    "Cycle": Reason(
        "Cohorts are each other's parents, directly or not; the message names them. Their queues place nothing.",
        "Change or remove spec.parent of one of them.",
    ),
    "JobsDoNotStart": Reason(
        "Three Jobs that ask for different things did not start on the worker one after the other. It gets one Job at "
        "a time until one starts.",
        "See what their events NotStarted say: a registry, nodes or volumes that cannot be used there?",
    ),
    "Held": Reason(
        "Nothing of the queue is placed, as its spec.hold says; since when, lastTransitionTime says. Only while it is.",
        "Set spec.hold of the MirrorQueue to None.",
    ),
    "Hold": Reason("Reason of the condition Held: what runs goes on.", "See Held."),
    "Drain": Reason("Reason of the condition Held: what ran is taken back.", "See Held."),
    "Borrowing": Reason(
        "The queue uses more than its own quota; the message says of what, how much, and who would take it back first. "
        "Also an event on the MirrorQueue, when it begins to.",
        "None. To have it for sure, raise quota.resources of the queue.",
    ),
    "WithinQuota": Reason(
        "Reason of the conditions Borrowing and Overused: the queue uses no more than its own, or than it may have.",
        "None.",
    ),
    "QuotaLowered": Reason(
        "Reason of the condition Overused: the queue, or its cohort, uses more than it may have, since quota was taken "
        "away. Nothing is stopped for that; nothing more is placed until less is used.",
        "None, or raise the quota, or delete Jobs.",
    ),
    "InvalidSpec": Reason("The spec cannot be read; the message names the field.", "Correct it."),
    "KubeconfigMissing": Reason("The Secret, its key or the file is not there.", "Create it; it is followed at once."),
    "KubeconfigRefused": Reason(
        "The kubeconfig is not self-contained (it names files, programs or proxies, or switches TLS verification off).",
        "Make one with a token or a client certificate inline; `multimirror join` does.",
    ),
    "SameCluster": Reason(
        "It shows the identity (status.identity) that was recorded for another WorkerCluster before.",
        "Delete one of the two. If it is another cluster in truth, whoever runs it lies about that.",
    ),
    "Misbehaving": Reason(
        "The worker sent more, or larger things, than our Jobs there explain; the message says what. It is left alone "
        "for a while, longer each time, also after a restart; its Jobs follow onWorkerLost.",
        "Find out what answers at its address. Another kubeconfig is tried at once, and so is a worker whose "
        "status.misbehaviour was removed.",
    ),
    "OverBudget": Reason("Reason of the condition Misbehaving: it has done so, lately.", "See Misbehaving."),
    "PermissionDenied": Reason(
        "The account lacks rights on the worker; the message lists them.", "Apply deploy/worker there."
    ),
    "Unreachable": Reason("No connection: refused, no route, name unknown.", "Check address and network."),
    "TimedOut": Reason("No answer in time.", "Check the network, and the load of the worker's API server."),
    "ServerError": Reason("The worker's API server failed.", "Look at the worker's control plane."),
    "BadAnswer": Reason(
        "What answers is no API server: a login page, a redirect, broken JSON.", "Check the address in the kubeconfig."
    ),
    "Unauthorized": Reason("The credentials are wrong or have expired.", "Make new ones; `multimirror join` again."),
    "Forbidden": Reason("The account may not even look.", "Apply deploy/worker there."),
    "Renewed": Reason("The worker's token is renewed before it ends.", "None."),
    "RenewalFailed": Reason(
        "The worker's token could not be renewed, which is tried again each minute; the message says when it ends.",
        "Join it again: `multimirror join NAME --kubeconfig ... --new-token` repairs rights and token.",
    ),
    "InternalError": Reason("Something unexpected; the log has the trace.", "Report it, please."),
}
"""Reasons of the conditions Connected, Ready, Misbehaving, TokenRenewed, Held, Borrowing, Overused. Other errors of a
worker have their own names."""

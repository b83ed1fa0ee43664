"""The demonstration: a whole fleet on this machine, a few dozen Jobs, and a worker that is cut off in the middle.

Everything in it is the real thing: clusters with a Kubernetes API each, admission by webhook, the dispatcher with its
own connections to the workers, Jobs run by a Job controller. Only the time that simulated pods take is made up. What is
shown and counted is read from the clusters, not remembered.

    workload    the Jobs, the CronJob and the queues
    scene       what the clusters say, as a picture and as happenings
    view        a picture as lines of text, for a screen of any size
    showing     on a terminal, live; or line by line
    story       what is done to the fleet, and when
    counting    what became of the Jobs
"""

from clusters.demonstration.story import demo

__all__ = ["demo"]

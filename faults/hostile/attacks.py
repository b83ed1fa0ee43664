"""What a hostile tenant does, as data: everything that the rights to Jobs and CronJobs of one namespace allow.

create          one Job: of any sort, size, queue and priority; with annotations, labels, finalizers and owners that
                are not its to give; by name, or by generateName
burst           many at once, of one pod each
cron            a CronJob that makes one every minute
relabel         into another queue, or none; another priority
suspend, resume, resize, shrink (requests while it is suspended, then resumed), rewrite (the template)
annotate        as if it were placed elsewhere, admitted elsewhere, or smaller than it is
label           as if it were a copy
finalize        a finalizer that nobody removes; release takes it away again
own             an owner that is not there
status          as if it were finished
replace, apply  the whole object, with PUT and by server-side apply
delete          in any of the three ways; delete_all: the collection
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DOINGS: Final = (
    "create",
    "create",
    "create",
    "burst",
    "flood",
    "storm",
    "cron",
    "relabel",
    "relabel",
    "suspend",
    "resume",
    "resize",
    "resize",
    "shrink",
    "rewrite",
    "annotate",
    "label",
    "finalize",
    "release",
    "own",
    "status",
    "replace",
    "apply",
    "delete",
    "delete_all",
)


@dataclass(frozen=True, slots=True)
class Attack:
    """One thing that the tenant does."""

    at: float
    do: str
    name: str = ""
    """Of the Job that it does it to."""
    value: int = 0
    """By which it varies: what is drawn from it is the attacker's own chance."""

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  ATTACK {self.do} {self.name} ({self.value})"


def choose(chance: random.Random, *, until: float = 30.0, count: tuple[int, int] = (20, 60)) -> Sequence[Attack]:
    """The attacks of one tenant: a mixture, or the same one over and over."""
    total = chance.randint(*count)
    names = [f"evil-{number}" for number in range(max(3, total // 4))]
    favourite = chance.choice(DOINGS) if chance.random() < 0.3 else None
    found = [
        Attack(
            round(chance.uniform(0, until), 2),
            favourite if favourite is not None and chance.random() < 0.6 else chance.choice(DOINGS),
            chance.choice(names),
            chance.getrandbits(32),
        )
        for _ in range(total)
    ]
    bursts = [each for each in found if each.do == "burst"][2:]  # each costs us as much as all the rest
    bursts += [each for each in found if each.do == "flood"][1:]
    creates = [Attack(round(chance.uniform(0, until / 2), 2), "create", name, chance.getrandbits(32)) for name in names]
    return tuple(sorted([*creates, *(each for each in found if each not in bursts)], key=lambda attack: attack.at))

"""All promises, checked on a record. Each check is a pure function from the record and the rules to violations.

    I1  one copy at a time          I6  nothing stays behind
    I2  nothing after the end       I7  every Job ends, or says why not
    I3  the status rules            I8  one sick worker does not slow the others
    I4  original and copy agree     I9  true caches, true leaders
    I5  hands off what is not ours  I10 controllers come back, and stay

    P1  quota holds                 P6  few are stopped for others, and none who must not be
    P2  own quota is safe           P11 pods go first
    P3  workers hold what they can

I10, that a crash changes nothing, is all of them on a run with crashes; what stands alone is that no controller dies by
itself. Checks about the end of a run (I4, I6, I7 and `end`) assume that it has come to rest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from faults import conduct, copies, fencing, preemptions, quotas, statuses
from faults.record import Record
from faults.rules import Rules, Violation

Check = Callable[[Record, Rules], Iterator[Violation]]

ALWAYS: Final[Mapping[str, Check]] = {
    "I1 one copy at a time": copies.one_copy_at_a_time,
    "I1 never in two places, with a fence": fencing.never_in_two_places,
    "I2 nothing after the end": copies.finished_jobs_start_nothing,
    "I3 the status rules": statuses.statuses_follow_the_rules,
    "I5 hands off what is not ours": copies.others_are_left_alone,
    "I8 healthy workers are served": conduct.healthy_workers_are_served,
    "I8 workers that answer are not lost": conduct.workers_that_answer_are_not_lost,
    "I8 nobody is hammered": conduct.nobody_is_hammered,
    "I9 nothing before the caches": conduct.nothing_before_the_caches,
    "I9 no work is thrown away": conduct.no_work_is_thrown_away,
    "I9 leaders alone write": conduct.leaders_alone_write,
    "I10 controllers stay up": conduct.controllers_stay_up,
    "P1 to P3 quota holds": quotas.quota_holds,
    "P2 own quota is safe": quotas.own_quota_is_safe,
    "P6 few are stopped": preemptions.few_are_stopped,
    "P11 pods go first": preemptions.pods_go_first,
}
AT_REST: Final[Mapping[str, Check]] = {
    "I4 original and copy agree": statuses.original_and_copy_agree,
    "I6 nothing stays": copies.nothing_stays,
    "I7 every Job ends or says why not": statuses.every_job_ends_or_says_why_not,
    "end": statuses.jobs_end_as_they_should,
}


def check(record: Record, rules: Rules, checks: Iterable[Check] | None = None) -> list[Violation]:
    """Everything that is wrong, invariants that the run waives aside."""
    chosen = checks if checks is not None else [*ALWAYS.values(), *AT_REST.values()]
    return [found for each in chosen for found in each(record, rules) if found.invariant not in rules.waived]


def at_rest(record: Record, rules: Rules) -> list[Violation]:
    """What is not yet as it must be at the end; empty when the run has come to rest."""
    return check(record, rules, AT_REST.values())

"""Who has what of the quota, and of whom: own, used, borrowed, lent, shares, at one moment. Pure.

Counted from what queues use, in small steps (`count` gives a checkpoint after each), because there may be a thousand
queues in one cohort. Then the view of each is made when it is asked for.

What is borrowed inside a cohort is first out of the cohort's own pool, then out of what its members leave over, then
out of the rest of the tree. Nobody can say whose unused part a Job runs on, so members lend in proportion to what they
have left and may lend. Whole amounts stay whole: of 8 devices from three queues one lends 2 and two lend 3.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Final

from multimirror.api import CohortSpec, MirrorQueueSpec, Preempts
from multimirror.kinds.pod_sets import Amounts, nanos, quantities_of
from multimirror.observe.fair_shares import FairShares
from multimirror.observe.sharing import Overuse, QuotaView
from multimirror.scheduling.past_use import NO_PAST, PastUses, members, part_used
from multimirror.scheduling.quota import Node, QuotaTree, QuotaUsage
from multimirror.scheduling.shares import Share, share

_STEP: Final = 64
_MOST_RESOURCES: Final = 32
_NATIVE: Final = ("cpu", "memory", "pods", "ephemeral-storage")
_UNITS: Final = (nanos(2**30), nanos(2**20), nanos(1), nanos(1) // 1000, 1)
_ROUNDING: Final = 1e-6


class Quotas:
    """Of all queues and cohorts. Nothing is known before `count` has come to its end."""

    def __init__(
        self,
        queues: Mapping[str, MirrorQueueSpec],
        cohorts: Mapping[str, CohortSpec],
        *,
        before: "Quotas | None" = None,
    ) -> None:
        """`before`: what was counted before; its trees are taken if they still are the same."""
        self._of = dict(queues), dict(cohorts)  # specs that are the same are the same objects: comparing them is quick
        self._tree: QuotaTree = before._tree if before is not None and before._of == self._of else QuotaTree(*self._of)
        self._usage = QuotaUsage(self._tree)
        self._has: dict[str, Amounts] = {}
        self._jobs: dict[str, int] = {}
        self._totals: list[dict[str, int]] = [{} for _ in self._tree.nodes]
        """By cohort: what all queues below it use."""
        self._owns: list[dict[str, int]] = [{} for _ in self._tree.nodes]
        """By cohort: what it and all below it have of their own."""
        self._lent: list[dict[str, int]] = [{} for _ in self._tree.nodes]
        self._lenders: list[dict[str, Node]] = [{} for _ in self._tree.nodes]
        """By cohort: the member that lends most, of those that may take it back."""
        self._fair = FairShares(self._tree)
        self._past = NO_PAST

    def count(self, usage: Callable[[str], tuple[int, Amounts]], waiting: Mapping[str, Amounts]) -> Iterator[None]:
        """Once. `usage`: the Jobs of a queue that have a worker, and what they have; `waiting`: what others ask for."""
        nodes = self._tree.nodes
        for number, (name, queue) in enumerate(self._tree.queues.items(), 1):
            self._jobs[name], self._has[name] = usage(name)
            self._usage.add(name, self._has[name])
            self._fair.want(queue, self._has[name], waiting.get(name, {}))
            if number % _STEP == 0:
                yield None
        for number, node in enumerate(reversed(nodes), 1):
            self._sum_up(node)
            if number % _STEP == 0:
                yield None
        for cohort in nodes:
            if not cohort.is_queue:
                for resource in cohort.quotas:
                    self._lend(cohort, resource)
                    self._fair.deal(cohort, resource)
                    yield None

    def observe(self, past: PastUses, now: float) -> Iterator[None]:
        """What everybody uses becomes a part of what was used; after `count`, where that counts at all."""
        if self._tree.decays:
            yield from past.observe(((node, part_used(self._usage, node)) for node in members(self._tree)), now)
            self._past = past.observed(now)

    def queue(self, name: str) -> QuotaView | None:
        """None where there is no such queue, or it was not counted yet."""
        node, has = self._tree.queues.get(name), self._has.get(name)
        if node is None or has is None:
            return None
        shares = node.parent is not None
        own = {each: quota.own for each, quota in node.quotas.items()}
        jobs = self._of[0][name].quota.jobs
        found = share(self._usage, node)
        told = _told(node, has)
        return QuotaView(
            own=quantities_of(_some(own, told)),
            used=quantities_of(_some(has, told)),
            borrowed=quantities_of(_some(self._borrowed(node), told)),
            lent=quantities_of(_some(self._lent[node.index], told)),
            lenders=dict(self._first_lenders(node)),
            counted=tuple(each for each in told if each in node.quotas),
            shares=shares,
            share=found.thousandths,
            fair_share=self._fair_share(node, found) if shares else None,
            overused=(*self._too_many_jobs(name, jobs), *self._overuse(node)),
            limited=bool(node.quotas) or jobs is not None,
            past_use=self._past.written(node),
        )

    def cohort(self, name: str) -> QuotaView | None:
        """None where there is none, or it leads to a cycle."""
        node = self._tree.cohorts.get(name)
        if node is None:
            return None
        told = _told(node, self._totals[node.index])
        return QuotaView(
            own=quantities_of(_some(self._owns[node.index], told)),
            used=quantities_of(_some(self._totals[node.index], told)),
            borrowed=quantities_of(_some(self._borrowed(node), told)),
            lent=quantities_of(_some(self._lent[node.index], told)),
            counted=told,
            shares=node.parent is not None,
            share=share(self._usage, node).thousandths,
            past_use=self._past.written(node),
        )

    def _sum_up(self, node: Node) -> None:
        index = node.index
        owns, totals = self._owns[index], self._totals[index]
        for name, quota in node.quotas.items():
            if quota.own:
                owns[name] = owns.get(name, 0) + quota.own
        if node.is_queue:
            has = self._has[node.name]
            totals |= {name: has[name] for name in node.quotas if has.get(name)}
        else:
            self._fair.count_wants(node)
        if node.parent is not None:
            for mine, above in ((owns, self._owns), (totals, self._totals)):
                into = above[node.parent.index]
                for name, amount in mine.items():
                    into[name] = into.get(name, 0) + amount

    def _lend(self, cohort: Node, resource: str) -> None:
        """What each member lends; after it is known what the cohort as a whole does."""
        members = [child for child in cohort.children if resource in child.quotas]
        over = [self._usage.over(child, resource) for child in members]
        left = [
            max(0, min(-above, child.quotas[resource].subtree - child.quotas[resource].local))
            for child, above in zip(members, over, strict=True)
        ]
        out = self._lent[cohort.index].get(resource, 0)
        wanted = out + sum(max(0, above) for above in over) - cohort.quotas[resource].own
        most = 0
        for child, part in zip(members, in_proportion(min(wanted, sum(left)), left), strict=True):
            if part:
                self._lent[child.index][resource] = part
            if part > most and (not child.is_queue or Preempts.RECLAIM in self._of[0][child.name].preempts):
                most, self._lenders[cohort.index][resource] = part, child

    def _first_lenders(self, queue: Node) -> Iterator[tuple[str, str]]:
        """Of each resource that a queue borrows: the nearest one that lends most, and may take it back."""
        for resource in self._borrowed(queue):
            found = (self._lenders[cohort.index].get(resource) for cohort in queue.path[1:])
            lender = next((each for each in found if each is not None and each not in queue.path), None)
            while lender is not None and not lender.is_queue:
                lender = self._lenders[lender.index].get(resource)
            if lender is not None:
                yield resource, lender.name

    def _borrowed(self, node: Node) -> dict[str, int]:
        if node.parent is None:
            return {}
        return {name: over for name in node.quotas if (over := self._usage.over(node, name)) > 0}

    def _fair_share(self, node: Node, now: Share) -> int | None:
        """Of the resource of which it borrows most; if it does not, of the one of which least is due to it."""
        assert node.parent is not None
        totals = node.parent.quotas
        parts = {name: due / totals[name].most for name, due in self._fair.due(node).items() if totals[name].most > 0}
        if not parts:
            return None
        part = parts[now.resource] if now.resource in parts else min(parts.values())
        return int(1000 * part + _ROUNDING)

    def _overuse(self, queue: Node) -> Iterator[Overuse]:
        for name in sorted(queue.quotas):
            for node in queue.path:
                quota, used = node.quotas[name], self._usage.used(node, name)
                if node.parent is not None and quota.borrow is None:
                    continue
                most = quota.subtree + (quota.borrow or 0)
                if used > most and (node is queue or self._usage.over(queue, name) > 0):
                    yield Overuse(name, _decimal(used), _decimal(most), "" if node is queue else node.name)
                    break

    def _too_many_jobs(self, queue: str, most: int | None) -> Iterator[Overuse]:
        jobs = self._jobs[queue]
        if most is not None and jobs > most:
            yield Overuse("", Decimal(jobs), Decimal(most))


def in_proportion(total: int, sizes: Sequence[int]) -> list[int]:
    """A total in as many parts, each relative to its size and no larger; whole amounts where all are whole."""
    if total <= 0:
        return [0] * len(sizes)
    unit = next(unit for unit in _UNITS if total % unit == 0 and all(size % unit == 0 for size in sizes))
    whole = sum(sizes) // unit
    ends = [total // unit * (reached // unit) // whole for reached in accumulate(sizes)]
    return [(end - start) * unit for start, end in zip([0, *ends], ends, strict=False)]


def _told(node: Node, used: Amounts) -> tuple[str, ...]:
    """The resources that are worth telling of: those that count, and what everybody has."""
    return tuple(dict.fromkeys((*sorted(node.quotas), *(name for name in _NATIVE if name in used))))[:_MOST_RESOURCES]


def _some(amounts: Amounts, names: Sequence[str]) -> dict[str, int]:
    return {name: amounts[name] for name in names if name in amounts}


def _decimal(amount: int) -> Decimal:
    return Decimal(amount).scaleb(-9)

"""The planner's request as sorted lists, with derived facts that every goal needs.

Made once per plan.  Sorting here is what makes a plan independent of the order of its input.
Source of the rack rules: the protocol's rule for rack-aware placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId, TopicId
from plimsoll_core.phrasing import NAMED_AT_MOST, counted
from plimsoll_core.planner.outcome import Skipped
from plimsoll_core.planner.placement import EXPLICIT, RackPolicy, Row, rack_need, racks_missing
from plimsoll_core.planner.preferred_leaders import Leadership, Seats
from plimsoll_core.planner.replica_layout import Layout, Opening
from plimsoll_core.planner.request import PlanPartition, PlanTopic, Request

Rows = list[list[BrokerId]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The facts of a request that every goal needs, in lists with an entry for each partition,
    ordered by topic name and index.

    `home` are the replicas of today. `topic_of` is the position of the partition's topic in
    `topics`. `free` is True unless its topic is Explicit. `usable` are the brokers that may get
    replicas, `known` all of the request. `racks` is None if racks are ignored.
    """

    partitions: Sequence[PlanPartition]
    home: Sequence[Row]
    topics: Sequence[PlanTopic]
    topic_of: Sequence[int]
    free: Sequence[bool]
    usable: Sequence[BrokerId]
    known: AbstractSet[BrokerId]
    racks: Mapping[BrokerId, str] | None
    rack_policy: RackPolicy

    def rows(self) -> Rows:
        return [list(row) for row in self.home]

    def name(self, p: int) -> str:
        return f"{self.topics[self.topic_of[p]].name}-{self.partitions[p].index}"

    def layout(
        self,
        rows: Rows,
        *,
        receivers: Sequence[BrokerId],
        free: Sequence[bool],
        barred: Mapping[int, AbstractSet[BrokerId]] | None = None,
        needs_of: Sequence[Row] | None = None,
    ) -> Layout:
        """Return a layout that balances `rows`, in place, over `receivers`. `free` and `barred` are
        those of `Opening`. `needs_of` are the rows that determine how many racks each partition
        keeps and from which broker it is copied; None means the rows of today."""
        need = self._needs(rows, receivers, barred or {}, needs_of or self.home)
        return Layout(
            Opening(
                rows=rows,
                home=self.home,
                leaders=[row[0] for row in (needs_of or self.home)],
                topics=self.topic_of,
                free=free,
                receivers=receivers,
                racks=self.racks,
                need=need,
                barred=barred or {},
            )
        )

    def _needs(
        self,
        rows: Rows,
        receivers: Sequence[BrokerId],
        barred: Mapping[int, AbstractSet[BrokerId]],
        needs_of: Sequence[Row],
    ) -> list[int]:
        if self.racks is None:
            return []
        needs = []
        for p, row in enumerate(rows):
            candidates = [b for b in receivers if b not in barred[p]] if p in barred else receivers
            needs.append(rack_need(needs_of[p], row, self.racks, candidates))
        return needs

    def leadership(
        self, rows: Rows, *, free: Sequence[bool], receivers: Sequence[BrokerId] | None = None
    ) -> Leadership:
        return Leadership(
            Seats(
                rows=rows,
                first=[row[0] for row in self.home],
                topics=self.topic_of,
                free=free,
                receivers=self.usable if receivers is None else receivers,
            )
        )

    def skipped(self, leaving: frozenset[BrokerId] = frozenset()) -> tuple[Skipped, ...]:
        """Return the Explicit topics, which the plan does not change. Each says how many of its
        replicas are on the brokers in `leaving`."""
        left: Counter[TopicId] = Counter()
        for partition, free in zip(self.partitions, self.free, strict=True):
            left[partition.topic_id] += 0 if free else len(leaving.intersection(partition.replicas))
        return tuple(
            skipped(topic, left[topic.id]) for topic in self.topics if topic.strategy == EXPLICIT
        )


def skipped(topic: PlanTopic, left_behind: int = 0) -> Skipped:
    stay = (
        f"; {counted(left_behind, 'replica')} stay on brokers to be emptied" if left_behind else ""
    )
    return Skipped(
        topic_id=topic.id,
        topic=topic.name,
        reason="ExplicitPlacement",
        message=(
            f"Topic {topic.name} has an explicit placement, so the Rebalance does not move it"
            f"{stay}. To move it, change spec.placement.assignment of its Topic object."
        ),
    )


def survey(request: Request) -> Survey | Refusal:
    topics = sorted(request.topics, key=lambda topic: (topic.name, topic.id))
    number = {topic.id: n for n, topic in enumerate(topics)}
    assert len(number) == len(topics), "a topic is given twice"
    partitions = sorted(request.partitions, key=lambda each: (number[each.topic_id], each.index))
    assert len({each.key for each in partitions}) == len(partitions), "a partition is given twice"
    racks = _racks(request)
    if isinstance(racks, Refusal):
        return racks
    topic_of = [number[each.topic_id] for each in partitions]
    return Survey(
        partitions=partitions,
        home=[each.replicas for each in partitions],
        topics=topics,
        topic_of=topic_of,
        free=[topics[n].strategy != EXPLICIT for n in topic_of],
        usable=sorted(broker.id for broker in request.brokers if broker.usable),
        known=frozenset(broker.id for broker in request.brokers),
        racks=racks,
        rack_policy=request.rack_policy,
    )


def _racks(request: Request) -> dict[BrokerId, str] | Refusal | None:
    """Return the racks of the brokers. Return None if racks are ignored: by the policy, because a
    usable broker has none, or because there is only one. Refuse if racks are required and a usable
    broker has none."""
    if request.rack_policy == "Ignored":
        return None
    without = sorted(each.id for each in request.brokers if each.usable and each.rack is None)
    if without and request.rack_policy == "Required":
        return racks_missing(without, NAMED_AT_MOST)
    racks = {broker.id: broker.rack for broker in request.brokers if broker.rack is not None}
    if without or len(set(racks.values())) < 2:
        return None
    return racks


def leader_counts(rows: Sequence[Sequence[BrokerId]]) -> Counter[BrokerId]:
    return Counter(row[0] for row in rows)


def replica_counts(rows: Sequence[Sequence[BrokerId]]) -> Counter[BrokerId]:
    return Counter(broker for row in rows for broker in row)


def new_copies(before: Sequence[Row], after: Sequence[Sequence[BrokerId]]) -> int:
    """Return the number of replicas in `after` on brokers that had none of the partition in
    `before`."""
    return sum(len(set(row) - set(old)) for old, row in zip(before, after, strict=True))


def shares(
    partition: PlanPartition, row: Sequence[BrokerId]
) -> Iterator[tuple[BrokerId, tuple[float, float, float]]]:
    """Yield the broker of each replica with the load that it brings: bytes on disk, and bytes in
    and out per second. Each replica is stored and written; the leader sends to consumers and to its
    followers. What is unknown counts as 0."""
    size, came = float(partition.size_bytes or 0), partition.bytes_in or 0.0
    sent = (partition.bytes_out or 0.0) + came * (len(row) - 1)
    for position, broker in enumerate(row):
        yield broker, (size, came, 0.0 if position else sent)

"""ProposalQueue: holds the newest ISR proposal of each partition led here, until it is sent.

The replica manager adds proposals; `reporting.isr_proposals` takes and sends them. The replica
decides whether an answer counts and whether to send again.

`SeenShrinks`: counts the replicas that left ISRs led here, by cause as far as a broker can tell.
The replica manager reports images, changed partitions and proposals. A follower that fell behind is
counted when its leader proposes to remove it, even if no controller can commit that; other replicas
are counted when the metadata show that they left. The operator counts the same from the records,
which name more causes: a broker knows of no evictions and of no other broker's disk.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_core.cluster.isr_shrinks import Left, ShrinkCause, covered_by, seen_in_images
from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.requests import IsrProposal


class SeenShrinks:
    """Counts the replicas that left ISRs led here. `counts`: by broker and cause; never falls."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id
        self.counts: Counter[Left] = Counter()
        # The newest image, and the one before it.
        self._image: ClusterImage | None = None
        self._before: ClusterImage | None = None
        # By broker: the broker epoch in which it was last active. A later one began with a restart.
        self._lifetimes: dict[BrokerId, BrokerEpoch] = {}
        # Drops that were proposed here and are counted.
        self._proposed: set[tuple[PartitionKey, BrokerId]] = set()

    def update(self, image: ClusterImage) -> None:
        """Record a new metadata image. Then the caller reports each changed partition."""
        self._before, self._image = self._image or image, image
        if self._before.brokers is image.brokers and self._lifetimes:
            return
        for broker in image.brokers.values():
            if broker.active:
                self._lifetimes[broker.id] = broker.broker_epoch
        for broker_id in self._lifetimes.keys() - image.brokers.keys():
            del self._lifetimes[broker_id]

    def proposed(self, partition: Partition, leaving: Iterable[BrokerId]) -> None:
        """Count the followers to be removed from the ISR; each once until the partition changes."""
        for broker_id in leaving:
            mark = (partition.key, broker_id)
            if mark in self._proposed or self._image is None:
                continue
            self._proposed.add(mark)
            cause = covered_by(self._image, partition, broker_id) or ShrinkCause.LAG
            self.counts[Left(broker_id=broker_id, cause=cause)] += 1

    def applied(self, before: Partition, after: Partition) -> None:
        """Count replicas that left the ISR between two states, except those `proposed` counted."""
        if self._image is None or self._before is None:
            return
        if after.leader == self._broker_id:
            for left in seen_in_images(self._before, self._image, before, after):
                if (after.key, left.broker_id) not in self._proposed:
                    self.counts[self._told(left)] += 1
        self.dropped(before)

    def dropped(self, partition: Partition) -> None:
        """Forget the removals proposed for this partition: it has changed or is dropped."""
        for broker_id in partition.replicas if self._proposed else ():
            self._proposed.discard((partition.key, broker_id))

    def _told(self, left: Left) -> Left:
        """Return `left`, with RESTART for FENCED if the broker has a new broker epoch since."""
        assert self._image is not None
        broker = self._image.brokers.get(left.broker_id)
        known = self._lifetimes.get(left.broker_id)
        began_anew = broker is not None and known is not None and broker.broker_epoch != known
        if left.cause is ShrinkCause.FENCED and began_anew:
            return Left(broker_id=left.broker_id, cause=ShrinkCause.RESTART)
        return left


class Proposed(NamedTuple):
    """An ISR proposal, and the partition that it is about."""

    hosted: Hosted
    proposal: IsrProposal


class ProposalQueue:
    """Holds ISR proposals until `reporting.isr_proposals` sends them to the controller. It has at
    most one for each partition, the newest."""

    def __init__(self, traffic: Traffic, shrinks: SeenShrinks) -> None:
        self._traffic = traffic
        self._shrinks = shrinks
        self._waiting: dict[PartitionKey, Proposed] = {}
        self._arrived = asyncio.Event()

    def add(self, hosted: Hosted, proposal: IsrProposal) -> None:
        """Queue a replica's new ISR proposal in place of an earlier one of the partition, and count
        for the metrics the replicas that it removes, and the proposal if it adds any."""
        partition = hosted.replica.partition
        stay = {member.broker_id for member in proposal.new_isr}
        if stay - set(partition.isr):
            self._traffic.isr_expands += 1
        self._shrinks.proposed(partition, (b for b in partition.isr if b not in stay))
        self.put_back(hosted, proposal)

    def put_back(self, hosted: Hosted, proposal: IsrProposal) -> None:
        """Queue a proposal to be sent again, without counting it."""
        self._waiting[hosted.key] = Proposed(hosted, proposal)
        self._arrived.set()

    async def wait(self) -> None:
        """Wait until the queue has a proposal."""
        await self._arrived.wait()

    def take(self, count_max: int) -> list[Proposed]:
        """Remove and return the oldest proposals, at most `count_max`; an empty list if there is
        none."""
        taken = [self._waiting.pop(key) for key in list(self._waiting)[:count_max]]
        if not self._waiting:
            self._arrived.clear()
        return taken

"""ProposalQueue: the newest ISR proposal of each partition led here, until it is sent.

The replica manager adds proposals; `reporting.isr_proposals` takes and sends them. The replica
decides whether an answer counts and whether to send again.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.replication.seen_shrinks import SeenShrinks
from plimsoll_broker.replication.traffic import Traffic
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.messages.requests import IsrProposal


class Proposed(NamedTuple):
    """A proposal, and the partition whose leader made it."""

    hosted: Hosted
    proposal: IsrProposal


class ProposalQueue:
    """Owned by the replica manager. It never has more entries than there are partitions."""

    def __init__(self, traffic: Traffic, shrinks: SeenShrinks) -> None:
        self._traffic = traffic
        self._shrinks = shrinks
        self._waiting: dict[PartitionKey, Proposed] = {}
        self._arrived = asyncio.Event()

    def add(self, hosted: Hosted, proposal: IsrProposal) -> None:
        """Add and count a proposal that a replica has just made."""
        partition = hosted.replica.partition
        stay = {member.broker_id for member in proposal.new_isr}
        if stay - set(partition.isr):
            self._traffic.isr_expands += 1
        self._shrinks.proposed(partition, (b for b in partition.isr if b not in stay))
        self.put_back(hosted, proposal)

    def put_back(self, hosted: Hosted, proposal: IsrProposal) -> None:
        """Queue a proposal to be sent again."""
        self._waiting[hosted.key] = Proposed(hosted, proposal)
        self._arrived.set()

    async def wait(self) -> None:
        """Wait until there is a proposal."""
        await self._arrived.wait()

    def take(self, count_max: int) -> list[Proposed]:
        """Pop the oldest proposals."""
        taken = [self._waiting.pop(key) for key in list(self._waiting)[:count_max]]
        if not self._waiting:
            self._arrived.clear()
        return taken

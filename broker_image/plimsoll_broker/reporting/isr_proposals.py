"""Leaders' proposed in-sync sets on their way to the controller, many partitions to a request.

The driver hands proposals over; one task sends them and gives the answers back to the replicas.
Whether an answer counts, and whether to send again, is the replica's to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from plimsoll_broker.control.client import NoController
from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.requests import (
    AllocateProducerIds,
    AlterPartition,
    Answer,
    IsrProposal,
    PartitionAnswer,
    PartitionsAnswer,
    Refused,
)

logger = logging.getLogger("plimsoll.proposals")

RESEND_MS = 200
PROPOSALS_MAX = 5_000


class ProposalTarget(Protocol):
    """Who sends proposals on."""

    def command(
        self, request: AlterPartition | AllocateProducerIds, timeout_ms: int = ...
    ) -> Awaitable[Answer]: ...


class ProposalSender:
    """At most one request in flight; newer proposals gather meanwhile, one per partition."""

    def __init__(
        self,
        controller: ProposalTarget,
        sender: Callable[[], tuple[BrokerId, BrokerEpoch]],
        answered: Callable[[Hosted, IsrProposal, PartitionAnswer | None], bool],
    ) -> None:
        self._controller = controller
        self._sender = sender
        self._answered = answered
        self._waiting: dict[PartitionKey, tuple[Hosted, IsrProposal]] = {}
        self._arrived = asyncio.Event()

    def propose(self, hosted: Hosted, proposal: IsrProposal) -> None:
        self._waiting[hosted.key] = (hosted, proposal)
        self._arrived.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._arrived.wait()
            batch = [self._waiting.pop(key) for key in list(self._waiting)[:PROPOSALS_MAX]]
            if not self._waiting:
                self._arrived.clear()
            if not await self._send(batch):
                await asyncio.sleep(RESEND_MS / 1000)

    async def _send(self, batch: list[tuple[Hosted, IsrProposal]]) -> bool:
        """False: some of it must be sent again, but not at once."""
        broker_id, broker_epoch = self._sender()
        request = AlterPartition(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            proposals=tuple(proposal for _, proposal in batch),
        )
        answers = await self._ask(request)
        settled = True
        for hosted, proposal in batch:
            answer = answers.get(hosted.key)
            if self._answered(hosted, proposal, answer):
                self.propose(hosted, proposal)
                settled = False
        return settled

    async def _ask(self, request: AlterPartition) -> dict[PartitionKey, PartitionAnswer]:
        try:
            answer = await self._controller.command(request)
        except NoController as error:
            logger.warning("%d proposals unanswered: %s", len(request.proposals), error)
            return {}
        match answer:
            case PartitionsAnswer():
                return {PartitionKey(a.topic_id, a.index): a for a in answer.partitions}
            case Refused():
                logger.warning("proposals refused: %s (%d)", answer.message, answer.code)
                return {}
            case _:
                raise AssertionError(f"AlterPartition answered with {type(answer).__name__}")

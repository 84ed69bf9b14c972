"""ProposalSender: sends leaders' ISR proposals to the controller, many partitions a request.

One task takes proposals from the replica manager, sends them and returns the answers. The replica
decides whether an answer counts and whether to send again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Protocol

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.replication.proposal_queue import Proposed
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerLifetime
from plimsoll_core.messages.requests import (
    AllocateProducerIds,
    AlterPartition,
    Answer,
    PartitionAnswer,
    PartitionsAnswer,
    Refused,
)

logger = logging.getLogger("plimsoll.proposals")

RESEND_MS = 200
PROPOSALS_MAX = 5_000


class ProposalTarget(Protocol):
    """The part of the controller client that sends ISR proposals and requests for producer ids."""

    def command(
        self, request: AlterPartition | AllocateProducerIds, timeout_ms: int = ...
    ) -> Awaitable[Answer]: ...


class ProposalSender:
    """Sends the queued ISR proposals to the controller, many in a request, one request at a time.
    Proposals that arrive meanwhile wait in the queue, which keeps the newest of each partition."""

    def __init__(
        self,
        manager: ReplicaManager,
        controller: ProposalTarget,
        broker: BrokerLifetime,
    ) -> None:
        self._manager = manager
        self._controller = controller
        self._broker_id, self._broker_epoch = broker

    async def run(self) -> None:
        """Send the queued proposals, at most PROPOSALS_MAX in a request, until cancelled. If any
        must be sent again, pause for RESEND_MS."""
        proposals = self._manager.proposals
        while True:
            await proposals.wait()
            if not await self._send(proposals.take(PROPOSALS_MAX)):
                await asyncio.sleep(RESEND_MS / 1000)

    async def _send(self, batch: list[Proposed]) -> bool:
        """Send these proposals in one request, and pass each answer, or its absence, to the
        replica. Return False if any proposal is queued again; the caller then pauses."""
        request = AlterPartition(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            proposals=tuple(proposal for _, proposal in batch),
        )
        answers = await self._ask(request)
        settled = True
        for hosted, proposal in batch:
            if self._manager.altered(hosted, proposal, answers.get(hosted.key)):
                settled = False
        return settled

    async def _ask(self, request: AlterPartition) -> dict[PartitionKey, PartitionAnswer]:
        """Send the request to the controller and return the answers by partition. Return an empty
        dictionary if the controller did not answer or refused the whole request."""
        try:
            answer = await self._controller.command(request)
        except NoController as error:
            logger.warning(
                "the controller did not answer %d ISR changes that this broker, as leader, asked "
                "for; the broker repeats them by itself, and writes with acks=all may wait until "
                "the controller answers; if this lasts, check the operator's pods and the network "
                "to them: %s",
                *(len(request.proposals), error),
            )
            return {}
        match answer:
            case PartitionsAnswer():
                return {PartitionKey(a.topic_id, a.index): a for a in answer.partitions}
            case Refused():
                logger.warning(
                    "the controller refused %d ISR changes that this broker, as leader, asked for; "
                    "the broker asks again by itself, and writes with acks=all may wait until the "
                    "controller accepts one; if this lasts, see the operator's log: %s (code %d)",
                    *(len(request.proposals), answer.message, answer.code),
                )
                return {}
            case _:
                raise AssertionError(f"AlterPartition answered with {type(answer).__name__}")

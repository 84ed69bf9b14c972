"""Allocates blocks of producer ids to brokers.  Called for AllocateProducerIds.

A block is committed before a broker gets it, so no id is given twice.  Source: KIP-730.
"""

from __future__ import annotations

from plimsoll_core.cluster.records import ProducerIdsAllocated
from plimsoll_core.controller.kernel.decision import DecisionContext, stale_epoch
from plimsoll_core.errors import Refusal
from plimsoll_core.messages.requests import AllocateProducerIds, Answer, ProducerIdBlock


def allocate(turn: DecisionContext, request: AllocateProducerIds) -> Answer | Refusal:
    refusal = stale_epoch(turn, request.broker_id, request.broker_epoch)
    if refusal:
        return refusal
    first = turn.image.next_producer_id
    length = turn.settings.producer_id_block
    turn.add(
        ProducerIdsAllocated(
            cause="allocated", broker_id=request.broker_id, next_producer_id=first + length
        )
    )
    return ProducerIdBlock(first=first, length=length)

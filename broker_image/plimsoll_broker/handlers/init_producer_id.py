"""InitProducerId: a unique id for every idempotent producer (KIP-98, KIP-360).

Called by the sessions. Ids come from blocks that the controller commits; the rest of a block that
is lost with the broker is never used. Transactions are not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.reporting.isr_proposals import ProposalTarget
from plimsoll_broker.server.dispatch import Reply, RequestContext
from plimsoll_core.errors import Code
from plimsoll_core.ids import BrokerLifetime
from plimsoll_core.messages.requests import AllocateProducerIds, ProducerIdBlock
from plimsoll_wire.messages import decode_request, encode_response

# Kafka's answer while it waits for a block. COORDINATOR_NOT_AVAILABLE would send a client looking
# for a transaction coordinator, which an idempotent producer does not need.
WAITING = Code.COORDINATOR_LOAD_IN_PROGRESS
NO_PRODUCER = -1
"""The id and the epoch of a producer that has none yet."""
ALLOCATE_MS_MAX = 10_000


class ProducerIds:
    """The broker's block of ids. One allocation is in flight at a time; other requests wait for
    it."""

    def __init__(self, controller: ProposalTarget, broker: BrokerLifetime) -> None:
        self._controller = controller
        self._broker = broker
        self._next = self._end = 0
        self._allocating = asyncio.Lock()

    def take(self) -> int | None:
        """Return the next id of the block, or None if it is used up."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def allocate(self) -> int | None:
        """Return an id, from a new block if necessary; None if no controller gave one."""
        async with self._allocating:
            producer_id = self.take()
            if producer_id is not None:
                return producer_id
            broker_id, broker_epoch = self._broker
            request = AllocateProducerIds(broker_id=broker_id, broker_epoch=broker_epoch)
            try:
                answer = await self._controller.command(request, ALLOCATE_MS_MAX)
            except NoController:
                return None
            if not isinstance(answer, ProducerIdBlock):
                return None
            self._next, self._end = answer.first, answer.first + answer.length
            return self.take()


class InitProducerIdHandler:
    """`__call__` is the route's handler."""

    def __init__(self, ids: ProducerIds) -> None:
        self._ids = ids

    def __call__(self, context: RequestContext) -> Reply | Awaitable[Reply | None]:
        request = decode_request(context.api_key, context.api_version, context.body)
        if request.transactional_id is not None:
            return _reply(context, Code.INVALID_REQUEST)
        known: int = getattr(request, "producer_id", -1)
        epoch: int = getattr(request, "producer_epoch", -1)
        if (known == NO_PRODUCER) != (epoch == NO_PRODUCER):
            return _reply(context, Code.INVALID_REQUEST)
        # The id that the client names is ignored: the broker does not remember which client has
        # which id, so only a new id is certainly its own.
        producer_id = self._ids.take()
        if producer_id is not None:
            return _reply(context, 0, producer_id, 0)
        return self._later(context)

    async def _later(self, context: RequestContext) -> Reply | None:
        producer_id = await self._ids.allocate()
        if producer_id is None:
            return _reply(context, WAITING)
        return _reply(context, 0, producer_id, 0)


def _reply(context: RequestContext, code: int, producer_id: int = -1, epoch: int = -1) -> bytes:
    values = {"error_code": code, "producer_id": producer_id, "producer_epoch": epoch}
    return encode_response(context.api_key, context.api_version, values)

"""CopyOffers: hands this broker's copy of the metadata to an operator that restores its metadata
log.

The controller client reports each refusal with the reason MetadataRegressed. This opens a
connection of its own to the same address, states the broker's position, and sends the copy part by
part if the operator asks for it. The broker serves as before meanwhile. Source: docs/protocol.md
3.16.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable
from functools import partial

import msgspec

from plimsoll_broker.background import in_thread
from plimsoll_broker.control.controller_client import (
    ControlConnection,
    ControllerAddress,
    ControllerClient,
    connect,
)
from plimsoll_broker.control.metadata_store import MetadataCopy
from plimsoll_broker.control.metadata_stream import MetadataStream
from plimsoll_core.messages.metadata_copy import (
    COPY_BYTES_MAX,
    PART_BYTES_MAX,
    CopyWanted,
    OfferMetadataCopy,
)
from plimsoll_wire import control

logger = logging.getLogger("plimsoll.copy_offers")

CONNECT_MS_MAX = 1_000
ANSWER_MS_MAX = 60_000
"""The longest time in ms for which an operator may leave an offer unanswered."""
AGAIN_S = 0.2
"""The least pause in seconds between two offers."""


class CopyOffers:
    """Offers the broker's copy of the metadata to operators that ask for it. `run` is its task.
    `acted_beyond`: tells if the broker has acted on a decision that its copy lacks."""

    def __init__(
        self,
        client: ControllerClient,
        stream: MetadataStream,
        copy: MetadataCopy,
        acted_beyond: Callable[[], bool],
    ) -> None:
        self._client = client
        self._stream = stream
        self._copy = copy
        self._acted_beyond = acted_beyond
        self._to: ControllerAddress | None = None
        self._asked = asyncio.Event()
        client.regressed = self._regressed

    def _regressed(self, address: ControllerAddress) -> None:
        self._to = address
        self._asked.set()

    async def run(self) -> None:
        """Offer the copy after each refusal that asks for it, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            assert self._to is not None, "set with the event"
            try:
                await self._offer(self._to)
            except (OSError, TimeoutError, control.MalformedControlMessage) as error:
                logger.info(
                    "this broker cannot send its copy of the metadata to the operator at %s, "
                    "which restores the metadata log from it; it sends the copy when the "
                    "operator asks again: %s",
                    *(self._to, error),
                )
            await asyncio.sleep(AGAIN_S)

    async def _offer(self, address: ControllerAddress) -> None:
        peers, stream = self._client.peers, self._stream
        connection = await connect(*address, peers.client_id, CONNECT_MS_MAX, self._client.inside)
        try:
            replica = stream.replica
            offer = OfferMetadataCopy(
                cluster_id=peers.cluster_id,
                broker_id=peers.broker_id,
                controller_epoch=self._client.highest_epoch,
                position=replica.position,
                acted_beyond=self._acted_beyond(),
            )
            wanted = await connection.offer_copy(offer, ANSWER_MS_MAX)
            if wanted.length == 0:
                return
            complete = stream.copied_offset is not None
            stored = await in_thread(
                lambda: zlib.compress(
                    msgspec.msgpack.encode(self._copy.content(replica, stored=complete)), 3
                )
            )
            if len(stored) > COPY_BYTES_MAX:
                logger.warning(
                    "this broker's copy of the metadata is too large to be sent (%d bytes, at "
                    "most %d), so the operator at %s needs another broker's copy to restore the "
                    "metadata log: start the other brokers",
                    *(len(stored), COPY_BYTES_MAX, address),
                )
                return
            await _send(connection, offer, stored, wanted)
            logger.warning(
                "the metadata log has lost records, so this broker sent its copy, up to offset "
                "%d, to the operator at %s; the operator restores the log by itself from such "
                "copies, and the LogCluster's status shows the result",
                *(replica.image.next_offset, address),
            )
        finally:
            connection.close("this broker has sent its copy of the metadata over this connection")


async def _send(
    connection: ControlConnection, offer: OfferMetadataCopy, stored: bytes, wanted: CopyWanted
) -> None:
    """Send the parts that the operator asks for, until it wants no more."""
    while wanted.length > 0:
        length = min(wanted.length, PART_BYTES_MAX)
        part = stored[wanted.start : wanted.start + length]
        sent = partial(msgspec.structs.replace, offer, size=len(stored))
        wanted = await connection.offer_copy(sent(start=wanted.start, data=part), ANSWER_MS_MAX)

"""The next part of a broker's metadata stream: batches, or a snapshot if it is too far behind.

`controller_term` calls it while active. It waits for news at most as long as requested, and changes
nothing. Source: ARCHITECTURE.md, "The controller".
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Protocol

from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.errors import Reason
from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataUpdate
from plimsoll_core.messages.requests import Refused
from plimsoll_operator.controller.commit_queue import refused
from plimsoll_operator.controller.recent_batches import MetadataTail, Standing

WAIT_MS_MAX = 10_000


class Committed(Protocol):
    """The part of a controller that the stream reads."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def tail(self) -> MetadataTail: ...


async def update_for(fetch: FetchMetadata, log: Committed) -> MetadataUpdate | Refused:
    """Return the update after `fetch.offset`."""
    tail = log.tail
    standing = tail.standing(fetch.offset, fetch.nonce)
    if standing in (Standing.AHEAD, Standing.DIFFERENT):
        return refused(
            Reason.MetadataRegressed,
            f"Broker {fetch.broker_id} holds metadata up to {fetch.offset} that is not in this "
            f"log, which ends at {tail.end}.",
        )
    if standing is Standing.TOO_OLD:
        return await _snapshot_update(log.image, tail)
    await tail.wait_beyond(fetch.offset, min(fetch.wait_ms_max, WAIT_MS_MAX))
    if fetch.offset < tail.start:
        return await _snapshot_update(log.image, tail)
    return MetadataUpdate(batches=tail.read(fetch.offset), end_offset=tail.end)


async def _snapshot_update(image: ClusterImage, tail: MetadataTail) -> MetadataUpdate:
    """Return the image in place of batches no longer kept; the stream continues after it."""
    end, nonce = tail.end, tail.end_nonce
    assert end == image.next_offset
    compressed = await asyncio.to_thread(_compressed, image)
    return MetadataUpdate(
        snapshot=compressed, snapshot_end=end, snapshot_nonce=nonce, end_offset=end
    )


def _compressed(image: ClusterImage) -> bytes:
    return zlib.compress(encode_image(image), 3)

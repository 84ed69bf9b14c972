"""A Fetch as a follower's that is none: how it is asked, and what its answer refuses.

Called by strangers and intruders, each of which decides what an answer means.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Partition
from plimsoll_wire.replication import (
    NEW_SESSION,
    FetchLimits,
    FetchSender,
    PartitionFetch,
    decode_fetch,
    encode_fetch,
)

LIMITS = FetchLimits(0, 2**20, 2**20)


def posed_fetch(p: Partition, sender: FetchSender, offset: int) -> bytes:
    """Return the frame: it claims everything below the offset, in the partition's present leader
    epoch."""
    asked = PartitionFetch(p.index, p.leader_epoch, offset, p.leader_epoch, 0)
    return encode_fetch(1, sender, LIMITS, [(p.topic_id.bytes, [asked])], NEW_SESSION)


def refusal_of(reply: bytes) -> int:
    """The first code of the answer that is one; 0: it is answered.  Raises MalformedReply."""
    found = decode_fetch(memoryview(reply), 1)
    codes = (found.code, *(one.code for one in found.partitions))
    return next((int(code) for code in codes if code), 0)

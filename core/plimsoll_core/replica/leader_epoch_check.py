"""Whether a request that names a leader epoch names the present one.

Called by `replica.Replica` before anything else, for Fetch, ListOffsets and OffsetForLeaderEpoch.
Source: KIP-320.
"""

from __future__ import annotations

from plimsoll_core.errors import Code


def check_leader_epoch(leader_epoch: int | None, known: int) -> Code:
    """A stale asker must hear that it is stale before anything else; None: it names none."""
    if leader_epoch is not None:
        if leader_epoch < known:
            return Code.FENCED_LEADER_EPOCH
        if leader_epoch > known:
            return Code.UNKNOWN_LEADER_EPOCH
    return Code.NONE

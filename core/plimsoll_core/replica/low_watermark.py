"""Below which offset no replica that may be in sync has a record: then DeleteRecords is answered.

Called by `replica.Replica`.  Source: the protocol's rule for DeleteRecords; KIP-107.
"""

from __future__ import annotations

from plimsoll_core.replica.leader import Leader


def low_watermark(leader: Leader, log_start: int) -> int:
    """The least log start of all that may be in sync, as their fetches told it; a follower that
    has not fetched in this term is not known to have dropped anything."""
    return min([log_start, *(follower.log_start for follower in leader.quorum)])

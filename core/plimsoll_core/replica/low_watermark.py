"""Below which offset no replica that may be elected cleanly has a record: it answers DeleteRecords.

Called by `replica.Replica`.  Sources: the protocol's rule for DeleteRecords; KIP-107; KIP-966 (who
left the ISR while that was below its minimum is elected cleanly, too).
"""

from __future__ import annotations

from plimsoll_core.replica.leader import Leader


def low_watermark(leader: Leader, log_start: int) -> int:
    """The least log start of all that may be in sync or elected cleanly, as their fetches told it;
    a follower that has not fetched in this term is not known to have dropped anything."""
    return min(
        [
            log_start,
            *(
                follower.log_start
                for broker_id, follower in leader.followers.items()
                if leader.may_be_next(broker_id)
            ),
        ]
    )

"""Whether a coordinator may write into its own partition, and where what it wrote stands.

Called by the broker's coordinator shards.  The right is asked for once, when something is decided,
and never again: what was decided is written at the end of the same turn of the event loop, also if
the ISR fell below its minimum in between, since others were answered by it.  Source:
docs/protocol.md §5.8.
"""

from __future__ import annotations

from plimsoll_core.errors import Code
from plimsoll_core.replica.acknowledgement import check_before_append
from plimsoll_core.replica.leader import Leader
from plimsoll_core.replica.replica import Replica
from plimsoll_core.replica.replica_values import Append


def may_append(replica: Replica, leader: Leader) -> Code:
    """NONE while the shard's own term lasts and enough replicas are in sync."""
    if replica.leader is not leader:
        return Code.NOT_LEADER_OR_FOLLOWER
    return check_before_append(leader, -1)


def next_place(replica: Replica, leader: Leader) -> Append | None:
    """Where the next batch goes; None: the shard's term is over."""
    if replica.leader is not leader:
        return None
    return Append(replica.log.log_end_offset, leader.epoch)

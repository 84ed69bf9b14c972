"""The end of a log as ListOffsets answers it (LATEST), which a new leader may not know yet.

Called by `replica.Replica`.  Source: the protocol's rule for ListOffsets.
"""

from __future__ import annotations

from plimsoll_core.errors import Code
from plimsoll_core.replica.leader import Leader


def latest_for_consumer(leader: Leader, high_watermark: int) -> int | Code:
    """The high watermark, or OFFSET_NOT_AVAILABLE.

    A new leader does not know yet how far the last term committed: a consumer that is told too
    little would see the log shrink.
    """
    if high_watermark < leader.start_offset:
        return Code.OFFSET_NOT_AVAILABLE
    return high_watermark

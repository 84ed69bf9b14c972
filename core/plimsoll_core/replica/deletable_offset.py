"""Up to which offset a client's DeleteRecords may delete: never more than is committed.

Called by `replica.Replica`.  Source: the protocol's rule for DeleteRecords; KIP-107.
"""

from __future__ import annotations

from plimsoll_core.errors import Code


def deletable_offset(offset: int, high_watermark: int) -> int | Code:
    """Where the log may begin: at `offset`, with -1 at the high watermark."""
    wanted = high_watermark if offset == -1 else offset
    return wanted if 0 <= wanted <= high_watermark else Code.OFFSET_OUT_OF_RANGE

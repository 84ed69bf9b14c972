"""The end of a log that counts where acknowledged records must be on disk (flush.messages).

Called by the storage's logs; `Replica` and the broker's fetchers go by it.  A leader commits no
further, and a follower asks for nothing beyond: to ask for an offset is to acknowledge all that is
below it.
"""

from __future__ import annotations


def countable_end(log_end: int, flushed_end: int, flush_messages: int | None) -> int:
    """Where the part of the log ends that may be acknowledged; all of it, unless a flush is due.

    `flush_messages`: so many records may never be acknowledged and not flushed; None: any number.
    `flushed_end`: everything below it is on the disk.
    """
    if flush_messages is None or log_end - flushed_end < flush_messages:
        return log_end
    return flushed_end

"""Batches that were sent behind one that was refused do not overtake it.

A log takes the first batch of a producer that it does not know with whatever sequence it has.  So
when the first of several batches in flight is refused (too few in sync, not the leader yet, not
heard of the topic yet) and a moment later the next one would be accepted, the log would begin in
the middle: what was sent before could never be written any more.  A client sends what is in flight
over one connection, so it is enough that a connection remembers what was refused on it.

Known producers need none of this: the log itself sees the gap.  KIP-98; the protocol's rule for
idempotent producers.
"""

from __future__ import annotations

from plimsoll_core.replica.values import Code
from plimsoll_wire.batches import BatchError, Buffer, parse_header

REMEMBERED_MAX = 1_000
_SEQUENCES = 2**31

# The log has compared sequences already; what it says is not about the moment.
_ABOUT_SEQUENCES = frozenset(
    {Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH, Code.INVALID_RECORD}
)

_Where = tuple[str, int, int]


class Refused:
    """One connection's: of each partition and producer, the epoch and the lowest sequence that was
    refused and has not been taken since."""

    __slots__ = ("_lowest",)

    def __init__(self) -> None:
        self._lowest: dict[_Where, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._lowest)

    def overtaken_by(self, topic: str, index: int, records: Buffer | None) -> bool:
        """Whether the batch was sent behind one that was refused."""
        found = _producer(records)
        if found is None:
            return False
        producer_id, epoch, sequence = found
        known = self._lowest.get((topic, index, producer_id))
        return known is not None and known[0] == epoch and _after(sequence, known[1])

    def answered(self, topic: str, index: int, records: Buffer | None, code: int) -> None:
        """What became of a batch that overtook nothing."""
        found = _producer(records)
        if found is None or code in _ABOUT_SEQUENCES:
            return
        producer_id, *place = found
        where = (topic, index, producer_id)
        self._lowest.pop(where, None)
        if code != Code.NONE:
            if len(self._lowest) >= REMEMBERED_MAX:
                del self._lowest[next(iter(self._lowest))]
            self._lowest[where] = (place[0], place[1])


def _producer(records: Buffer | None) -> tuple[int, int, int] | None:
    """Id, epoch and first sequence, of an idempotent producer's batch."""
    if not records:
        return None
    try:
        header = parse_header(records)
    except BatchError:
        return None
    if header.producer_id < 0 or header.base_sequence < 0:
        return None
    return header.producer_id, header.producer_epoch, header.base_sequence


def _after(sequence: int, other: int) -> bool:
    """Sequences wrap, and what is in flight is never half of them apart."""
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2

"""Batches that were sent behind one that was refused do not overtake it.

The first of several batches in flight is refused (too few in sync, not the leader yet, not heard of
the topic yet), or is cut off again because another broker led, and a moment later the next one
would be taken.  A log takes the first batch of a producer that it does not know with whatever
sequence it has, so it would begin in the middle, and what was sent before could never be written
any more.  A log that knows the producer would see the gap and say "out of order": librdkafka takes
that for a reason to begin a new producer epoch, and what it was not sure about is then written
twice.

So what overtakes is refused with what the first was refused with: clients send both again, in
order.  A client sends what is in flight over one connection, so it is enough that a connection
remembers what was refused on it.  It remembers so many partitions and producers; once there were
more, whatever it does not remember and does not follow what its log has may have been sent behind
one of those, and is refused, too.  KIP-98; the protocol's rule for idempotent producers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from plimsoll_core.cluster.topic_names import NAME_LENGTH_MAX
from plimsoll_core.errors import Code
from plimsoll_wire.batches import BatchError, Buffer, parse_header

REMEMBERED_MAX = 1_000
"""Partitions and producers of one connection, at about 300 bytes each."""
REMEMBERED_MS = 10_000
"""Clients send again within a second.  What they took elsewhere meanwhile must not hold them up
here for ever."""
IN_FLIGHT_MAX = 5
"""An idempotent producer has no more batches of a partition on the way.  So many may stand in the
connection behind the one that was refused, however late a broker that stood still comes to them."""
_SEQUENCES = 2**31

# What passes by itself.  After anything else a client does not send the same batch again.
_PASSES = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.KAFKA_STORAGE_ERROR,
    }
)

_Where = tuple[str, int, int]
"""Topic, partition and producer."""
_Producer = tuple[int, int, int]
"""Id, epoch and a batch's first sequence."""


class _Lowest(NamedTuple):
    epoch: int
    sequence: int
    code: int
    at_ms: int
    # How many of those that were sent behind it have been refused since.
    behind: int = 0


class RejectedSequences:
    """One connection's: of each partition and producer, the lowest sequence that was refused and
    has not been taken since, and why.  `_forgot`: why what is not remembered was refused last;
    None: all is."""

    __slots__ = ("_forgot", "_lowest")

    def __init__(self) -> None:
        self._lowest: dict[_Where, _Lowest] = {}
        self._forgot: int | None = None

    def __bool__(self) -> bool:
        return bool(self._lowest) or self._forgot is not None

    def overtaken_by(
        self,
        topic: str,
        index: int,
        records: Buffer | None,
        newest: Callable[[int], tuple[int, int] | None],
        now_ms: int,
    ) -> int | None:
        """Why the batch that this one was sent behind was refused; None: there is none.  `newest`:
        epoch and last sequence of what the log has of a producer."""
        found = _producer(records)
        if found is None:
            return None
        producer_id, epoch, sequence = found
        lowest = self._lowest.get((topic, index, producer_id))
        if lowest is None and self._forgot is not None:
            return self._unless_it_follows((topic, index, producer_id), found, newest, now_ms)
        if lowest is None or lowest.epoch != epoch or not _after(sequence, lowest.sequence):
            return None
        if now_ms - lowest.at_ms >= REMEMBERED_MS and lowest.behind >= IN_FLIGHT_MAX - 1:
            return None
        last = newest(producer_id)
        if last is not None and _taken(lowest, *last):
            return None
        self._lowest[topic, index, producer_id] = lowest._replace(behind=lowest.behind + 1)
        return lowest.code

    def _unless_it_follows(
        self,
        where: _Where,
        producer: _Producer,
        newest: Callable[[int], tuple[int, int] | None],
        now_ms: int,
    ) -> int | None:
        """Something may have been sent before it that is not remembered, unless its log has what
        it follows."""
        producer_id, epoch, sequence = producer
        last_epoch, last = newest(producer_id) or (-1, -1)
        if epoch != last_epoch:
            follows = epoch < last_epoch or sequence == 0
        else:
            follows = not _after(sequence, (last + 1) % _SEQUENCES)
        if follows or self._forgot is None:
            return None
        self._remember(where, _Lowest(epoch, sequence, self._forgot, now_ms))
        return self._forgot

    def answered(
        self, topic: str, index: int, records: Buffer | None, code: int, now_ms: int
    ) -> None:
        """What became of a batch that overtook nothing."""
        found = _producer(records)
        if found is None:
            return
        producer_id, epoch, sequence = found
        where = (topic, index, producer_id)
        self._lowest.pop(where, None)
        if code in _PASSES and len(topic) <= NAME_LENGTH_MAX:  # with another name it never passes
            self._remember(where, _Lowest(epoch, sequence, code, now_ms))

    def not_committed(
        self, topic: str, index: int, producer: _Producer, code: int, now_ms: int
    ) -> None:
        """A batch was appended, and its client hears that it may be lost: the log may be cut before
        what stands behind it in the connection is read."""
        producer_id, epoch, sequence = producer
        where = (topic, index, producer_id)
        known = self._lowest.get(where)
        if known is not None and (
            known.epoch > epoch or (known.epoch == epoch and not _after(known.sequence, sequence))
        ):
            return  # what that one holds back it holds back, too
        if code in _PASSES:
            self._remember(where, _Lowest(epoch, sequence, code, now_ms))

    def _remember(self, where: _Where, lowest: _Lowest) -> None:
        remembered = self._lowest
        if len(remembered) >= REMEMBERED_MAX and where not in remembered:
            self._forgot = lowest.code
            oldest = next(iter(remembered))
            if lowest.at_ms - remembered[oldest].at_ms < REMEMBERED_MS:
                return
            del remembered[oldest]  # its client would have sent it again by now
        remembered.pop(where, None)
        remembered[where] = lowest  # behind those that are older


def _producer(records: Buffer | None) -> _Producer | None:
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


def _taken(lowest: _Lowest, epoch: int, sequence: int) -> bool:
    """Whether the log has it all the same: it was sent elsewhere, and this log followed."""
    if epoch < lowest.epoch:
        return False
    return epoch > lowest.epoch or not _after(lowest.sequence, sequence)


def _after(sequence: int, other: int) -> bool:
    """Sequences wrap, and what is in flight is never half of them apart."""
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2

"""RejectedSequences: a batch that was sent behind a rejected one must not overtake it.

A broker may reject the first of several batches in flight (too few replicas in sync, not the leader
yet, topic not known yet), or truncate it because another broker led, and a moment later accept the
next. A log accepts any sequence from a producer that it does not know. So it would begin in the
middle, and the earlier batch could never be written. A log that knows the producer would answer
"out of order"; librdkafka then begins a new producer epoch, and batches of unknown outcome are
written twice.

So a batch that would overtake is rejected with the error of the first: clients send both again, in
order. A client sends all batches in flight over one connection, so it is enough to remember
rejections by connection. A connection remembers a bounded number of partitions and producers. Once
that is exceeded, a batch that is not remembered and does not continue its log is rejected, too.
Source: KIP-98; the protocol's rule for idempotent producers.
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
"""Clients retry within a second. A rejection must not hold up for ever a batch whose predecessor
was written elsewhere meanwhile."""
IN_FLIGHT_MAX = 5
"""An idempotent producer has at most five batches of a partition in flight. So many may stand in
the connection behind the rejected one, however late a paused broker comes to them."""
_SEQUENCES = 2**31

# Transient errors. After any other error a client does not send the same batch again.
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
"""Topic, partition and producer id."""
_Producer = tuple[int, int, int]
"""Producer id, epoch and base sequence."""


class _Lowest(NamedTuple):
    epoch: int
    sequence: int
    code: int
    at_ms: int
    # The number of later batches that were rejected behind it.
    behind: int = 0


class RejectedSequences:
    """For one connection: by partition and producer, the lowest sequence that was rejected and not
    accepted since, with its error. `_forgot`: the last error of an entry that was dropped; None:
    none was."""

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
        """Return the error of a rejected batch that this one was sent behind, or None. `newest`:
        epoch and last sequence of a producer in the log."""
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
        """Reject the batch, as an earlier one may have been forgotten, unless it continues the
        log."""
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
        """Note the result of a batch that overtook nothing."""
        found = _producer(records)
        if found is None:
            return
        producer_id, epoch, sequence = found
        where = (topic, index, producer_id)
        self._lowest.pop(where, None)
        if code in _PASSES and len(topic) <= NAME_LENGTH_MAX:  # an invalid name never succeeds
            self._remember(where, _Lowest(epoch, sequence, code, now_ms))

    def not_committed(
        self, topic: str, index: int, producer: _Producer, code: int, now_ms: int
    ) -> None:
        """An appended batch was answered with an error: the log may be truncated before the batches
        behind it in the connection are read."""
        producer_id, epoch, sequence = producer
        where = (topic, index, producer_id)
        known = self._lowest.get(where)
        if known is not None and (
            known.epoch > epoch or (known.epoch == epoch and not _after(known.sequence, sequence))
        ):
            return  # that entry holds back this batch, too
        if code in _PASSES:
            self._remember(where, _Lowest(epoch, sequence, code, now_ms))

    def _remember(self, where: _Where, lowest: _Lowest) -> None:
        remembered = self._lowest
        if len(remembered) >= REMEMBERED_MAX and where not in remembered:
            self._forgot = lowest.code
            oldest = next(iter(remembered))
            if lowest.at_ms - remembered[oldest].at_ms < REMEMBERED_MS:
                return
            del remembered[oldest]  # its client would have retried by now
        remembered.pop(where, None)
        remembered[where] = lowest  # newest last


def _producer(records: Buffer | None) -> _Producer | None:
    """Return id, epoch and base sequence of an idempotent producer's batch, or None."""
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
    """Return True if the log has the batch after all: it was written by another leader and
    replicated here."""
    if epoch < lowest.epoch:
        return False
    return epoch > lowest.epoch or not _after(lowest.sequence, sequence)


def _after(sequence: int, other: int) -> bool:
    """Return True if `sequence` is after `other`. Sequences wrap; those in flight are never half
    the range apart."""
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2

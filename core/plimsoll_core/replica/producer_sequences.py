"""Classifies a producer's batch as new, a retry or out of order (KIP-98, idempotent producers).

One per log.  The leader asks `check` before it appends; leader, follower and replay all learn from
the batches themselves through `update`.  It remembers the last five batches of each producer id:
as many as a client may have in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.replica.producer_memory import ProducerMemory
from plimsoll_core.replica.replica_values import BatchInfo, Duplicate

BATCHES_REMEMBERED = 5
EXPIRATION_MS = 24 * 3600 * 1000
PRODUCERS_MAX = 10_000
"""Of one log: each takes a kilobyte, and all of them are written down when the log rolls.  Of all
logs of a broker: `producer_memory`."""
_LEFT = PRODUCERS_MAX * 3 // 4
"""When there are more, the others are forgotten: those that wrote longest ago, by offset."""
_SEQUENCES = 2**31


class ProducerEntry(NamedTuple):
    """A line of a producer snapshot: one batch.  Kafka writes the newest of each producer and takes
    the last line it reads; here all that are remembered are written, oldest first, so that a retry
    of any of them is still known after a restart."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class ActiveProducer(NamedTuple):
    """What DescribeProducers tells of one: of the last batch that it wrote."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int


class _Batch(NamedTuple):
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class _Producer:
    """Never without a batch: the caller adds the first at once."""

    __slots__ = ("batches", "epoch", "idle_since_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[_Batch] = deque(maxlen=BATCHES_REMEMBERED)
        self.idle_since_ms: int | None = None


class ProducerStates:
    """Every producer id that has written to one log."""

    __slots__ = ("__weakref__", "_memory", "_producers", "written_at")

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._producers: dict[int, _Producer] = {}
        # What bounds them together with those of other logs; None: nothing does.
        self._memory: ProducerMemory | None = None
        self.written_at = 0
        self.restore(entries)

    def share(self, memory: ProducerMemory, *, evenly: bool = False) -> None:
        """They count from now on; `evenly`: with all that are opened at a start."""
        self._memory = memory
        (memory.join_evenly if evenly else memory.join)(self)

    def __len__(self) -> int:
        return len(self._producers)

    def newest(self, producer_id: int) -> tuple[int, int] | None:
        """Epoch and last sequence of what it wrote last; None: nothing that is known here."""
        producer = self._producers.get(producer_id)
        return None if producer is None else (producer.epoch, producer.batches[-1].last_sequence)

    def active(self, most: int) -> list[ActiveProducer]:
        """Those that have not expired; of more than `most` the ones that came last."""
        newest = islice(reversed(self._producers.items()), most)
        return [
            ActiveProducer(producer_id, each.epoch, last.last_sequence, last.timestamp)
            for producer_id, each in newest
            for last in (each.batches[-1],)
        ]

    def check(self, batch: BatchInfo) -> Duplicate | Code | None:
        """None: append it.  Duplicate: already here.  Otherwise why it is refused."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return None
        if batch.producer_epoch != producer.epoch:
            return _check_new_epoch(batch, producer)
        first = batch.base_sequence
        if first == (producer.batches[-1].last_sequence + 1) % _SEQUENCES:
            return None
        last = (first + batch.last_offset_delta) % _SEQUENCES
        for known in reversed(producer.batches):
            if known.first_sequence == first and known.last_sequence == last:
                return Duplicate(known.last_offset - known.offset_delta, known.last_offset)
        return Code.OUT_OF_ORDER_SEQUENCE_NUMBER

    def update(self, batch: BatchInfo) -> None:
        """The batch is in the log.  Nothing is checked: a follower takes its leader's word."""
        producer_id = batch.producer_id
        if producer_id < 0 or batch.base_sequence < 0:
            return
        producer = self._producers.get(producer_id)
        new = producer is None
        if producer is None or producer.epoch != batch.producer_epoch:
            if new and len(self._producers) >= PRODUCERS_MAX:
                self.forget_to(_LEFT)
            producer = self._producers[producer_id] = _Producer(batch.producer_epoch)
        delta = batch.last_offset_delta
        first = batch.base_sequence
        producer.batches.append(
            _Batch(
                first,
                (first + delta) % _SEQUENCES,
                batch.base_offset + delta,
                delta,
                batch.max_timestamp,
            )
        )
        producer.idle_since_ms = None
        memory = self._memory
        if memory is not None:
            self.written_at = memory.came
            if new:
                memory.added(1)

    def forget_to(self, most: int) -> None:
        """Any number of ids may be made up, and none of those that write now may be refused."""
        gone = len(self._producers) - most
        if gone <= 0:
            return
        # No two end with the same offset: each batch has one producer.
        written_to = sorted(each.batches[-1].last_offset for each in self._producers.values())
        newest_gone = written_to[gone - 1]
        for producer_id, each in list(self._producers.items()):
            if each.batches[-1].last_offset <= newest_gone:
                del self._producers[producer_id]

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> None:
        """Forget producers that have been idle that long.

        Idle is counted on the broker's clock and not from record timestamps: a client may write
        old timestamps and is not idle for that.
        """
        for producer_id, producer in list(self._producers.items()):
            if producer.idle_since_ms is None:
                producer.idle_since_ms = now_ms
            elif now_ms - producer.idle_since_ms >= expiration_ms:
                del self._producers[producer_id]

    def snapshot(self) -> list[ProducerEntry]:
        return [
            ProducerEntry(
                producer_id,
                producer.epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                batch.timestamp,
            )
            for producer_id, producer in sorted(self._producers.items())
            for batch in producer.batches
        ]

    def restore(self, entries: Iterable[ProducerEntry]) -> None:
        """Start over from a snapshot; the batches after it follow through `update`."""
        self._producers.clear()
        for entry in entries:
            producer = self._producers.get(entry.producer_id)
            if producer is None or producer.epoch != entry.producer_epoch:
                producer = self._producers[entry.producer_id] = _Producer(entry.producer_epoch)
            first = (entry.last_sequence - entry.offset_delta) % _SEQUENCES
            producer.batches.append(
                _Batch(
                    first,
                    entry.last_sequence,
                    entry.last_offset,
                    entry.offset_delta,
                    entry.timestamp,
                )
            )
        if self._memory is not None:
            self._memory.read_back(self)

    def clear(self) -> None:
        self._producers.clear()


def _check_new_epoch(batch: BatchInfo, producer: _Producer) -> Code | None:
    if batch.producer_epoch < producer.epoch:
        return Code.INVALID_PRODUCER_EPOCH
    if batch.base_sequence != 0:
        return Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    return None

"""The sequences that a log remembers of its idempotent producers, within a broker's memory.

`ProducerStates` belongs to one log: `replica.Replica` checks a batch with it, the log updates it.
`ProducerMemory` bounds how many producers all logs of a broker remember together. Any client may
write with any number of producer ids to each partition, and a broker would read all of them back at
each start. Above the bound the logs that remember most forget the producers that wrote longest ago,
until each remembers at most as many as any other. If there are more logs than producers that fit,
the logs written to most recently keep one each. A few logs are trimmed at a time, while there is
still room for new producers: a large broker knows millions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife
from plimsoll_core.replica.replica_values import TRANSACTIONAL, BatchInfo, Duplicate
from plimsoll_core.replica.transactions import EndedTransaction, Transactions

PRODUCER_BYTES = 1_152
"""The memory in bytes of one producer with its last five batches, as measured."""
PRODUCERS_ASSUMED = 2**30 // 8 // PRODUCER_BYTES
"""The limit of producers for a broker without a stated memory: an eighth of a gibibyte's worth."""
AT_ONCE = 5_000
"""The most producers that are visited in one call, which takes some milliseconds. The last log
visited may exceed it."""
KEPT_MAX = AT_ONCE // 4
"""The most producers of a log that is opened while the memory is full. Other logs, largest first,
then forget at least a quarter of the producers that one call visits."""


class Remembers(Protocol):
    """The producers of one log, as `ProducerMemory` sees them. `written_at`: the value of
    `ProducerMemory.came` when one of them last wrote; a greater one means a more recent write."""

    written_at: int

    def __len__(self) -> int: ...

    def forget_to(self, most: int) -> None:
        """Forget all producers but those `most` that wrote most recently."""


class _Share(NamedTuple):
    """A log that must forget producers: its key in `ProducerMemory._logs`, and the most that it may
    keep."""

    number: int
    most: int


class ProducerMemory:
    """Bounds the number of producers that all logs of a broker remember together. A producer counts
    once for each log that it has written to. `limit`: the bound."""

    def __init__(self, limit: int = PRODUCERS_ASSUMED) -> None:
        self.limit = limit
        # Number of new producers so far.
        self.came = 0
        self._numbers = count()
        # Open logs only: a closed log is not referenced any more.
        self._logs: WeakValueDictionary[int, Remembers] = WeakValueDictionary()
        # Shares of logs that must still forget, and `came` when these were computed.
        self._to_forget: list[_Share] = []
        self._found_at = 0
        # So many new producers may come before all are counted again.  Expiry is not reported.
        self._room = self._least_room

    @property
    def _least_room(self) -> int:
        """Return the number of new producers that may come before logs must forget some again."""
        return max(self.limit // 8, 1)

    def bound(self, limit: int) -> None:
        """Set the limit of producers, and make logs forget producers if it is exceeded."""
        self.limit = limit
        self._count()

    def join(self, log: Remembers) -> None:
        """Count the producers of a newly opened log. If there is no room for them, make this log
        forget some of them, or other logs, as `read_back` does."""
        self._logs[next(self._numbers)] = log
        self.read_back(log)

    def join_evenly(self, log: Remembers) -> None:
        """Count the producers of one of many logs opened at a broker's start. All open logs,
        including this one, may have to forget some. That may take long, so no other task may wait
        for it."""
        self._logs[next(self._numbers)] = log
        self.added(len(log))

    def read_back(self, log: Remembers) -> None:
        """Count the producers that a log has restored from its snapshot. If there is no room, make
        the log forget those that wrote longest ago. It keeps at least its share; other logs may
        have to forget some instead."""
        if (producers := len(log)) <= self._room:
            self.added(producers)
            return
        sizes = list(map(len, self._logs.values()))
        others = sum(sizes) - producers
        share = max(_level(sizes, self.limit * 3 // 4), 1)
        log.forget_to(max(self.limit - others, min(share, KEPT_MAX)))
        if others + len(log) > self.limit:
            self._count()
        else:
            self._room = 0  # the next newcomer has them counted: this was enough for one turn

    def added(self, producers: int) -> None:
        """Count `producers` new producers of one log, and make logs forget others if there is no
        more room."""
        self.came += producers
        self._room -= producers
        if self._room <= 0:
            self._count()

    def _count(self) -> None:
        """Count the producers of all logs, make logs forget a portion if there are too many, and
        compute how many new ones may come before the next count. The limit itself is always
        restored at once."""
        logs = dict(self._logs)
        known = sum(map(len, logs.values()))
        enough = self.limit - self._least_room
        if known > self.limit or (known > enough and not self._to_forget):
            self.came += 1  # producers that write from now on wrote after this
            self._to_forget, self._found_at = self._shares(logs), self.came
        known = self._forget(logs, known)
        self._room = max(enough - known, 0) + 1
        if self._to_forget:
            left = sum(len(logs[one.number]) for one in self._to_forget if one.number in logs)
            portions = left // AT_ONCE + 1
            self._room = max((self.limit - known) // (portions + 1), 1)

    def _shares(self, logs: Mapping[int, Remembers]) -> list[_Share]:
        """Return the logs that remember more producers than their share, with that share."""
        room = self.limit * 3 // 4
        if most := _level([len(log) for log in logs.values()], room):
            more = [number for number, log in logs.items() if len(log) > most]
            more.sort(key=lambda number: len(logs[number]))  # the last ones come first
            return [_Share(number, most) for number in more]
        oldest_first = sorted(
            (number for number, log in logs.items() if len(log)),
            key=lambda number: logs[number].written_at,
        )
        none_kept = max(len(oldest_first) - room, 0)
        one = (_Share(number, 1) for number in oldest_first[none_kept:] if len(logs[number]) > 1)
        return [*one, *(_Share(number, 0) for number in oldest_first[:none_kept])]

    def _forget(self, logs: Mapping[int, Remembers], known: int) -> int:
        """Make the logs in `_to_forget` forget some of their producers, or as many as the limit
        requires. Return the number that remains of the `known` producers."""
        gone_through = 0
        while self._to_forget and (gone_through < AT_ONCE or known > self.limit):
            number, most = self._to_forget.pop()
            log = logs.get(number)
            if log is None or len(log) <= most:
                continue
            if not most and log.written_at >= self._found_at:
                continue  # it is not one of those that were written to longest ago any more
            before = len(log)
            gone_through += before
            log.forget_to(most)
            known -= before - len(log)
        return known


def _level(sizes: Sequence[int], room: int) -> int:
    """Return the greatest number n such that `room` suffices if each log keeps at most n producers.
    `sizes`: the number of producers of each log. Return the largest size if all producers fit."""
    left = room
    for number, size in enumerate(ordered := sorted(sizes)):
        if size * (len(ordered) - number) > left:
            return left // (len(ordered) - number)
        left -= size
    return max(ordered, default=0)


BATCHES_REMEMBERED = 5
EXPIRATION_MS = 24 * 3600 * 1000
PRODUCERS_MAX = 10_000
"""The most producers of one log: each takes a kilobyte, and all of them are written when the log
rolls. `ProducerMemory` bounds those of all logs of a broker."""
_LEFT = PRODUCERS_MAX * 3 // 4
"""The number of producers that stay when a log exceeds the bound. Those that wrote longest ago are
forgotten."""
_SEQUENCES = 2**31
_NO_SEQUENCE = -1
_ENDED = -2
"""The last sequence in a snapshot's entry that stands for an ended transaction."""


class ProducerEntry(NamedTuple):
    """One batch of a producer in a snapshot file, in Kafka's format. Kafka writes only the newest
    batch of each producer. Here all remembered batches are written, oldest first, so that a retry
    of any of them is still recognised after a restart. Kafka, reading such a file, takes the last
    entry. `offset_delta`: last offset minus base offset; `timestamp`: the batch's max timestamp;
    `coordinator_epoch`: that of the producer's last end marker, `transaction_start`: the first
    offset of its open transaction, -1 without one. A producer that is known by batches without a
    sequence alone has one entry with the last sequence -1. An ended transaction that may not be
    decided has an entry before all of its producer's: last sequence -2, its marker as the last
    offset, and its first offset in the place of the timestamp."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int = -1
    transaction_start: int = -1


class ActiveProducer(NamedTuple):
    """One row of DescribeProducers: a producer's last batch, and its open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int = -1
    current_txn_start_offset: int = -1


class BegunTransaction(NamedTuple):
    """An open transaction: its producer, its first record, the last offset that the producer wrote,
    and the coordinator epoch of the producer's last end marker, -1 without one."""

    producer: ProducerLife
    first_offset: int
    last_offset: int
    coordinator_epoch: int


class _Batch(NamedTuple):
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class _Producer:
    """The epoch and the last batches of one producer. `idle_since_ms`: the first time at which
    `expire` found it idle, None if it has written since. `coordinator_epoch`: that of its last end
    marker, -1 without one. `unnumbered`: its last batch without a sequence, such as a marker; a
    producer without batches in `batches` has one."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "idle_since_ms", "unnumbered")

    def __init__(self, epoch: int, before: _Producer | None = None) -> None:
        """Make a producer's state in a new epoch. `before`: its state in the epoch before."""
        self.epoch = epoch
        self.batches: deque[_Batch] = deque(maxlen=BATCHES_REMEMBERED)
        self.idle_since_ms: int | None = None
        self.coordinator_epoch: int = -1 if before is None else before.coordinator_epoch
        self.unnumbered: _Batch | None = None

    @property
    def last(self) -> _Batch:
        """Return the last batch with a sequence, or else the last one without."""
        if self.batches:
            return self.batches[-1]
        assert self.unnumbered is not None, "a producer is known by a batch"
        return self.unnumbered

    @property
    def last_offset(self) -> int:
        """Return the last offset that the producer wrote."""
        last = self.last.last_offset
        return last if self.unnumbered is None else max(last, self.unnumbered.last_offset)


class ProducerStates:
    """The idempotent producers that have written to one log, and the last batches of each. From
    these a retry is recognised and a gap in the sequence is refused. `transactions`: those of the
    producers that are not decided."""

    __slots__ = (
        "__weakref__",
        "_full_at",
        "_memory",
        "_producers",
        "transactions",
        "written_at",
    )

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._producers: dict[int, _Producer] = {}
        # The number of producers at which some are forgotten.
        self._full_at = PRODUCERS_MAX
        self.transactions = Transactions()
        # The memory shared with other logs; None: unbounded.
        self._memory: ProducerMemory | None = None
        self.written_at = 0
        self.restore(entries)

    def share(self, memory: ProducerMemory, *, evenly: bool = False) -> None:
        """Count these producers in the broker's `memory` from now on. `evenly`: True if this log is
        one of many that are opened at a broker's start."""
        self._memory = memory
        (memory.join_evenly if evenly else memory.join)(self)

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def transactional(self) -> bool:
        """True if any of the producers is known to have written a transaction."""
        known = self._producers.values()
        return bool(self.transactions) or any(each.coordinator_epoch >= 0 for each in known)

    def newest(self, producer_id: int) -> tuple[int, int] | None:
        """Return the epoch and the last sequence of the producer's newest batch, or None if the
        producer is not remembered."""
        producer = self._producers.get(producer_id)
        return None if producer is None else (producer.epoch, producer.last.last_sequence)

    def active(self, most: int) -> list[ActiveProducer]:
        """Return the last batch of each remembered producer, at most `most` rows, the most recently
        added producers first."""
        newest, begun = islice(reversed(self._producers.items()), most), self.transactions.open
        return [
            ActiveProducer(
                producer_id,
                each.epoch,
                last.last_sequence,
                last.timestamp,
                each.coordinator_epoch,
                begun.get(producer_id, -1),
            )
            for producer_id, each in newest
            for last in (each.last,)
        ]

    def begun(self) -> Iterator[BegunTransaction]:
        """Yield the open transactions, in order of their first records."""
        for producer_id, first_offset in self.transactions.open.items():
            known = self._producers[producer_id]
            life = ProducerLife(producer_id, known.epoch)
            yield BegunTransaction(life, first_offset, known.last_offset, known.coordinator_epoch)

    def check(self, batch: BatchInfo) -> Duplicate | Code | None:
        """Return None if the batch may be appended, a Duplicate with its offsets if it is one of
        the producer's last five batches, or the error code for an older epoch, a gap in the
        sequence, or a batch outside the producer's open transaction. A producer that is not
        remembered may begin at any sequence."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            return None
        verdict = _check_order(batch, producer)
        begun = self.transactions.open
        if verdict is None and begun and batch.producer_id in begun:
            outside = not batch.attributes & TRANSACTIONAL
            return Code.INVALID_TXN_STATE if outside else None
        return verdict

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> Code:
        """Return NONE if a marker may end the producer's transaction, or the error if it is of an
        older epoch of the producer, or of an older coordinator, than the log knows."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return Code.NONE
        if epoch < producer.epoch:
            return Code.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < producer.coordinator_epoch:
            return Code.TRANSACTION_COORDINATOR_FENCED
        return Code.NONE

    def update(self, batch: BatchInfo) -> None:
        """Record a batch that is in the log; do nothing if it has no idempotent producer. Its
        sequence is not checked, since a follower trusts its leader. Above `PRODUCERS_MAX` the
        producers that wrote longest ago are forgotten. For a batch of a transaction call
        `update_transactional` or `end_transaction`."""
        producer_id = batch.producer_id
        if producer_id < 0 or batch.base_sequence < 0:
            return
        producer = self._producers.get(producer_id)
        new = producer is None
        if producer is None or producer.epoch != batch.producer_epoch:
            producer = self._begin(batch, producer)
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

    def update_transactional(self, batch: BatchInfo) -> None:
        """Record a batch of a transaction that is in the log. It opens the producer's transaction
        if none is open. A batch without records, the rest that a cleaner left, opens none: cleaning
        ends below the LSO, so its transaction has ended."""
        if batch.count:
            self.transactions.begin(batch.producer_id, batch.base_offset)
        if batch.base_sequence >= 0:
            self.update(batch)
        else:
            self._unnumbered(batch)

    def end_transaction(self, batch: BatchInfo, coordinator_epoch: int) -> EndedTransaction | None:
        """Record an end marker that is in the log; `batch`: its batch. Return the transaction that
        it ends, or None if the producer has none open. Later batches of an older epoch than the
        marker's are refused."""
        self._unnumbered(batch).coordinator_epoch = coordinator_epoch
        return self.transactions.end(batch.producer_id, batch.base_offset)

    def _unnumbered(self, batch: BatchInfo) -> _Producer:
        """Record a batch without a sequence, and return its producer."""
        producer_id = batch.producer_id
        producer = self._producers.get(producer_id)
        new = producer is None
        if producer is None or producer.epoch != batch.producer_epoch:
            producer = self._begin(batch, producer)
        last = batch.base_offset + batch.last_offset_delta
        producer.unnumbered = _Batch(_NO_SEQUENCE, _NO_SEQUENCE, last, 0, batch.max_timestamp)
        producer.idle_since_ms = None
        if self._memory is not None:
            self.written_at = self._memory.came
            if new:
                self._memory.added(1)
        return producer

    def _begin(self, batch: BatchInfo, before: _Producer | None) -> _Producer:
        """Begin the state of the epoch of the batch's producer, and return it. `before`: the state
        of its earlier epoch; None for a new producer, for which others may be forgotten."""
        if before is None and len(self._producers) >= self._full_at:
            self._make_room()
        producer = self._producers[batch.producer_id] = _Producer(batch.producer_epoch, before)
        return producer

    def _undecided(self) -> set[int]:
        """Return the ids of the producers with an undecided transaction, which are never
        forgotten."""
        transactions = self.transactions
        return {*transactions.open, *(each.producer_id for each in transactions.ended)}

    def _make_room(self) -> None:
        """Forget the producers that wrote longest ago. If most have an undecided transaction, so
        that they stay, try again only after a share of newcomers: each try goes through all."""
        self.forget_to(_LEFT)
        left = len(self._producers)
        self._full_at = max(PRODUCERS_MAX, left + max((PRODUCERS_MAX - _LEFT) // 2, left // 8))

    def forget_to(self, most: int) -> None:
        """Forget all producers but those `most` that wrote most recently, and those with an
        undecided transaction. A client may invent any number of producer ids, and no producer that
        writes now may be refused for that."""
        gone = len(self._producers) - most
        if gone <= 0:
            return
        # No two end with the same offset: each batch has one producer.
        written_to = sorted(each.last_offset for each in self._producers.values())
        newest_gone, kept = written_to[gone - 1], self._undecided()
        for producer_id, each in list(self._producers.items()):
            if each.last_offset <= newest_gone and producer_id not in kept:
                del self._producers[producer_id]

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> None:
        """Forget the producers that have not written for `expiration_ms`, unless they have an
        undecided transaction.

        Idle time is counted by the broker's clock from the first call that finds the producer idle,
        not by record timestamps: a client that writes old timestamps is not idle.
        """
        kept = self._undecided() if self.transactions else ()
        for producer_id, producer in list(self._producers.items()):
            if producer.idle_since_ms is None or producer_id in kept:
                producer.idle_since_ms = now_ms
            elif now_ms - producer.idle_since_ms >= expiration_ms:
                del self._producers[producer_id]

    def snapshot(self) -> list[ProducerEntry]:
        begun = self.transactions.open
        ended = [
            ProducerEntry(
                each.producer_id,
                self._producers[each.producer_id].epoch,
                _ENDED,
                each.last_offset,
                0,
                each.first_offset,
            )
            for each in self.transactions.ended
        ]
        return ended + [
            ProducerEntry(
                producer_id,
                producer.epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                batch.timestamp,
                producer.coordinator_epoch,
                begun.get(producer_id, -1),
            )
            for producer_id, producer in sorted(self._producers.items())
            for batch in producer.batches or (producer.last,)
        ]

    def restore(self, entries: Iterable[ProducerEntry]) -> None:
        """Replace all producers by those of a snapshot. The caller then passes the later batches to
        `update`."""
        self._producers.clear()
        begun: dict[int, int] = {}
        ended: list[EndedTransaction] = []
        for entry in entries:
            if entry.last_sequence == _ENDED:
                first, last = entry.timestamp, entry.last_offset
                ended.append(EndedTransaction(entry.producer_id, first, last, first))
                continue
            producer = self._producers.get(entry.producer_id)
            if producer is None or producer.epoch != entry.producer_epoch:
                producer = self._producers[entry.producer_id] = _Producer(entry.producer_epoch)
            producer.coordinator_epoch = entry.coordinator_epoch
            if entry.transaction_start >= 0:
                begun[entry.producer_id] = entry.transaction_start
            if entry.last_sequence < 0:
                producer.unnumbered = _Batch(
                    _NO_SEQUENCE, _NO_SEQUENCE, entry.last_offset, 0, entry.timestamp
                )
                continue
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
        self.transactions.restore(begun.items(), ended)
        if self._memory is not None:
            self._memory.read_back(self)

    def clear(self) -> None:
        self._producers.clear()
        self._full_at = PRODUCERS_MAX
        self.transactions.clear()


def _check_order(batch: BatchInfo, producer: _Producer) -> Duplicate | Code | None:
    """Check the epoch and the sequence of a producer's batch, as `ProducerStates.check` does."""
    if batch.producer_epoch != producer.epoch:
        return _check_new_epoch(batch, producer)
    first = batch.base_sequence
    if first == (producer.last.last_sequence + 1) % _SEQUENCES:
        return None
    last = (first + batch.last_offset_delta) % _SEQUENCES
    for known in reversed(producer.batches):
        if known.first_sequence == first and known.last_sequence == last:
            return Duplicate(known.last_offset - known.offset_delta, known.last_offset)
    return Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def _check_new_epoch(batch: BatchInfo, producer: _Producer) -> Code | None:
    if batch.producer_epoch < producer.epoch:
        return Code.INVALID_PRODUCER_EPOCH
    if batch.base_sequence != 0:
        return Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    return None

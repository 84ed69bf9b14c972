"""The markers that a shard's decided transactions still need: which may be sent, and to where.

`PendingMarkers` is soft state: a successor makes it anew from its log, and sends all markers of a
transaction again; a partition takes a second one without harm. A marker is sent only once the
decision is committed: before, another coordinator may decide otherwise. Pure: the broker's marker
sender asks `due`, sends, and reports what was heard. Source: KIP-98; docs/protocol.md 4.14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.transactions.operations import MarkerCode
from plimsoll_core.transactions.records import TransactionStored

_DONE = frozenset(
    {
        Code.NONE,
        # The producer has moved on by itself, so it was fenced here.
        Code.INVALID_PRODUCER_EPOCH,
    }
)


@dataclass(slots=True)
class _Ending:
    """One decided transaction. `left`: partitions without an acknowledged marker; `sent`: those of
    them with a marker on its way; `again_ms`: the earliest time to send more."""

    producer: ProducerLife
    commits: bool
    left: set[TopicPartition]
    sent: set[TopicPartition] = field(default_factory=set)
    again_ms: int = 0
    failures: int = 0


class DueMarker(NamedTuple):
    """Markers to send: those of one transaction."""

    transactional_id: str
    producer: ProducerLife
    commits: bool
    partitions: tuple[TopicPartition, ...]


AGAIN_MS, AGAIN_MS_MAX = 20, 1_000
"""The pause before a refused marker is sent again, doubled with each refusal up to the maximum."""


class PendingMarkers:
    """The decided transactions of one shard that still lack markers."""

    __slots__ = ("_endings",)

    def __init__(self) -> None:
        self._endings: dict[str, _Ending] = {}

    def __len__(self) -> int:
        return len(self._endings)

    def names(self) -> Iterable[str]:
        return self._endings

    def begin(self, stored: TransactionStored) -> None:
        """Add a transaction, since its end is in the log."""
        assert stored.status.is_ending, stored
        self._endings[stored.transactional_id] = _Ending(
            stored.producer, stored.commits, set(stored.partitions)
        )

    def end(self, transactional_id: str) -> None:
        """Remove a transaction that is complete."""
        self._endings.pop(transactional_id, None)

    def due(
        self, now_ms: int, is_committed: Callable[[str], bool], exists: Callable[..., bool]
    ) -> Iterator[DueMarker]:
        """Yield the markers to send now, and count them as sent. `is_committed`: returns True if
        all records of an id are committed. `exists`: returns False for a partition of a deleted
        topic, which needs no marker."""
        for name, one in self._endings.items():
            if one.again_ms > now_ms or not is_committed(name):
                continue
            one.left = {partition for partition in one.left if exists(partition)}
            wanted = sorted(one.left - one.sent)
            if wanted or not one.left:
                one.sent.update(wanted)
                yield DueMarker(name, one.producer, one.commits, tuple(wanted))

    def next_ms(self) -> int | None:
        """Return the time of the next look at markers that were refused; None if none was."""
        waiting = (
            one.again_ms
            for one in self._endings.values()
            if one.failures and (not one.left or one.left - one.sent)
        )
        return min(waiting, default=None)

    def heard(self, sent: DueMarker, codes: Iterable[MarkerCode], now_ms: int) -> bool:
        """Record the results of markers that were sent: all of them. Return True if the transaction
        needs no further marker."""
        one = self._endings.get(sent.transactional_id)
        if one is None or one.producer != sent.producer:
            return False
        one.sent.difference_update(sent.partitions)
        done = {partition for partition, code in codes if code in _DONE}
        one.left -= done
        if not one.left or one.left & set(sent.partitions):
            # Without any left it is complete as soon as a record says so, which may be refused.
            one.again_ms = now_ms + min(AGAIN_MS << min(one.failures, 10), AGAIN_MS_MAX)
            one.failures += 1
        return not one.left

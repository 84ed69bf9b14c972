"""Which open transactions of the logs led here may lack a marker, and how they end.

An unclean election may lose a marker, or what a coordinator knew of a transaction. The transaction
then stays open in its log, and readers of committed records wait for ever. So a leader asks the
coordinators about each transaction to which nothing was appended for a while. `Suspects` decides
what to ask about, and what the answers permit: the leader writes the marker itself, but only if the
transaction's records are still the same. Whatever the producer adds meanwhile is then part of no
other transaction. Pure. Source: docs/protocol.md §4.14.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.transactions.operations import TransactionFate

QUIET_MS = 5_000
"""The time without a further batch after which a transaction is asked about."""
AGAIN_MS = 30_000
"""The time between two questions about a transaction that is open, or of an unknown producer."""
UNKNOWN_MS = 60_000
"""The time for which no coordinator may know a producer until its transaction is over. All of them
are asked, and again: none of them may have moved between brokers in the meantime each time."""
ASKED_MAX = 200
"""The most transactions asked about at once."""


class OpenTransaction(NamedTuple):
    """An open transaction in a log led here. `first_offset`: that of its first record;
    `last_offset`: the last one that its producer wrote."""

    partition: TopicPartition
    leader_epoch: int
    producer: ProducerLife
    first_offset: int
    last_offset: int


class LostMarker(Enum):
    """The marker that a transaction lacks."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(slots=True)
class _Suspect:
    """`ask_ms`: when to ask about it. `unknown_ms`: since when no coordinator has known its
    producer; None if one does, or could not answer."""

    ask_ms: int
    unknown_ms: int | None = None


class Suspects:
    """The open transactions of all logs led by one broker."""

    def __init__(self) -> None:
        self._known: dict[OpenTransaction, _Suspect] = {}

    def look(self, found: Iterable[OpenTransaction], now_ms: int) -> list[OpenTransaction]:
        """Return the transactions to ask about now. `found`: all that are open now; one that has
        grown counts as another one."""
        known, self._known = self._known, {}
        for one in found:
            self._known[one] = known.get(one) or _Suspect(now_ms + QUIET_MS)
        due = [one for one, state in self._known.items() if state.ask_ms <= now_ms][:ASKED_MAX]
        for one in due:
            self._known[one].ask_ms = now_ms + AGAIN_MS
        return due

    def heard(
        self, one: OpenTransaction, answers: Iterable[TransactionFate | Code], now_ms: int
    ) -> LostMarker | None:
        """Return the marker that the transaction lacks; None if it is open, or may be. `answers`:
        those of all brokers that lead a partition of `__transaction_state`: its fate,
        INVALID_PRODUCER_ID_MAPPING from a broker that does not know its producer, or another error
        from one that cannot tell, or if this broker does not know for certain which ones lead."""
        told = set(answers)
        state = self._known.get(one)
        if state is None:
            return None
        if told == {Code.INVALID_PRODUCER_ID_MAPPING}:
            if state.unknown_ms is None:
                state.unknown_ms = now_ms
            return LostMarker.ABORT if now_ms - state.unknown_ms >= UNKNOWN_MS else None
        state.unknown_ms = None
        if TransactionFate.OPEN in told:
            return None
        # Its marker may be refused, as an answer was: then it is asked about again soon.
        state.ask_ms = now_ms + QUIET_MS
        if TransactionFate.COMMITTED in told:
            return LostMarker.COMMIT
        return LostMarker.ABORT if TransactionFate.ABORTED in told else None

"""The inputs of each decision about transactions: one shard's state, the time and the settings.

`transactions.step` passes a `TransactionTurn` for each operation to the rules. Rules read `state`
and may write `soft`, which is lost at a failover: a successor sets every deadline again, and sends
the markers of decided transactions again.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_core.coordination.deadlines import Deadlines
from plimsoll_core.transactions.markers import PendingMarkers
from plimsoll_core.transactions.parked import ParkedRequests
from plimsoll_core.transactions.settings import TransactionSettings
from plimsoll_core.transactions.state import TransactionsState


@dataclass(frozen=True, slots=True)
class OverdueAt:
    """A deadline: the timeout of an id's transaction."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ExpiryAt:
    """A deadline: check whether an id was idle for too long."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ParkedUntil:
    """A deadline: the longest wait of an id's requests for the markers of its transaction."""

    transactional_id: str


class SoftTransactions:
    """The state of one shard that is not in the log. It is lost when this coordinator ends."""

    __slots__ = ("deadlines", "markers", "parked")

    def __init__(self) -> None:
        # By `OverdueAt`, `ExpiryAt` and `ParkedUntil`, on the monotonic clock.
        self.deadlines = Deadlines()
        self.markers = PendingMarkers()
        self.parked = ParkedRequests()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTurn:
    """The inputs of one operation. `state`: rules read it and never write it. `now_ms`: monotonic
    time, for deadlines; `wall_ms`: milliseconds since 1970, for records; `believed_ms`: the same
    for decisions about age, None while the wall clock is not trusted."""

    state: TransactionsState
    soft: SoftTransactions
    settings: TransactionSettings
    now_ms: int
    wall_ms: int
    believed_ms: int | None

"""Requests that wait until the markers of a transactional id's transaction are written.

Without it a client hears CONCURRENT_TRANSACTIONS and asks again after a pause that is longer than
the markers take. The requests of one id are decided anew, in order, once its transaction is
complete; after a while they hear CONCURRENT_TRANSACTIONS. Soft state: lost at a failover. Pure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from plimsoll_core.transactions.operations import TransactionOperation

PARKED_MS_MAX = 1_000
"""The longest wait of a request for the markers. Later requests of its connection wait behind
it."""
OF_ONE_ID = 8
"""The most requests that wait for one transactional id. Further ones are refused at once."""


class ParkedRequest(NamedTuple):
    """A request that waits: its operation and its token."""

    op: TransactionOperation
    token: Any


class ParkedRequests:
    """The waiting requests of one shard."""

    __slots__ = ("_by_id", "_released")

    def __init__(self) -> None:
        self._by_id: dict[str, list[ParkedRequest]] = {}
        self._released: list[ParkedRequest] = []

    def add(self, op: TransactionOperation, token: Any) -> bool:
        """Have a request wait. Return False if too many of its id wait already."""
        assert hasattr(op, "transactional_id"), op
        waiting = self._by_id.setdefault(op.transactional_id, [])
        if len(waiting) >= OF_ONE_ID:
            return False
        waiting.append(ParkedRequest(op, token))
        return True

    def release(self, transactional_id: str) -> None:
        """Have the requests of an id decided anew, since its transaction is complete."""
        self._released += self._by_id.pop(transactional_id, ())

    def take_released(self) -> list[ParkedRequest]:
        """Remove and return the requests to decide anew, in order."""
        taken, self._released = self._released, []
        return taken

    def take(self, transactional_id: str) -> list[ParkedRequest]:
        """Remove and return the waiting requests of an id."""
        return self._by_id.pop(transactional_id, [])

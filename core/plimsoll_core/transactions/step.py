"""The only switch over the operations on transactional ids: an operation in, a
`CoordinatorOutcome` out.

Called by the broker's transaction shard, by the simulator through it, and by tests. It decides
nothing itself and changes nothing durable: the shard appends the outcome's records, applies them,
and calls `settled` for each id that they change, which sets its deadlines and begins its markers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll_core.transactions import operations as o
from plimsoll_core.transactions.admin import describe_transaction, list_transactions
from plimsoll_core.transactions.checks import (
    TransactionOutcome,
    answered,
    check_named,
    end_wait,
)
from plimsoll_core.transactions.end import (
    end_overdue,
    end_transaction,
    expire_id,
    markers_written,
)
from plimsoll_core.transactions.init import init_producer
from plimsoll_core.transactions.partitions import (
    add_partitions,
    tell_fates,
    verify_partitions,
)
from plimsoll_core.transactions.records import Status, TransactionStored
from plimsoll_core.transactions.turn import ExpiryAt, OverdueAt, ParkedUntil, TransactionTurn

_RULES: dict[type, Callable[[TransactionTurn, Any, Any], TransactionOutcome]] = {
    o.InitProducer: init_producer,
    o.AddToTransaction: add_partitions,
    o.VerifyPartitions: verify_partitions,
    o.TellFates: tell_fates,
    o.EndTransaction: end_transaction,
    o.MarkersWritten: markers_written,
    o.EndOverdue: end_overdue,
    o.EndWait: end_wait,
    o.ExpireId: expire_id,
    o.DescribeTransaction: describe_transaction,
    o.ListTransactions: list_transactions,
}


def step(turn: TransactionTurn, op: o.TransactionOperation, token: object) -> TransactionOutcome:
    """Decide one operation. `token`: identifies the client's request; None if no client waits."""
    if not isinstance(op, o.ListTransactions) and (refusal := check_named(op.transactional_id)):
        return answered(op.transactional_id, token, refusal)
    outcome = _RULES[type(op)](turn, op, token)
    heard = any(reply.token is token for reply in (*outcome.at_once, *outcome.replies))
    assert token is None or heard or outcome.parked, f"no reply to {op}"
    return outcome


def due(key: object) -> o.TransactionOperation:
    """Return the operation that the shard must submit when the deadline with this key has
    passed."""
    match key:
        case OverdueAt(name):
            return o.EndOverdue(transactional_id=name)
        case ExpiryAt(name):
            return o.ExpireId(transactional_id=name)
        case ParkedUntil(name):
            return o.EndWait(transactional_id=name)
        case _:
            raise AssertionError(f"no deadline has the key {key!r}")


def settled(turn: TransactionTurn, transactional_id: str) -> None:
    """Set the deadlines of an id with newly applied records, and begin the markers of a decided
    transaction or end those of a complete one: requests that waited for them are decided anew."""
    stored, soft = turn.state.find(transactional_id), turn.soft
    overdue, expiry = OverdueAt(transactional_id), ExpiryAt(transactional_id)
    if stored is None:
        soft.deadlines.clear(overdue)
        soft.deadlines.clear(expiry)
        _marked(turn, transactional_id)
        return
    if expiry not in soft.deadlines:
        soft.deadlines.set(expiry, turn.now_ms + turn.settings.expiration_check_ms)
    if stored.status is not Status.ONGOING:
        soft.deadlines.clear(overdue)
    elif overdue not in soft.deadlines:
        soft.deadlines.set(overdue, turn.now_ms + _left_ms(turn, stored))
    if stored.status.is_ending:
        soft.markers.begin(stored)
    else:
        _marked(turn, transactional_id)


def _marked(turn: TransactionTurn, transactional_id: str) -> None:
    """Forget the markers of an id's transaction, since none is needed any more."""
    soft = turn.soft
    soft.markers.end(transactional_id)
    soft.deadlines.clear(ParkedUntil(transactional_id))
    soft.parked.release(transactional_id)


def _left_ms(turn: TransactionTurn, stored: TransactionStored) -> int:
    """Return the time until the transaction's timeout: all of it while the clock is not trusted."""
    if turn.believed_ms is None:
        return stored.timeout_ms
    return min(max(stored.start_ms + stored.timeout_ms - turn.believed_ms, 0), stored.timeout_ms)


def loaded(turn: TransactionTurn) -> None:
    """Set the deadlines of all ids after a load, and begin the markers of decided transactions."""
    for name in turn.state.ids:
        settled(turn, name)

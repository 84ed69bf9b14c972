"""EndTxn, and the ends that no producer asks for: decides a transaction, for good.

A decision is one record (PrepareCommit or PrepareAbort); its client is answered when that is
committed, and the markers follow. Once all are written the transaction is complete. A transaction
that outlives its timeout, or an instance that is replaced, is aborted in an epoch above its own, so
that the late instance is fenced by the markers too. Sources: KIP-98; KIP-588 (timeouts).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plimsoll_core.coordination.outcome import CoordinatorOutcome
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife
from plimsoll_core.transactions.checks import (
    TransactionOutcome,
    answered,
    present,
    refused_with,
    until_marked,
)
from plimsoll_core.transactions.operations import (
    EndOverdue,
    EndTransaction,
    ExpireId,
    MarkersWritten,
    TransactionEnded,
)
from plimsoll_core.transactions.records import Status, TransactionForgotten, TransactionStored
from plimsoll_core.transactions.settings import EPOCH_MAX
from plimsoll_core.transactions.turn import ExpiryAt, OverdueAt, TransactionTurn

AGAIN_MS = 1_000
"""The time after which an end that could not be written is tried again."""


def end_transaction(turn: TransactionTurn, op: EndTransaction, token: Any) -> TransactionOutcome:
    """Decide the producer's transaction as it asks. A repeated request for one end succeeds."""
    name = op.transactional_id
    stored = present(turn.state.find(name), op.producer, name, token)
    if not isinstance(stored, TransactionStored):
        return stored
    if stored.status is Status.ONGOING:
        status = Status.PREPARE_COMMIT if op.commits else Status.PREPARE_ABORT
        made = replace(stored, status=status, update_ms=turn.wall_ms)
        return answered(name, token, TransactionEnded(), made)
    if stored.status is Status.EMPTY or stored.commits is not op.commits:
        return refused_with(name, token, Code.INVALID_TXN_STATE)
    if stored.status.is_ending:
        return until_marked(turn, op, token)
    return answered(name, token, TransactionEnded())


def aborted_by_force(
    turn: TransactionTurn, stored: TransactionStored, asked_by: ProducerLife | None = None
) -> TransactionStored:
    """Return the decision to abort an open transaction in the next epoch, which fences the instance
    that wrote it. `asked_by`: that instance if it asks for this itself, with InitProducerId: it may
    ask again."""
    epoch = min(stored.producer_epoch, EPOCH_MAX) + 1
    return replace(
        stored,
        producer_epoch=epoch,
        last_producer_epoch=-1 if asked_by is None else asked_by.epoch,
        status=Status.PREPARE_ABORT,
        update_ms=turn.wall_ms,
    )


def markers_written(turn: TransactionTurn, op: MarkersWritten, token: Any) -> TransactionOutcome:
    """Complete a transaction, since its markers are written. Do nothing if it is complete."""
    stored = turn.state.find(op.transactional_id)
    if stored is None or not stored.status.is_ending or stored.producer != op.producer:
        return CoordinatorOutcome(key=op.transactional_id)
    status = Status.COMPLETE_COMMIT if stored.commits else Status.COMPLETE_ABORT
    made = replace(stored, status=status, partitions=(), start_ms=-1, update_ms=turn.wall_ms)
    return CoordinatorOutcome(key=op.transactional_id, records=(made,))


def end_overdue(turn: TransactionTurn, op: EndOverdue, token: Any) -> TransactionOutcome:
    """Abort the id's transaction, since its timeout has passed. If that cannot be written now, try
    again later."""
    stored = turn.state.find(op.transactional_id)
    if stored is None or stored.status is not Status.ONGOING:
        return CoordinatorOutcome(key=op.transactional_id)
    turn.soft.deadlines.set(OverdueAt(op.transactional_id), turn.now_ms + AGAIN_MS)
    return CoordinatorOutcome(key=op.transactional_id, records=(aborted_by_force(turn, stored),))


def expire_id(turn: TransactionTurn, op: ExpireId, token: Any) -> TransactionOutcome:
    """Forget the id if it was idle for the whole expiration time. Otherwise look again later."""
    name, settings = op.transactional_id, turn.settings
    stored = turn.state.find(name)
    if stored is None:
        return CoordinatorOutcome(key=name)
    now_ms = turn.believed_ms
    # Also for a tombstone: it may not be written now.
    turn.soft.deadlines.set(ExpiryAt(name), turn.now_ms + settings.expiration_check_ms)
    idle = stored.status.is_idle and now_ms is not None
    if idle and now_ms is not None and now_ms - stored.update_ms >= settings.expiration_ms:
        return CoordinatorOutcome(key=name, records=(TransactionForgotten(transactional_id=name),))
    return CoordinatorOutcome(key=name)

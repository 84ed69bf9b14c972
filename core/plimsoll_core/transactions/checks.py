"""Checks with which operations on transactional ids begin: the name, and the producer."""

from __future__ import annotations

from typing import Any

from plimsoll_core.coordination.outcome import CoordinatorOutcome, RefusedAsWhole, Reply
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife
from plimsoll_core.transactions.operations import (
    AddToTransaction,
    EndTransaction,
    EndWait,
    InitProducer,
    TransactionOperation,
)
from plimsoll_core.transactions.parked import PARKED_MS_MAX
from plimsoll_core.transactions.records import TransactionRecord, TransactionStored
from plimsoll_core.transactions.settings import TRANSACTIONAL_ID_BYTES_MAX
from plimsoll_core.transactions.turn import ParkedUntil, TransactionTurn

TransactionOutcome = CoordinatorOutcome[TransactionRecord, TransactionOperation]
CONCURRENT = RefusedAsWhole(
    Code.CONCURRENT_TRANSACTIONS,
    "The markers of this transactional id's transaction are still being written: retry.",
)


def check_named(transactional_id: str) -> RefusedAsWhole | None:
    """Return a refusal if the transactional id is empty or too long, otherwise None."""
    if 0 < len(transactional_id.encode()) <= TRANSACTIONAL_ID_BYTES_MAX:
        return None
    message = (
        f"A transactional id has 1 to {TRANSACTIONAL_ID_BYTES_MAX} bytes: set another "
        "transactional.id."
    )
    return RefusedAsWhole(Code.INVALID_REQUEST, message)


def check_producer(stored: TransactionStored | None, producer: ProducerLife) -> Code:
    """Return NONE if `producer` is the present instance of the transactional id, otherwise
    INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED."""
    if stored is None or stored.producer_id != producer.producer_id:
        return Code.INVALID_PRODUCER_ID_MAPPING
    if stored.producer_epoch != producer.epoch:
        return Code.PRODUCER_FENCED
    return Code.NONE


def present(
    stored: TransactionStored | None, producer: ProducerLife, key: str, token: Any
) -> TransactionStored | TransactionOutcome:
    """Return the state of the transactional id `key` if `producer` is its present instance,
    otherwise the outcome that refuses the operation."""
    code = check_producer(stored, producer)
    return refused_with(key, token, code) if stored is None or code is not Code.NONE else stored


def answered(
    key: str | None, token: Any, answer: object, *records: TransactionRecord
) -> TransactionOutcome:
    """Return the outcome that writes these records and sends the answer once they, and all earlier
    ones of the id, are committed."""
    replies = () if token is None else (Reply(token, answer),)
    return CoordinatorOutcome(key=key, records=records, replies=replies)


def refused_with(key: str, token: Any, code: Code) -> TransactionOutcome:
    return answered(key, token, RefusedAsWhole(code))


def until_marked(
    turn: TransactionTurn,
    op: AddToTransaction | EndTransaction | InitProducer,
    token: Any,
    *records: TransactionRecord,
) -> TransactionOutcome:
    """Return the outcome that writes these records, if any, and has the request wait until the
    markers of its id's transaction are written: it is decided anew then. If too many requests wait,
    it hears CONCURRENT_TRANSACTIONS."""
    name = op.transactional_id
    if token is None or not turn.soft.parked.add(op, token):
        return answered(name, token, CONCURRENT, *records)
    deadline = ParkedUntil(name)
    if deadline not in turn.soft.deadlines:
        turn.soft.deadlines.set(deadline, turn.now_ms + PARKED_MS_MAX)
    return CoordinatorOutcome(key=name, records=records, parked=True)


def end_wait(turn: TransactionTurn, op: EndWait, token: Any) -> TransactionOutcome:
    """Have the id's waiting requests hear CONCURRENT_TRANSACTIONS."""
    waiting = turn.soft.parked.take(op.transactional_id)
    replies = tuple(Reply(one.token, CONCURRENT) for one in waiting)
    return CoordinatorOutcome(key=op.transactional_id, replies=replies)

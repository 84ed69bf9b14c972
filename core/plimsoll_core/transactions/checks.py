"""Checks with which operations on transactional ids begin: the name, and the producer."""

from __future__ import annotations

from typing import Any

from plimsoll_core.coordination.outcome import CoordinatorOutcome, RefusedAsWhole, Reply
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife
from plimsoll_core.transactions.operations import TransactionOperation
from plimsoll_core.transactions.records import TransactionRecord, TransactionStored
from plimsoll_core.transactions.settings import TRANSACTIONAL_ID_BYTES_MAX

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

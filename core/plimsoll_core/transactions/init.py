"""InitProducerId: gives a transactional id's new instance an epoch of its own, and fences the
earlier ones.

No two instances get the same epoch, over any failover: the answer leaves only once the record is
committed. An open transaction of the earlier instance is aborted first, in an epoch above its own,
and the request waits for its markers. Sources: KIP-98, KIP-360 (the epoch that a producer expects).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plimsoll_core.coordination.outcome import CoordinatorOutcome, RefusedAsWhole, Reply
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife
from plimsoll_core.transactions.checks import (
    TransactionOutcome,
    answered,
    refused_with,
    until_marked,
)
from plimsoll_core.transactions.end import aborted_by_force
from plimsoll_core.transactions.memory import charged_bytes
from plimsoll_core.transactions.operations import (
    InitProducer,
    ProducerIdWanted,
    ProducerInitialized,
)
from plimsoll_core.transactions.records import Status, TransactionStored
from plimsoll_core.transactions.settings import EPOCH_MAX
from plimsoll_core.transactions.turn import TransactionTurn

_NO_EPOCH = -1


def init_producer(turn: TransactionTurn, op: InitProducer, token: Any) -> TransactionOutcome:
    """Give the instance that asks the next epoch of the id, or a new producer id."""
    name = op.transactional_id
    if not 0 < op.timeout_ms <= turn.settings.timeout_ms_max:
        return refused_with(name, token, Code.INVALID_TRANSACTION_TIMEOUT)
    stored = turn.state.find(name)
    if stored is None:
        return _begun(turn, op, token)
    if not _may_ask(stored, op.expected):
        return refused_with(name, token, Code.PRODUCER_FENCED)
    if stored.status.is_ending:
        return until_marked(turn, op, token)
    if stored.status is Status.ONGOING:
        present = op.expected if op.expected == stored.producer else None
        return until_marked(turn, op, token, aborted_by_force(turn, stored, present))
    return _next_epoch(turn, op, stored, token)


def _begun(turn: TransactionTurn, op: InitProducer, token: Any) -> TransactionOutcome:
    name = op.transactional_id
    if op.fresh_id is None:
        return _wants_id(name, token)
    made = TransactionStored(
        transactional_id=name,
        producer_id=op.fresh_id,
        producer_epoch=0,
        timeout_ms=op.timeout_ms,
        status=Status.EMPTY,
        update_ms=turn.wall_ms,
        owner=op.principal,
    )
    if not turn.state.memory.of_broker.admits(op.principal, charged_bytes(made)):
        return answered(name, token, no_room(name, op.principal))
    return answered(name, token, ProducerInitialized(made.producer), made)


def no_room(transactional_id: str, owner: str) -> RefusedAsWhole:
    """Return the refusal for an id of a principal that has used up its share of the coordinator's
    memory. Clients try again."""
    whose = f"of {owner}" if owner else "without a known owner"
    message = (
        f"Transactional id {transactional_id} cannot grow: the transactional ids {whose} have used "
        "up their share of this broker's memory. Use fewer of them, or name fewer partitions in a "
        "transaction."
    )
    return RefusedAsWhole(Code.COORDINATOR_LOAD_IN_PROGRESS, message)


def _wants_id(name: str, token: Any) -> TransactionOutcome:
    return CoordinatorOutcome(key=name, at_once=(Reply(token, ProducerIdWanted()),))


def _may_ask(stored: TransactionStored, expected: ProducerLife | None) -> bool:
    """Return True if an instance that expects this producer id and epoch may have been given them:
    the present ones, or those before its own last request, the answer to which it may not have
    heard. A request without expectation is always allowed: it begins a new instance."""
    if expected is None or expected == stored.producer:
        return True
    if expected.epoch == _NO_EPOCH:
        return False
    if expected.producer_id == stored.producer_id:
        return expected.epoch == stored.last_producer_epoch
    # The id was used up, and this instance was given another one.
    return expected == ProducerLife(stored.previous_producer_id, stored.last_producer_epoch)


def _next_epoch(
    turn: TransactionTurn, op: InitProducer, stored: TransactionStored, token: Any
) -> TransactionOutcome:
    name, expected = op.transactional_id, op.expected
    repeats = expected is not None and expected != stored.producer
    if repeats and stored.producer_epoch <= EPOCH_MAX:
        # It repeats a request that was answered: it gets the same answer.
        return answered(name, token, ProducerInitialized(stored.producer))
    last = _NO_EPOCH if expected is None else expected.epoch
    made = replace(
        stored,
        timeout_ms=op.timeout_ms,
        status=Status.EMPTY,
        partitions=(),
        update_ms=turn.wall_ms,
        start_ms=-1,
        last_producer_epoch=last,
    )
    if stored.producer_epoch >= EPOCH_MAX:
        if op.fresh_id is None:
            return _wants_id(name, token)
        previous = stored.producer_id
        made = replace(
            made, producer_id=op.fresh_id, producer_epoch=0, previous_producer_id=previous
        )
    else:
        made = replace(made, producer_epoch=stored.producer_epoch + 1)
    return answered(name, token, ProducerInitialized(made.producer), made)

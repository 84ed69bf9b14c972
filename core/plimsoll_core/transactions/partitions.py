"""AddPartitionsToTxn: adds partitions to a producer's transaction, or verifies that they are part
of it (KIP-890). A transaction begins with its first partition."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plimsoll_core.errors import Code
from plimsoll_core.transactions.checks import (
    CONCURRENT,
    TransactionOutcome,
    answered,
    present,
    refused_with,
)
from plimsoll_core.transactions.init import no_room
from plimsoll_core.transactions.memory import PARTITION_BYTES
from plimsoll_core.transactions.operations import (
    AddToTransaction,
    PartitionsAdded,
    PartitionsVerified,
    VerifyPartitions,
)
from plimsoll_core.transactions.records import Status, TransactionStored
from plimsoll_core.transactions.settings import PARTITIONS_MAX
from plimsoll_core.transactions.turn import TransactionTurn


def add_partitions(turn: TransactionTurn, op: AddToTransaction, token: Any) -> TransactionOutcome:
    """Add partitions to the transaction; begin it if none is open."""
    name = op.transactional_id
    stored = _not_ending(turn, op, token)
    if not isinstance(stored, TransactionStored):
        return stored
    begun = stored.status is Status.ONGOING
    known = set(stored.partitions) if begun else set()
    more = set(op.partitions) - known
    if not more and begun:
        return answered(name, token, PartitionsAdded())
    if len(known) + len(more) > PARTITIONS_MAX:
        return refused_with(name, token, Code.INVALID_REQUEST)
    if not turn.state.memory.of_broker.admits(stored.owner, PARTITION_BYTES * len(more)):
        return answered(name, token, no_room(name, stored.owner))
    made = replace(
        stored,
        status=Status.ONGOING,
        partitions=tuple(sorted(known | more)),
        update_ms=turn.wall_ms,
        start_ms=stored.start_ms if begun else turn.wall_ms,
    )
    return answered(name, token, PartitionsAdded(), made)


def verify_partitions(
    turn: TransactionTurn, op: VerifyPartitions, token: Any
) -> TransactionOutcome:
    """Answer which of the partitions are part of the producer's open transaction."""
    name = op.transactional_id
    stored = _not_ending(turn, op, token)
    if not isinstance(stored, TransactionStored):
        return stored
    parts = stored.partitions if stored.status is Status.ONGOING else ()
    return answered(name, token, PartitionsVerified(frozenset(op.partitions) & frozenset(parts)))


def _not_ending(
    turn: TransactionTurn, op: AddToTransaction | VerifyPartitions, token: Any
) -> TransactionStored | TransactionOutcome:
    """Return the state of the operation's id. Return the outcome that refuses the operation if its
    producer is not the present instance, or if the id's transaction is ending."""
    name = op.transactional_id
    stored = present(turn.state.find(name), op.producer, name, token)
    if isinstance(stored, TransactionStored) and stored.status.is_ending:
        return answered(name, token, CONCURRENT)
    return stored

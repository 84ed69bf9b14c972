"""AddPartitionsToTxn: adds partitions to a producer's transaction, or verifies that they are part
of it (KIP-890). A transaction begins with its first partition."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plimsoll_core.errors import Code
from plimsoll_core.ids import TopicPartition
from plimsoll_core.transactions.checks import (
    CONCURRENT,
    TransactionOutcome,
    answered,
    present,
    refused_with,
    until_marked,
)
from plimsoll_core.transactions.init import no_room
from plimsoll_core.transactions.memory import PARTITION_BYTES
from plimsoll_core.transactions.operations import (
    AddToTransaction,
    FatesTold,
    PartitionsAdded,
    PartitionsVerified,
    TellFates,
    TransactionFate,
    VerifyPartitions,
)
from plimsoll_core.transactions.records import Status, TransactionStored
from plimsoll_core.transactions.settings import PARTITIONS_MAX
from plimsoll_core.transactions.turn import TransactionTurn


def add_partitions(turn: TransactionTurn, op: AddToTransaction, token: Any) -> TransactionOutcome:
    """Add partitions to the transaction; begin it if none is open."""
    name = op.transactional_id
    stored = present(turn.state.find(name), op.producer, name, token)
    if not isinstance(stored, TransactionStored):
        return stored
    if stored.status.is_ending:
        return until_marked(turn, op, token)
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
    stored = present(turn.state.find(name), op.producer, name, token)
    if not isinstance(stored, TransactionStored):
        return stored
    if stored.status.is_ending:
        return answered(name, token, CONCURRENT)
    parts = stored.partitions if stored.status is Status.ONGOING else ()
    return answered(name, token, PartitionsVerified(frozenset(op.partitions) & frozenset(parts)))


def tell_fates(turn: TransactionTurn, op: TellFates, token: Any) -> TransactionOutcome:
    """Answer what became of the producer's transaction in each partition. It is over if the
    partition is part of no transaction that is open or ending. Then it counts as aborted unless it
    is known to have been committed."""
    name, producer = op.transactional_id, op.producer
    stored = turn.state.find(name)
    if stored is None or producer.producer_id not in stored.producer_ids:
        return refused_with(name, token, Code.INVALID_PRODUCER_ID_MAPPING)
    present_id = producer.producer_id == stored.producer_id
    not_over = frozenset(stored.partitions) if present_id else frozenset()

    def fate(partition: TopicPartition) -> TransactionFate:
        if partition in not_over:
            return TransactionFate.OPEN
        committed = turn.state.recent_commits.has(producer, partition)
        return TransactionFate.COMMITTED if committed else TransactionFate.ABORTED

    return answered(name, token, FatesTold(tuple((one, fate(one)) for one in op.partitions)))

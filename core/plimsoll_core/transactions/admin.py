"""DescribeTransactions and ListTransactions: what administrators see of a shard's ids (KIP-664)."""

from __future__ import annotations

from typing import Any

from plimsoll_core.errors import Code
from plimsoll_core.transactions.checks import TransactionOutcome, answered, refused_with
from plimsoll_core.transactions.operations import (
    DescribeTransaction,
    ListTransactions,
    TransactionsListed,
)
from plimsoll_core.transactions.records import TransactionStored
from plimsoll_core.transactions.turn import TransactionTurn


def describe_transaction(
    turn: TransactionTurn, op: DescribeTransaction, token: Any
) -> TransactionOutcome:
    name = op.transactional_id
    stored = turn.state.find(name)
    if stored is None:
        return refused_with(name, token, Code.TRANSACTIONAL_ID_NOT_FOUND)
    return answered(name, token, stored)


def list_transactions(
    turn: TransactionTurn, op: ListTransactions, token: Any
) -> TransactionOutcome:
    """List the ids with one of the wanted states and producer ids; once all records of the shard
    are committed."""

    def wanted(stored: TransactionStored) -> bool:
        if op.states and stored.status.kafka_name.lower() not in op.states:
            return False
        if op.producer_ids and stored.producer_id not in op.producer_ids:
            return False
        if op.running_ms < 0:
            return True
        return stored.start_ms >= 0 and turn.wall_ms - stored.start_ms > op.running_ms

    found = tuple(known.stored for known in turn.state.ids.values() if wanted(known.stored))
    return answered(None, token, TransactionsListed(found))

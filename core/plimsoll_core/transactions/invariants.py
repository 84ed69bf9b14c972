"""Which record of a transactional id may follow which, for the simulator and the tests.

Not called in production: `step` makes no other records. Source: Kafka's `TransactionState` (valid
previous states).
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll_core.transactions.records import Status, TransactionStored

_E, _O = Status.EMPTY, Status.ONGOING
_IDLE = frozenset({Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT})
_BEFORE: dict[Status, frozenset[Status]] = {
    Status.EMPTY: _IDLE,
    Status.ONGOING: _IDLE | {_O},
    Status.PREPARE_COMMIT: frozenset({_O}),
    Status.PREPARE_ABORT: frozenset({_O}),
    Status.COMPLETE_COMMIT: frozenset({Status.PREPARE_COMMIT}),
    Status.COMPLETE_ABORT: frozenset({Status.PREPARE_ABORT}),
}


def unsound(before: TransactionStored | None, after: TransactionStored) -> Iterator[str]:
    """Yield a sentence for each rule that the record breaks. `before`: the id's record before it;
    None if it had none."""
    if before is None:
        if after.status is not Status.EMPTY:
            yield f"{after.transactional_id} begins as {after.status.kafka_name}"
        return
    if before.status not in _BEFORE[after.status]:
        yield f"{after.status.kafka_name} after {before.status.kafka_name}: {before}, {after}"
    if after.producer_id == before.producer_id and after.producer_epoch < before.producer_epoch:
        yield f"the epoch goes back: {before}, {after}"
    if after.producer_id != before.producer_id and after.status is not Status.EMPTY:
        yield f"another producer id in a transaction: {before}, {after}"
    grows = after.status is Status.ONGOING and before.status is Status.ONGOING
    if grows and not set(before.partitions) <= set(after.partitions):
        yield f"a transaction loses partitions: {before}, {after}"
    if after.status.is_ending and after.partitions != before.partitions:
        yield f"a decision changes the partitions: {before}, {after}"
    if after.producer_epoch != before.producer_epoch and after.status not in (
        Status.EMPTY,
        Status.PREPARE_ABORT,
    ):
        yield f"the epoch changes: {before}, {after}"

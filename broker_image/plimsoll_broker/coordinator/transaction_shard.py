"""TransactionShard: the transactional ids of one partition of `__transaction_state`, for one leader
epoch here.

It decides nothing: `plimsoll_core.transactions.step` does, and only `apply` changes durable state.
Its life and its appends are those of every `CoordinatorShard`. The markers of decided transactions
are sent by `marker_sender`, which asks for them here and reports what it heard. Source:
docs/protocol.md §4.14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.coordinator_shard import CoordinatorShard
from plimsoll_broker.coordinator.shard_log import LoadSlices, read_batches, read_records
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_core.ids import TopicPartition
from plimsoll_core.replica.leader import Leader
from plimsoll_core.transactions.checks import TransactionOutcome
from plimsoll_core.transactions.markers import DueMarker
from plimsoll_core.transactions.memory import TransactionMemory
from plimsoll_core.transactions.operations import (
    MarkerCode,
    MarkersWritten,
    TransactionOperation,
)
from plimsoll_core.transactions.records import TransactionRecord
from plimsoll_core.transactions.settings import TransactionSettings
from plimsoll_core.transactions.state import TransactionsState, apply, skip
from plimsoll_core.transactions.step import due, loaded, settled, step
from plimsoll_core.transactions.turn import SoftTransactions, TransactionTurn
from plimsoll_wire.record_sets import KeyValue
from plimsoll_wire.transaction_records import decode_transaction_record, encode_transaction_record


class TransactionShard(CoordinatorShard[TransactionRecord, TransactionOperation]):
    """Coordinates the transactional ids of one partition of `__transaction_state`, for one leader
    epoch. `due_markers`: called when markers may be due. Used from the event loop."""

    def __init__(
        self,
        manager: ReplicaManager,
        hosted: Hosted,
        leader: Leader,
        settings: TransactionSettings,
        memory: TransactionMemory | None = None,
    ) -> None:
        self.soft = SoftTransactions()
        super().__init__(manager, hosted, leader, self.soft.deadlines, settings.commit_timeout_ms)
        self.markers_due: Callable[[], None] = lambda: None
        self.state = TransactionsState(memory)
        self._settings = settings
        # The high watermark at which markers were last looked for.
        self._looked_at = -1

    # --- its load -------------------------------------------------------------------------------

    async def load(self) -> int:
        """Apply the whole log as it is at the start of the leader epoch, unless leadership ends
        before. Return the number of records. Raise UnreadableLog if it cannot be read."""
        log, slices = self.hosted.log, LoadSlices()
        end = log.log_end_offset
        for header, body in read_batches(self, log.log_start_offset, end):
            for offset, record in read_records(self, header, body, decode_transaction_record):
                if record is not None:
                    apply(self.state, record, offset)
                slices.count += 1
            await slices.look()
        if self.leads:
            self.skip(end - 1)
        return slices.count

    def skip(self, offset: int) -> None:
        """Count the record at `offset` as replayed, although it is not applied."""
        skip(self.state, offset)

    # --- markers --------------------------------------------------------------------------------

    def stepped(self) -> None:
        """Have markers looked for if the high watermark has moved while transactions end."""
        high_watermark = self.hosted.replica.high_watermark
        if len(self.soft.markers) and high_watermark != self._looked_at:
            self._looked_at = high_watermark
            self.markers_due()

    def take_markers(self) -> list[DueMarker]:
        """Return the markers to send now, and count them as sent. Only those of decisions that are
        committed; none of a shard that is not active, or no longer leads."""
        if not self.leads or self.active_since_ms is None:
            return []
        found = self.soft.markers.due(self._manager.now_ms(), self._is_committed, self._exists)
        return list(found)

    def heard_markers(self, sent: DueMarker, codes: Iterable[MarkerCode]) -> None:
        """Record the results of sent markers; complete the transaction if all of its are
        written."""
        if self.soft.markers.heard(sent, codes, self._manager.now_ms()):
            name, producer = sent.transactional_id, sent.producer
            self.order(MarkersWritten(transactional_id=name, producer=producer))

    def _is_committed(self, transactional_id: str) -> bool:
        return self.state.written_to(transactional_id) <= self.hosted.replica.high_watermark

    def _exists(self, partition: TopicPartition) -> bool:
        """Return False if the partition certainly does not exist any more."""
        image = self._manager.image
        if image is None or not self.metadata_fresh:
            return True
        return image.partition_named(*partition) is not None

    # --- as every shard -------------------------------------------------------------------------

    def _turn(self) -> TransactionTurn:
        return TransactionTurn(
            state=self.state,
            soft=self.soft,
            settings=self._settings,
            now_ms=self._manager.now_ms(),
            wall_ms=self._clock.stamp_ms(),
            believed_ms=self._clock.now_ms(),
        )

    def _loaded(self) -> None:
        loaded(self._turn())
        self.markers_due()

    def _freed(self) -> None:
        self.state.memory.close()

    def _decided(self, op: TransactionOperation, asker: Asker | None) -> TransactionOutcome:
        return step(self._turn(), op, asker)

    def decide(self, op: TransactionOperation, asker: Asker | None) -> None:
        super().decide(op, asker)
        while released := self.soft.parked.take_released():
            for one in released:
                super().decide(*one)

    def _encoded(self, record: TransactionRecord) -> KeyValue:
        return encode_transaction_record(record)

    def _applied(
        self, key: str | None, records: list[tuple[int, TransactionRecord]], size: int
    ) -> None:
        turn: Any = None
        for offset, record in records:
            apply(self.state, record, offset)
            turn = turn or self._turn()
            settled(turn, record.transactional_id)
            stored = self.state.find(record.transactional_id)
            if stored is not None:
                self._manager.disk_shares.recorded(stored.owner, size)

    def _written_to(self, key: str | None) -> int:
        return self.state.written_to(key)

    def _committed(self, high_watermark: int) -> None:
        self.state.committed(high_watermark)

    def _operation_due(self, key: object) -> TransactionOperation:
        return due(key)

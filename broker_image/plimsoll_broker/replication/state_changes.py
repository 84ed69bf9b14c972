"""StateChanges: state changes that metadata ask of this broker's replicas, received, pending,
completed.

`Roles` reports when a replica is looked at, the replica manager when it is as it should be. A log
that cannot be opened stays pending. It counts for the metrics and writes log lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from immutables import Map

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.cluster.state_changes import (
    CLOSE,
    COMPLETED,
    KINDS,
    RECEIVED,
    ReachedStage,
    Stage,
    StateChange,
    StateChangeKind,
    asked_of,
    fields,
    sentence,
)
from plimsoll_core.ids import BrokerId
from plimsoll_process.state_change_lines import StateChangeLines


class _PendingChanges(NamedTuple):
    """The changes asked of one replica. `since_ms`: since when any has been pending."""

    changes: tuple[StateChange, ...]
    topic: str
    controller_epoch: int
    leads: bool
    since_ms: int


class StateChanges:
    """Owned by the event loop. `now_ms` is its monotonic clock."""

    def __init__(self, broker_id: BrokerId, now_ms: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._lines = StateChangeLines(now_ms)
        # Replicas that are not yet as asked, the oldest first.
        self._pending: dict[PartitionKey, _PendingChanges] = {}
        # By kind, since the process began; every kind is present from the start.
        self.received: Counter[StateChangeKind] = Counter(dict.fromkeys(KINDS, 0))
        self.completed: Counter[StateChangeKind] = Counter(dict.fromkeys(KINDS, 0))

    @property
    def pending(self) -> int:
        """The number of state changes received and not completed."""
        return sum(len(one.changes) for one in self._pending.values())

    @property
    def pending_ms(self) -> int:
        """How long the oldest has been pending, in ms."""
        oldest = next(iter(self._pending.values()), None)
        return 0 if oldest is None else self._now_ms() - oldest.since_ms

    def ask(self, image: ClusterImage, before: Partition | None, after: Partition) -> None:
        """Note the changes that lead from `before` (None: not hosted) to `after`."""
        kinds = asked_of(self._broker_id, before, after)
        topic = image.topics.get(after.topic_id)
        if kinds and topic is not None:
            self._receive(after, kinds, topic.name, image.controller_epoch)

    def done(self, key: PartitionKey) -> None:
        """The replica is as asked."""
        found = self._pending.pop(key, None)
        if found is not None:
            self._tell(COMPLETED, found, self.completed)

    def keep(self, wanted: Map[PartitionKey, None]) -> None:
        """Drop changes of replicas that were never opened and are no longer wanted."""
        for key in [key for key in self._pending if key not in wanted]:
            del self._pending[key]

    def closed(self, partition: Partition, topic: str, image: ClusterImage | None) -> None:
        """A replica has been closed and dropped."""
        controller_epoch = 0 if image is None else image.controller_epoch
        self._pending.pop(partition.key, None)
        self._receive(partition, (CLOSE,), topic, controller_epoch)
        self.done(partition.key)

    def _receive(
        self,
        partition: Partition,
        kinds: tuple[StateChangeKind, ...],
        topic: str,
        controller_epoch: int,
    ) -> None:
        key, known = partition.key, self._pending.get(partition.key)
        changes = tuple(
            StateChange(kind, key, self._broker_id, partition.leader_epoch) for kind in kinds
        )
        if known is not None and known.changes == changes:
            return
        since_ms = self._now_ms() if known is None else known.since_ms
        leads = partition.leader == self._broker_id
        self._pending[key] = found = _PendingChanges(
            changes, topic, controller_epoch, leads, since_ms
        )
        self._tell(RECEIVED, found, self.received)

    def _tell(self, stage: Stage, found: _PendingChanges, counts: Counter[StateChangeKind]) -> None:
        for change in found.changes:
            counts[change.kind] += 1
            if self._lines.room:
                told = ReachedStage(stage, change, found.topic, found.controller_epoch)
                self._lines.write(sentence(told, leads=found.leads), fields(told))

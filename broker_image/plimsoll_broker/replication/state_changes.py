"""The state changes that metadata ask of this broker's replicas: received, pending, completed.

`Roles` says when a replica's turn has come to be looked at, the replica manager when it is what it
was asked to be.  A log that cannot be opened stays pending.  Counts for metrics, lines for the log.
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
    """What one replica was asked; `since_ms`: since when anything is pending for it."""

    changes: tuple[StateChange, ...]
    topic: str
    controller_epoch: int
    leads: bool
    since_ms: int


class StateChanges:
    """Owned by the event loop.  `now_ms` is its monotonic clock."""

    def __init__(self, broker_id: BrokerId, now_ms: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._lines = StateChangeLines(now_ms)
        # The replicas that are not yet what they were asked to be, those asked first in front.
        self._pending: dict[PartitionKey, _PendingChanges] = {}
        # By kind, since this process began: every kind from the start.
        self.received: Counter[StateChangeKind] = Counter(dict.fromkeys(KINDS, 0))
        self.completed: Counter[StateChangeKind] = Counter(dict.fromkeys(KINDS, 0))

    @property
    def pending(self) -> int:
        """How many state changes were received and are not completed."""
        return sum(len(one.changes) for one in self._pending.values())

    @property
    def pending_ms(self) -> int:
        """For how long the oldest of them has been pending."""
        oldest = next(iter(self._pending.values()), None)
        return 0 if oldest is None else self._now_ms() - oldest.since_ms

    def ask(self, image: ClusterImage, before: Partition | None, after: Partition) -> None:
        """A replica is to be as `after` has it; it is as `before` has it, None: not here."""
        kinds = asked_of(self._broker_id, before, after)
        topic = image.topics.get(after.topic_id)
        if kinds and topic is not None:
            self._receive(after, kinds, topic.name, image.controller_epoch)

    def done(self, key: PartitionKey) -> None:
        """The replica is what it was asked to be."""
        found = self._pending.pop(key, None)
        if found is not None:
            self._tell(COMPLETED, found, self.completed)

    def keep(self, wanted: Map[PartitionKey, None]) -> None:
        """Nothing is pending for a replica that was never opened and is not wanted any more."""
        for key in [key for key in self._pending if key not in wanted]:
            del self._pending[key]

    def closed(self, partition: Partition, topic: str, image: ClusterImage | None) -> None:
        """A replica is not to be here any more, and no longer is."""
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

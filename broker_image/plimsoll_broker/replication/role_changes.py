"""Roles: applies newer metadata to this broker's partitions in time slices: dropped partitions
first, then led ones, then followed ones.

A walk visits every partition that is hosted or to be hosted. Its first portion runs with the image
that starts it; `run`, one of the broker's tasks, does the rest. Each partition's state is looked up
in the newest image when its turn comes. If another image came during a walk, another walk follows.
Until its turn a partition stays as it was, like one of a broker with late metadata; its epochs make
that safe. Drops go first, because a name may be deleted and created again. Leaders go before
followers, so that they are ready when followers send requests.

`StateChanges`: the state changes that metadata ask of this broker's replicas (received, pending,
completed), for metrics and log lines. `Roles` reports a replica when it visits it, the replica
manager when the replica has the wanted state. A log that cannot be opened stays pending.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from immutables import Map

from plimsoll_broker.background import SLICE_S
from plimsoll_broker.replication.hosted_partitions import Hosted
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
from plimsoll_core.ids import BrokerId, MetadataOffset
from plimsoll_process.state_change_lines import StateChangeLines


class _PendingChanges(NamedTuple):
    """The state changes of one replica that the metadata ask for and that are not completed.
    `leads`: True if they make this broker the leader. `since_ms`: the monotonic time in ms since
    which the replica has had pending changes."""

    changes: tuple[StateChange, ...]
    topic: str
    controller_epoch: int
    leads: bool
    since_ms: int


class StateChanges:
    """Counts and logs the state changes that the metadata ask of this broker's replicas, as
    received and as completed. `now_ms`: the monotonic clock."""

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
        """The age in ms of the oldest pending change; 0 if there is none."""
        oldest = next(iter(self._pending.values()), None)
        return 0 if oldest is None else self._now_ms() - oldest.since_ms

    def ask(self, image: ClusterImage, before: Partition | None, after: Partition) -> None:
        """Record as received the changes that lead from one state of a partition to another, for
        this broker's replica. `before`: None if the replica is not hosted yet. Do nothing if the
        topic is not in the image or nothing changes for this replica."""
        kinds = asked_of(self._broker_id, before, after)
        topic = image.topics.get(after.topic_id)
        if kinds and topic is not None:
            self._receive(after, kinds, topic.name, image.controller_epoch)

    def done(self, key: PartitionKey) -> None:
        """Count and log the replica's pending changes as completed. Do nothing if there are
        none."""
        found = self._pending.pop(key, None)
        if found is not None:
            self._tell(COMPLETED, found, self.completed)

    def keep(self, wanted: Map[PartitionKey, None]) -> None:
        """Remove the pending changes of replicas that are not in `wanted`, uncounted: these
        replicas were never opened and are no longer assigned here."""
        for key in [key for key in self._pending if key not in wanted]:
            del self._pending[key]

    def closed(self, partition: Partition, topic: str, image: ClusterImage | None) -> None:
        """Count and log that a replica was closed and dropped, as a change both received and
        completed. Its pending changes are removed, uncounted."""
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
        """Count and log the changes as received, unless the same ones are pending."""
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
        """Count each change for this stage, and log it unless too many lines were written
        recently."""
        for change in found.changes:
            counts[change.kind] += 1
            if self._lines.room:
                told = ReachedStage(stage, change, found.topic, found.controller_epoch)
                self._lines.write(sentence(told, leads=found.leads), fields(told))


PORTION = 2_000
"""The cost of one portion of a walk, in units of one look-up of a partition. It takes a few
milliseconds."""
CHANGE = 20
"""The cost of a role change, in units of one look-up. `FILES`: the cost of deleting or making a
log."""
FILES = 100


class RoleOwner(Protocol):
    """The part of the replica manager that `Roles` needs."""

    @property
    def image(self) -> ClusterImage | None: ...
    @property
    def changes(self) -> StateChanges: ...
    def hosts(self) -> list[Hosted]: ...
    def hosted(self, key: PartitionKey) -> Hosted | None: ...
    def drop(self, hosted: Hosted) -> None: ...
    def configure(self, hosted: Hosted) -> None: ...
    def take_role(self, key: PartitionKey) -> None: ...
    def limit_again(self, hosted: Hosted) -> None: ...
    def open(self, key: PartitionKey) -> bool: ...


class Roles:
    """Applies each new metadata image to the hosted partitions, in time slices. `applied`: the
    metadata offset up to which all effects on partitions are done."""

    def __init__(self, broker_id: BrokerId, owner: RoleOwner) -> None:
        self._broker_id = broker_id
        self._owner = owner
        self._walk: Iterator[int] | None = None
        self._again = False
        self._limits_changed = False
        self._begun = asyncio.Event()
        self._walking = MetadataOffset(0)
        self.applied = MetadataOffset(0)

    def update(self, *, everything: bool, limits_changed: bool) -> None:
        """Begin to apply the owner's newest image, which the owner has set before. `everything`:
        True if partitions or topics have changed. `limits_changed`: True if the rate limit of a
        copy has changed. During a walk, another walk is queued behind it; if nothing has changed,
        only `applied` advances."""
        self._limits_changed = self._limits_changed or limits_changed
        image = self._owner.image
        assert image is not None
        if self._walk is not None:
            self._again = True
        elif everything or self._limits_changed:
            self._begin(image)
            self._go_on(None)
        else:
            self.applied = image.next_offset

    async def run(self) -> None:
        """Continue walks, a portion in each turn of the event loop. Runs until cancelled."""
        while True:
            await self._begun.wait()
            self._begun.clear()
            while self._walk is not None:
                # Let other tasks run first: the first portion was done when the image came.
                await asyncio.sleep(0)
                self._go_on(SLICE_S)

    async def finish(self) -> None:
        """Run the present walk, and those queued behind it, to the end, with other tasks in
        between."""
        while self._walk is not None:
            self._go_on(SLICE_S)
            await asyncio.sleep(0)

    def _begin(self, image: ClusterImage) -> None:
        """Begin a walk over all partitions for this image."""
        limits_changed, self._limits_changed = self._limits_changed, False
        self._again = False
        self._walking = image.next_offset
        self._walk = self._steps(image, limits_changed=limits_changed)

    def _go_on(self, slice_s: float | None) -> None:
        """Continue the walk until its steps have cost PORTION look-ups or `slice_s` seconds have
        passed (None: no time limit), and have `run` continue it. At the end of the walk advance
        `applied`, and begin another walk if a newer image has come."""
        walk, left = self._walk, PORTION
        until_s = None if slice_s is None else time.monotonic() + slice_s
        assert walk is not None
        for cost in walk:
            left -= cost
            late = until_s is not None and cost > 1 and time.monotonic() >= until_s
            if left <= 0 or late:
                self._begun.set()
                return
        self._owner.changes.keep(self._wanted())
        self.applied = self._walking
        self._walk = None
        if self._again:
            image = self._owner.image
            assert image is not None
            self._begin(image)
            self._begun.set()

    # --- one walk -------------------------------------------------------------------------------

    def _wanted(self) -> Map[PartitionKey, None]:
        """Return the partitions that the newest image assigns here."""
        image = self._owner.image
        assert image is not None
        return image.hosted.get(self._broker_id, Map())

    def _steps(self, image: ClusterImage, *, limits_changed: bool) -> Iterator[int]:
        """Walk over all partitions. Yield the cost of each step, in look-ups of a partition."""
        yield from self._drops()
        yield from self._roles(image)
        if limits_changed:
            yield from self._limits()

    def _drops(self) -> Iterator[int]:
        """Drop partitions that are no longer assigned here. Yield the cost of each step."""
        owner = self._owner
        left = owner.hosts()
        left.reverse()
        while left:
            hosted = left.pop()  # a loop over the list would free thousands at once in the end
            yield 1
            if hosted.key not in self._wanted() and owner.hosted(hosted.key) is hosted:
                owner.drop(hosted)
                yield FILES

    def _roles(self, image: ClusterImage) -> Iterator[int]:
        """Apply the state of each partition that the image assigns here and that has changed, those
        led here first, and have those that are not hosted yet opened. Yield the cost of each step,
        in look-ups."""
        owner = self._owner
        leading: list[PartitionKey] = []
        following: list[PartitionKey] = []
        # Of this image alone: a newer one may add a topic with the name of a deleted one.
        for key in image.hosted.get(self._broker_id, Map()):
            yield 1
            known = owner.hosted(key)
            partition = image.partitions[key]
            if known is not None:
                owner.configure(known)
                if known.applied is partition:
                    continue
            owner.changes.ask(image, None if known is None else known.applied, partition)
            (leading if partition.leader == self._broker_id else following).append(key)
        for key in (*leading, *following):
            yield 1
            if key not in self._wanted():
                continue
            if owner.hosted(key) is not None:
                owner.take_role(key)
                yield CHANGE
            elif owner.open(key):
                yield FILES

    def _limits(self) -> Iterator[int]:
        """Apply changed rate limits to all partitions. Yield the cost of each step."""
        owner = self._owner
        for hosted in owner.hosts():
            yield 1
            if owner.hosted(hosted.key) is hosted:
                owner.limit_again(hosted)

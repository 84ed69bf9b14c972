"""Roles: applies newer metadata to this broker's partitions in time slices: dropped partitions
first, then led ones, then followed ones.

A walk visits every partition that is hosted or wanted. Its first portion runs with the image that
starts it; `run`, one of the broker's tasks, does the rest. Each partition's state is looked up in
the newest image when its turn comes. If another image came during a walk, another walk follows.
Until its turn a partition stays as it was, like one of a broker with late metadata; its epochs make
that safe. Drops go first, because a name may be deleted and created again. Leaders go before
followers, so that they are ready when followers ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Protocol

from immutables import Map

from plimsoll_broker.background.time_slices import SLICE_S
from plimsoll_broker.replication.hosted_partition import Hosted
from plimsoll_broker.replication.state_changes import StateChanges
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.ids import BrokerId, MetadataOffset

PORTION = 2_000
"""Partitions per turn of the event loop: a few milliseconds."""
CHANGE = 20
"""The cost of a role change, in look-ups; `FILES` is that of dropping or making a log."""
FILES = 100
NEW_AT_ONCE = 10
"""New logs that a walk makes itself; the opener makes the others."""


class RoleOwner(Protocol):
    """The part of the replica manager that a walk needs."""

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
    def open_later(self, key: PartitionKey) -> None: ...


class Roles:
    """`applied`: the metadata offset up to which all effects on partitions are done."""

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
        """The owner has a new image. `everything`: partitions or topics have changed."""
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
        """Run until cancelled."""
        while True:
            await self._begun.wait()
            self._begun.clear()
            while self._walk is not None:
                # Let other tasks run first: the first portion was done when the image came.
                await asyncio.sleep(0)
                self._go_on(SLICE_S)

    async def finish(self) -> None:
        """Complete the walk."""
        while self._walk is not None:
            self._go_on(SLICE_S)
            await asyncio.sleep(0)

    def _begin(self, image: ClusterImage) -> None:
        limits_changed, self._limits_changed = self._limits_changed, False
        self._again = False
        self._walking = image.next_offset
        self._walk = self._steps(image, limits_changed=limits_changed)

    def _go_on(self, slice_s: float | None) -> None:
        """Do one portion, for at most `slice_s`."""
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
        """Yield the cost of each step."""
        yield from self._drops()
        yield from self._roles(image)
        if limits_changed:
            yield from self._limits()

    def _drops(self) -> Iterator[int]:
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
        new = 0
        for key in (*leading, *following):
            yield 1
            if key not in self._wanted():
                continue
            here = owner.hosted(key) is not None
            new += not here
            if here or new <= NEW_AT_ONCE:
                owner.take_role(key)
                yield CHANGE if here else FILES
            else:
                owner.open_later(key)

    def _limits(self) -> Iterator[int]:
        owner = self._owner
        for hosted in owner.hosts():
            yield 1
            if owner.hosted(hosted.key) is hosted:
                owner.limit_again(hosted)

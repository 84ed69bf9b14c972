"""Rereading: one pass through a shard's log for groups that are not in memory.

The loader makes it, and passes it each record and each end marker of the log. The shard goes on
meanwhile: markers that it appends behind the pass's end decide what the pass has read and what it
will read, so they are applied at its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from plimsoll_broker.coordinator.group_shard import GroupShard
from plimsoll_core.groups.records import (
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    OffsetPending,
    TransactionMarked,
)
from plimsoll_core.groups.state import UnloadedGroup, mark


class Rereading:
    """The groups with records that one pass through a shard's log applies again. `group_ids`: None
    for all groups that are not loaded when the pass begins. `keys_alone`: True if the groups are to
    be deleted, so that members and offset metadata are left out. `names`: with `group_ids`, these
    ids; without, the ids found so far; in both cases less those that `give_up` removed."""

    def __init__(
        self, shard: GroupShard, group_ids: Iterable[str] | None, *, keys_alone: bool
    ) -> None:
        self.names: set[str] = set() if group_ids is None else set(group_ids)
        self._shard = shard
        # Groups that are served; None if only named groups are read.
        self._others = set(shard.state.groups) if group_ids is None else None
        self.keys_alone = keys_alone
        # Markers that were written meanwhile; True once they are applied.
        self._later: list[tuple[TransactionMarked, int]] = []
        self._at_end = False

    def give_up(self, group_id: str) -> None:
        """Ignore the further records of this group in this pass, because there is no memory for the
        group; the group stays unloaded."""
        self.names.discard(group_id)
        if self._others is not None:
            self._others.add(group_id)

    def give_up_all(self) -> None:
        """Call `give_up` for each group that this pass reads."""
        for group_id in list(self.names):
            self.give_up(group_id)

    def replay(self, record: GroupRecord, offset: int) -> None:
        """Apply a record of the log to the shard if it belongs to a group that this pass reads."""
        group_id = record.group_id
        if group_id not in self.names:
            if self._others is None or group_id in self._others:
                return
            self.names.add(group_id)
            if group_id not in self._shard.state.unloaded:
                self._shard.state.keep_name(group_id, UnloadedGroup("", 0, 0))
        match record:
            case OffsetCommitted() if self.keys_alone:
                record = replace(record, metadata="")
            case OffsetPending() if self.keys_alone:
                record = replace(record, commit=replace(record.commit, metadata=""))
            case GroupStored() if self.keys_alone:
                record = replace(record, members=())
        self._shard.apply(record, offset)

    def mark(self, marker: TransactionMarked, offset: int) -> None:
        """Apply an end marker of the log to the groups that this pass reads."""
        mark(self._shard.state, marker, offset, self.reads)

    def reads(self, group_id: str) -> bool:
        """Return True if this pass has applied records of the group and may apply more."""
        return not self._at_end and group_id in self.names

    def mark_later(self, marker: TransactionMarked, offset: int) -> None:
        """Apply a marker that was written behind the end of this pass to its groups, at the end."""
        if not self._at_end:
            self._later.append((marker, offset))

    def end(self) -> None:
        """Apply the markers that were written behind the end of this pass, which is over."""
        for marker, offset in self._later:
            self.mark(marker, offset)
        self._later.clear()
        self._at_end = True

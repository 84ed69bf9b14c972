"""Generations of classic groups held against the committed logs: G3 to G6 of the protocol.

Fed by `GroupChecker` with the records of every log of `__consumer_offsets` that it replays, and by
members with what SyncGroup told them.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_core.groups.invariants import GroupLog, ToldGenerations
from plimsoll_core.groups.records import GroupForgotten, GroupRecord, GroupStored, OffsetCommitted
from plimsoll_sim.oracle.partition_ghost import PartitionGhost, Violation

_Parts = dict[str, bytes]


def generation_in(commit: OffsetCommitted) -> int | None:
    """Return the generation that a member wrote into its commit, if any."""
    return int(commit.metadata[1:]) if commit.metadata.startswith("@") else None


def a_log() -> GroupLog:
    """Return an empty `GroupLog`, for one replay of one log."""
    return GroupLog(generation_in)


def check_record(log: GroupLog, record: GroupRecord) -> None:
    """Check EpochsForward, NoStaleCommit, and that each stored generation has one membership."""
    for sentence in log.add(record):
        raise _violation(sentence)


def _violation(sentence: str) -> Violation:
    name, _, told = sentence.partition(": ")
    return Violation(name, told)


class GenerationChecker:
    """`holder`: returns the partition that holds a group; None if its state cannot be known."""

    def __init__(self, holder: Callable[[str], PartitionGhost | None]) -> None:
        self._holder = holder
        self._told = ToldGenerations()
        # Each generation's members as seen stored in any log, with the offset.
        self._stored: dict[tuple[str, int], list[tuple[int, _Parts]]] = {}
        self.syncs = 0

    def saw(self, record: GroupRecord, place: int) -> None:
        """A record of some broker's log."""
        if isinstance(record, GroupForgotten):
            self._told.forgotten(record.group_id)
        elif isinstance(record, GroupStored) and record.members:
            parts = {
                one.group_instance_id or one.member_id: one.assignment for one in record.members
            }
            seen = self._stored.setdefault((record.group_id, record.generation), [])
            if (place, parts) not in seen:
                seen.append((place, parts))

    def synced(self, group: str, generation: int, seat: str, part: bytes) -> None:
        """Check OneGeneration and OneOwner: the answer is stored; NothingUncommitted: and
        committed."""
        self.syncs += 1
        ghost = self._holder(group)
        if ghost is None:
            return
        stored = [
            place for place, parts in self._stored.get((group, generation), ())
            if parts.get(seat) == part
        ]  # fmt: skip
        what = f"{group}: {seat} is told {part!r} in generation {generation}"
        if not stored:
            raise Violation("OneOwner", f"{what}, which is stored nowhere")
        if min(stored) >= ghost.true_high_watermark:
            raise Violation(
                "NothingUncommitted",
                f"{what}, stored at {min(stored)}, committed up to {ghost.true_high_watermark}",
            )
        for sentence in self._told.told(group, generation, seat, part):
            raise _violation(sentence)

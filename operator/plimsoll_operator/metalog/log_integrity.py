"""Decides which of the batches and snapshots found in storage form the log. Pure.

Both logs call it with whatever they read. A log is accepted only if every batch after the snapshot
is present and names its predecessor's nonce; batches after a hole are never accepted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll_operator.metalog.interface import (
    EMPTY_TIP,
    Batch,
    LogCorrupt,
    LogRegressed,
    OpenedLog,
    Snapshot,
    Tip,
)


class Gap(Exception):
    """Raised if the objects that were read do not fit together. They may come from two states of
    the log; read all again before concluding that the log is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """A slot from which the records were dropped after a snapshot. It still states the sequence,
    the end offset (exclusive) and the nonce of the batch that it held."""

    sequence: int
    end_offset: int
    nonce: str


@dataclass(slots=True)
class LogFollower:
    """Accepts batches one after another and checks that each may follow the one before. `tip` is
    the end of what was accepted, the batches of an incomplete group included.

    `offer` returns the batches that may now be applied: none while a group is incomplete, the whole
    group with its last batch. It raises `Gap` if the batch is not the next one, and `LogCorrupt` if
    it breaks the chain's rules. The first batch of a higher controller epoch voids an unfinished
    group, and its offsets are used again.
    """

    tip: Tip
    _group: list[Batch] = field(default_factory=list)

    def offer(self, batch: Batch) -> tuple[Batch, ...]:
        opens_term = batch.controller_epoch > self.tip.controller_epoch
        if opens_term and self._group:
            self._void()
        self._check(batch, opens_term)
        self.tip = self.tip.after(batch)
        if batch.group is None:
            return (batch,)
        self._group.append(batch)
        if not batch.last_of_group:
            return ()
        whole, self._group = tuple(self._group), []
        return whole

    def _void(self) -> None:
        self.tip = self.writers_tip()
        self._group = []

    def _check(self, batch: Batch, opens_term: bool) -> None:
        tip = self.tip
        if (batch.sequence, batch.previous_nonce) != (tip.next_sequence, tip.nonce):
            raise Gap(
                f"batch {batch.sequence} of the metadata log does not continue the log, which "
                f"ends at {tip}"
            )
        group = self._group[0].group if self._group else None
        lawful = (
            batch.base_offset == tip.next_offset
            and batch.controller_epoch >= tip.controller_epoch
            and (not opens_term or (batch.group is None and batch.record_count == 1))
            and (group is None or batch.group == group)
        )
        if not lawful:
            raise LogCorrupt(
                f"batch {batch.sequence} of the metadata log is invalid: its offset, epoch or "
                f"group does not continue the log, which ends at {tip}"
            )

    def writers_tip(self) -> Tip:
        """Return the position for the first batch of a new term. It follows every batch that was
        accepted, but has the offset at which an unfinished group began."""
        if not self._group:
            return self.tip
        return Tip(
            next_sequence=self.tip.next_sequence,
            next_offset=self._group[0].base_offset,
            nonce=self.tip.nonce,
            controller_epoch=self.tip.controller_epoch,
        )


def assemble(
    snapshots: Sequence[Snapshot], found: Mapping[int, Batch | Emptied]
) -> tuple[OpenedLog, LogFollower]:
    """Return the log that starts from the newest snapshot which the found batches continue, or from
    an empty image if no snapshot fits, and a follower at its end.

    `snapshots` are complete ones; `found` holds the stored batches by sequence. Raise `Gap` if no
    start fits (read again: a snapshot may have been released between two reads). Raise
    `LogRegressed` if a batch is missing before others, or a snapshot covers batches that do not
    exist, and `LogCorrupt` if a batch breaks the chain's rules.
    """
    last = max(found, default=-1)
    for snapshot in sorted(snapshots, key=_newest, reverse=True):
        if snapshot.last_sequence > last:
            raise LogRegressed(
                f"the metadata log ends at batch {last}, but its snapshot {snapshot.name} ends "
                f"at batch {snapshot.last_sequence}: the log's storage lost committed batches"
            )
        at_end = found.get(snapshot.last_sequence)
        if at_end is not None and at_end.nonce != snapshot.nonce:
            continue
        if (opened := _follow(snapshot, found, last)) is not None:
            return opened
    if (opened := _follow(None, found, last)) is not None:
        return opened
    raise Gap("batches are missing after every snapshot of the metadata log")


def _newest(snapshot: Snapshot) -> tuple[int, int, int]:
    """Order snapshots by age. The sequence counts first: a restored history has a later one than
    what it replaced, and may end at a lower offset."""
    return snapshot.last_sequence, snapshot.end_offset, snapshot.controller_epoch


def _follow(
    snapshot: Snapshot | None, found: Mapping[int, Batch | Emptied], last: int
) -> tuple[OpenedLog, LogFollower] | None:
    """Return the log that starts from the snapshot (from an empty image if None) and ends at
    sequence `last`. Return None if a batch between them was emptied, or if the first one is missing
    or does not follow the snapshot. Raise `LogRegressed` if a later one is missing or does not
    follow."""
    follower = LogFollower(snapshot.tip if snapshot else EMPTY_TIP)
    batches: list[Batch] = []
    first = follower.tip.next_sequence
    for sequence in range(first, last + 1):
        batch = found.get(sequence)
        if not isinstance(batch, Batch):
            if sequence == first or batch is not None:
                return None
            raise LogRegressed(
                f"batches {sequence} to {_hole_end(found, sequence)} of the metadata log are "
                f"missing while batch {last} exists: etcd was restored to an earlier state, or "
                "MetadataBatch objects were deleted; no controller can use the log until it is "
                "restored"
            )
        try:
            batches += follower.offer(batch)
        except Gap:
            if sequence == first:
                return None
            raise LogRegressed(
                f"batch {sequence} of the metadata log does not continue batch {sequence - 1}: "
                "the log holds batches of two histories, and no controller can use it until it "
                "is restored"
            ) from None
    at_end = None if snapshot is None else found.get(snapshot.last_sequence)
    return OpenedLog(
        snapshot=snapshot,
        batches=tuple(batches),
        tip=follower.writers_tip(),
        restored=isinstance(at_end, Emptied),
    ), follower


def _hole_end(found: Mapping[int, Batch | Emptied], sequence: int) -> int:
    return min(known for known in found if known > sequence) - 1


class History:
    """Index of the batches that the log still holds: finds a batch's nonce or sequence by an
    offset."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._known: list[tuple[int, int, str]] = []

    def rebuild(self, snapshot: Snapshot | None, batches: Iterable[Batch]) -> None:
        self._ends.clear()
        self._known.clear()
        if snapshot is not None:
            self._push(
                snapshot.last_sequence, snapshot.end_offset, snapshot.end_offset, snapshot.nonce
            )
        for batch in batches:
            self.add(batch)

    def add(self, batch: Batch) -> None:
        while self._ends and self._ends[-1] > batch.base_offset:
            self._ends.pop()
            self._known.pop()
        self._push(batch.sequence, batch.base_offset + 1, batch.end_offset, batch.nonce)

    def _push(self, sequence: int, first: int, end: int, nonce: str) -> None:
        self._ends.append(end)
        self._known.append((sequence, first, nonce))

    def nonce_at(self, applied_offset: int) -> str | None:
        index = bisect_left(self._ends, applied_offset)
        if index == len(self._ends):
            return None
        _, first, nonce = self._known[index]
        return nonce if first <= applied_offset else None

    def sequence_of(self, end_offset: int, nonce: str) -> int:
        """Return the sequence of the committed batch that ends at `end_offset` (exclusive) and has
        `nonce`. The index must hold this batch."""
        index = bisect_left(self._ends, end_offset)
        assert end_offset in self._ends[index : index + 1], end_offset
        sequence, _, found = self._known[index]
        assert found == nonce, (end_offset, nonce, found)
        return sequence

    def forget_below(self, end_offset: int) -> None:
        """Forget all batches with an end offset below `end_offset`; the one that ends there
        stays."""
        index = bisect_left(self._ends, end_offset)
        del self._ends[:index]
        del self._known[:index]

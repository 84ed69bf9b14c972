"""Checks which acknowledged data an unclean election loses: AckedNotLost (I16) and Reported.

Called by `committed.MetadataGhost` for every unclean election and every lossy stop, and by the
checker of what clients were told. The loss of an acknowledged record is allowed only after more
than min ISR - 1 lossy stops since the ISR was last full, or by an election that may lose anything.
A stop is lossy if the broker's disk lost data. Source: the protocol's predicates I16 and Reported.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.cluster.model import Partition
from plimsoll_core.ids import BrokerId
from plimsoll_sim.oracle.partition_ghost import PartitionGhost, Violation


class Election(NamedTuple):
    """An unclean election: the partition before it (None if it was just created) and after it, and
    the cause in its record."""

    old: Partition | None
    new: Partition
    cause: str


def elected_uncleanly(ghost: PartitionGhost, election: Election, *, full: bool) -> None:
    """Make the elected leader's log the committed one. Check that everything that it lacks is
    reported as lost. `full`: True if the ISR has been at min ISR since the partition was created or
    min ISR was raised."""
    old, new, cause = election
    assert new.leader is not None
    leader = int(new.leader)
    if "data loss" not in cause:
        raise Violation("Reported", f"{ghost.name}: an unclean election says only: {cause}")
    copy = ghost.copy_of(leader)
    gone = ghost.beyond(copy) + ghost.cut(ghost.kept_by(copy))
    # A cleaner removed the last batches of these producers from the leader's copy: nothing says
    # any more what they had sent.
    unknown = [each for each, (_, _, base) in ghost.producers.items() if base in copy.taken]
    for producer_id in unknown:
        del ghost.producers[producer_id]
    if ghost.committed and ghost.committed[-1].last + 1 < copy.start:
        ghost.cut(0)  # it begins behind all of that, and what is committed has no hole
    for other in ghost.copies.values():
        # The last step of a copy, which was not seen, counts too.
        other.begins = max(other.begins, ghost.start)
    ghost.start = copy.begins = copy.start
    ghost.answered = min(ghost.answered, copy.start)
    ghost.keys_due = True
    ghost.told.clear()
    for other in ghost.copies.values():
        # Batches written above the high watermark from now on were not removed by any log yet.
        other.begins = min(other.begins, ghost.true_high_watermark)
    ghost.unclean_epoch = int(new.leader_epoch)
    for broker_id, other in ghost.copies.items():
        other.suspect = broker_id != leader
    trusted = "most complete of the last known" in cause and not ghost.reckless
    ghost.reckless = ghost.reckless or not trusted
    m = new.effective_min_isr if old is None else old.effective_min_isr
    allowed = m - 1 if full else 0
    ghost.excused = ghost.reckless or ghost.lossy_max > allowed
    if ghost.excused:
        ghost.given_up |= dict.fromkeys(batch.ident for batch in gone)
    check_lost_acks(ghost, [batch.ident for batch in gone if batch.ident in ghost.acked])


def check_lost_acks(ghost: PartitionGhost, idents: list[bytes]) -> None:
    """Check I16: an unclean election loses no acknowledged batch, unless more logs lost data than
    the quorum allows, or it is one that may lose anything. `idents`: the lost batches."""
    if idents := [each for each in idents if each not in ghost.given_up]:
        raise Violation(
            "AckedNotLost",
            f"{ghost.name}: {idents} were acknowledged and are lost, with {ghost.lossy_max} "
            "lossy stops",
        )


def note_lossy_stop(
    ghost: PartitionGhost, partition: Partition, broker_id: int, broker_epoch: int | None
) -> None:
    """Record that a broker lost data of this partition. `broker_epoch`: that with which it is
    registered, if it is."""
    if broker_epoch is not None:
        ghost.lossy_lives[broker_id] = broker_epoch
    if ghost.unclean_epoch >= 0 and broker_id in ghost.copies:
        # What it truncated when it followed after that election may be back.
        ghost.copies[broker_id].suspect = True
    if BrokerId(broker_id) in (*partition.isr, *partition.elr, *partition.last_known_elr):
        ghost.lossy_open[broker_id] = None
        ghost.lossy_max = max(ghost.lossy_max, len(ghost.lossy_open))

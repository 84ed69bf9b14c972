"""Acknowledged data that an unclean election may lose: AckedNotLost (I16) and Reported.

Called by `committed.MetadataGhost` for every unclean election and every lossy stop, and by the
checker of what clients were told.  A lost acknowledgement is excused only by more lossy stops than
min ISR - 1 since the ISR was last full, or by an election that may lose anything.  A stop is lossy
when a disk lost what was on it.  Source: the protocol's predicates I16 and Reported.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.cluster.model import Partition
from plimsoll_core.ids import BrokerId
from plimsoll_sim.oracle.partition_ghost import PartitionGhost, Violation


class Election(NamedTuple):
    """A partition before (None: it was just made) and after an unclean election, and its record's
    cause."""

    old: Partition | None
    new: Partition
    cause: str


def elected_uncleanly(ghost: PartitionGhost, election: Election, *, full: bool) -> None:
    """The elected log is the committed one now; whatever it lacks is lost, and reported.

    `full`: the ISR has been at min ISR since the partition was made or min ISR was raised.
    """
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
    check_lost_acks(ghost, [batch.ident for batch in gone if batch.ident in ghost.acked])


def check_lost_acks(ghost: PartitionGhost, idents: list[bytes]) -> None:
    """I16: an unclean election loses nothing acknowledged, unless more logs lost data than the
    quorum allows, or a person chose to lose it."""
    if idents and not ghost.excused:
        raise Violation(
            "AckedNotLost",
            f"{ghost.name}: {idents} were acknowledged and are lost, with {ghost.lossy_max} "
            "lossy stops",
        )


def note_lossy_stop(
    ghost: PartitionGhost, partition: Partition, broker_id: int, broker_epoch: int | None
) -> None:
    """A broker lost data of this partition.  `broker_epoch`: registered for it, if any is."""
    if broker_epoch is not None:
        ghost.lossy_lives[broker_id] = broker_epoch
    if ghost.unclean_epoch >= 0 and broker_id in ghost.copies:
        # What it truncated when it followed after that election may be back.
        ghost.copies[broker_id].suspect = True
    if BrokerId(broker_id) in (*partition.isr, *partition.elr, *partition.last_known_elr):
        ghost.lossy_open[broker_id] = None
        ghost.lossy_max = max(ghost.lossy_max, len(ghost.lossy_open))

"""What the predicates hold logs against: what an unclean election leaves of what was committed."""

from uuid import UUID

import pytest

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_sim.checkers.compaction import check_keys
from plimsoll_sim.checkers.log_starts import check_deleted
from plimsoll_sim.oracle.partition_ghost import (
    CommittedBatch,
    Copy,
    Deletion,
    PartitionGhost,
    Violation,
)

KEY = PartitionKey(UUID(int=1), 0)


def committed(*bounds: tuple[int, int]) -> PartitionGhost:
    ghost = PartitionGhost(KEY, ("orders", 0))
    for base, last in bounds:
        ghost.commit(CommittedBatch(base, last, 0, b"%d" % base, (-1, -1, -1)))
    return ghost


def test_log_without_batch_keeps_nothing_of_it() -> None:
    ghost = committed((0, 9), (10, 19), (20, 29))
    assert ghost.kept_by(Copy(start=15, end=15)) == 1
    assert ghost.kept_by(Copy(start=20, end=20)) == 2
    assert ghost.kept_by(Copy()) == 0


def test_log_keeps_batch_holding_its_start() -> None:
    ghost = committed((0, 9), (10, 19), (20, 29))
    assert ghost.kept_by(Copy(batches=ghost.committed[1:2], start=15, end=20)) == 2


def test_refused_deletion_leaves_other_clients() -> None:
    """The one that asks for more may be asked first and refused last."""
    ghost = committed((0, 199))
    more, less = Deletion(178), Deletion(93)
    ghost.deletions += [more, less]
    assert ghost.deleted == 178
    ghost.deletions.remove(more)
    assert ghost.deleted == 93


def test_log_below_answered_deletion_may_not_lead() -> None:
    """Logs that begin too high were seen, those that begin too low were not."""
    ghost = committed((0, 9), (10, 19))
    ghost.answered = 10
    check_deleted(ghost, 1, Copy(batches=ghost.committed[1:], start=10, end=20))
    check_deleted(ghost, 1, Copy())
    with pytest.raises(Violation, match="DeletedStays"):
        check_deleted(ghost, 1, Copy(batches=[*ghost.committed], start=0, end=20))


@pytest.mark.parametrize("excused", [False, True])
def test_cleaned_away_key_counts_after_unclean_election(excused: bool) -> None:
    """Nothing was looked at after an unclean election; only one that lost too much excuses it."""
    ghost = committed((0, 9), (10, 19))
    ghost.unclean_epoch, ghost.keys_due, ghost.excused = 1, True, excused
    cleaned = Copy(batches=[*ghost.committed], end=20, same=2, emptied={0: None})
    if excused:
        check_keys(ghost, 1, cleaned)
        assert len(ghost.lost_keys) == 1
        return
    with pytest.raises(Violation, match="LastOfEachKey"):
        check_keys(ghost, 1, cleaned)

"""What the predicates hold logs against: what an unclean election leaves of what was committed."""

from uuid import UUID

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_sim.oracle.partition_ghost import CommittedBatch, Copy, Deletion, PartitionGhost

KEY = PartitionKey(UUID(int=1), 0)


def committed(*bounds: tuple[int, int]) -> PartitionGhost:
    ghost = PartitionGhost(KEY, ("orders", 0))
    for base, last in bounds:
        ghost.commit(CommittedBatch(base, last, 0, b"%d" % base, (-1, -1, -1)))
    return ghost


def test_log_without_a_batch_keeps_nothing_of_the_one_that_its_start_lies_in() -> None:
    ghost = committed((0, 9), (10, 19), (20, 29))
    assert ghost.kept_by(Copy(start=15, end=15)) == 1
    assert ghost.kept_by(Copy(start=20, end=20)) == 2
    assert ghost.kept_by(Copy()) == 0


def test_log_keeps_the_batch_that_holds_its_start_where_it_has_it() -> None:
    ghost = committed((0, 9), (10, 19), (20, 29))
    assert ghost.kept_by(Copy(batches=ghost.committed[1:2], start=15, end=20)) == 2


def test_deletion_that_is_refused_takes_none_of_another_client_with_it() -> None:
    """The one that asks for more may be asked first and refused last."""
    ghost = committed((0, 199))
    more, less = Deletion(178), Deletion(93)
    ghost.deletions += [more, less]
    assert ghost.deleted == 178
    ghost.deletions.remove(more)
    assert ghost.deleted == 93

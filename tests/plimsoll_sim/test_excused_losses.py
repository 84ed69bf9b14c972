"""What the predicates excuse: one partition's loss for one election, never another partition's, and
never a later one."""

from uuid import UUID

import pytest

from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.ids import BrokerId, TopicPartition
from plimsoll_sim.checkers.acked_and_read import ClientChecker
from plimsoll_sim.oracle.acked_not_lost import Election, elected_uncleanly
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import CommittedBatch, PartitionGhost, Violation

AT = TopicPartition("orders", 0)
OLD, NEW = PartitionKey(UUID(int=1), 0), PartitionKey(UUID(int=2), 0)
TRUSTED = "possible data loss: the most complete of the last known"
PROACTIVE = "possible data loss: the most complete that answered"


def partition(leader_epoch: int) -> Partition:
    one = BrokerId(1)
    return Partition(
        topic_id=NEW.topic_id,
        index=0,
        replicas=(one, BrokerId(2)),
        isr=(one,),
        leader=one,
        leader_epoch=leader_epoch,
        partition_epoch=leader_epoch,
        min_isr=2,
    )


def committed(key: PartitionKey, *idents: bytes) -> PartitionGhost:
    ghost = PartitionGhost(key, AT)
    for base, ident in enumerate(idents):
        ghost.commit(CommittedBatch(base, base, 0, ident, (-1, -1, -1)))
        ghost.acked[ident] = base
    return ghost


def recreated(former: PartitionGhost, present: PartitionGhost) -> ClientChecker:
    metadata = MetadataGhost(UUID(int=9))
    metadata.removed[former.key] = former
    metadata.partitions[present.key] = metadata.by_name[AT] = present
    return ClientChecker(metadata)


def test_recreated_topic_keeps_checking_acknowledgements() -> None:
    checker = recreated(committed(OLD, b"a", b"b"), committed(NEW, b"c"))
    checker.acked(AT, b"c", 0, -1)
    checker.acked(AT, b"b", 1, -1)  # the removed topic's leader answered
    with pytest.raises(Violation, match="NoCommitBeforeQuorum"):
        checker.acked(AT, b"c", 1, -1)
    with pytest.raises(Violation, match="NoCommitBeforeQuorum"):
        checker.acked(AT, b"d", 1, -1)


def test_recreated_topic_keeps_checking_reads() -> None:
    checker = recreated(committed(OLD, b"a", b"b"), committed(NEW, b"c"))
    checker.consumed(AT, 1, b"b")
    checker.latest(AT, 2, 0, "reader")
    with pytest.raises(Violation, match="ConsistentRead"):
        checker.consumed(AT, 0, b"b")
    with pytest.raises(Violation, match="ConsistentRead"):
        checker.latest(AT, 3, 0, "reader")


def test_reckless_election_excuses_its_own_losses() -> None:
    ghost = committed(NEW, b"a", b"b")
    elected_uncleanly(ghost, Election(None, partition(1), PROACTIVE), full=True)
    assert ghost.committed == []
    checker = recreated(committed(OLD), ghost)
    checker.acked(AT, b"b", 1, -1)  # acknowledged before it, heard of after it


def test_full_isr_ends_excuse_of_reckless_election() -> None:
    ghost = committed(NEW, b"a")
    elected_uncleanly(ghost, Election(None, partition(1), PROACTIVE), full=True)
    ghost.isr_full()
    ghost.commit(CommittedBatch(0, 0, 1, b"c", (-1, -1, -1)))
    ghost.acked[b"c"] = 0
    with pytest.raises(Violation, match="AckedNotLost"):
        elected_uncleanly(ghost, Election(None, partition(2), TRUSTED), full=True)

"""Under whose limit a partition's new replicas are copied."""

from uuid import UUID

from msgspec.structs import replace

from plimsoll_core.ids import BrokerId, LeaderEpoch, PartitionEpoch
from plimsoll_core.model import MovedPartitions, Partition, Reassignment, ReassignmentObject
from plimsoll_core.movers import CLUSTER, Limit, is_limited, limit_of, mover_of

TOPIC = UUID(int=7)
MIB = 2**20


def a_row(*indexes: int, name: str = "away", **fields: object) -> Reassignment:
    row = Reassignment(
        object=ReassignmentObject(namespace="kafka", name=name, uid=f"uid of {name}"),
        phase="Running",
        partitions=(MovedPartitions(topic_id=TOPIC, ranges=tuple((i, i) for i in indexes)),),
    )
    return replace(row, **fields)


def a_move(**fields: object) -> Partition:
    """3 takes 2's place."""
    partition = Partition(
        topic_id=TOPIC,
        index=0,
        replicas=tuple(map(BrokerId, (0, 1, 3, 2))),
        adding=(BrokerId(3),),
        removing=(BrokerId(2),),
        isr=tuple(map(BrokerId, (0, 1))),
        leader=BrokerId(0),
        leader_epoch=LeaderEpoch(0),
        partition_epoch=PartitionEpoch(0),
        min_isr=2,
    )
    return replace(partition, **fields)


def test_only_who_is_added_and_not_yet_in_sync_is_limited():
    moving = a_move()
    assert is_limited(moving, BrokerId(3))
    assert not is_limited(moving, BrokerId(2)), "it merely fell behind"
    assert not is_limited(moving, BrokerId(0)), "it leads"
    joined = replace(moving, isr=(*moving.isr, BrokerId(3)))
    assert not is_limited(joined, BrokerId(3)), "commits wait for it now"
    assert not is_limited(replace(joined, adding=()), BrokerId(3))


def test_the_cluster_limits_what_no_object_limits_otherwise():
    assert limit_of(None, 50 * MIB) == Limit(CLUSTER, 50 * MIB)
    assert limit_of(a_row(0), 50 * MIB) == Limit(CLUSTER, 50 * MIB)


def test_an_objects_own_limit_replaces_the_clusters():
    assert limit_of(a_row(0, bytes_per_second=9), 50) == Limit("Reassignment kafka/away", 9)


def test_a_paused_move_copies_nothing_whatever_its_limit():
    for own in (None, 9):
        paused = limit_of(a_row(0, paused=True, bytes_per_second=own), 50)
        assert paused == Limit("Reassignment kafka/away", 0)


def test_the_object_that_names_the_partition_moves_it():
    rows = [a_row(0, 1, name="one"), a_row(2, name="two")]
    assert mover_of(rows, a_move(index=2).key) is rows[1]
    assert mover_of(rows, a_move(index=1).key) is rows[0]
    assert mover_of(rows, a_move(index=3).key) is None

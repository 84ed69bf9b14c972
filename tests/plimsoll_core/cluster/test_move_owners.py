"""Under whose limit a partition's new replicas are copied."""

from uuid import UUID

from immutables import Map
from msgspec.structs import replace

from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.model import (
    ClusterImage,
    MovedPartitions,
    Partition,
    Reassignment,
    ReassignmentObject,
    Rebalance,
    RebalanceMove,
    RebalanceObject,
)
from plimsoll_core.cluster.move_owners import (
    CLUSTER,
    Limit,
    Mover,
    is_limited,
    limit_of,
    mover_of,
    running,
)
from plimsoll_core.cluster.records import RebalanceAdvanced, RebalanceMovesAdded, RebalanceNoted
from plimsoll_core.ids import BrokerId, LeaderEpoch, PartitionEpoch

TOPIC = UUID(int=7)
MIB = 2**20


def an_image(*rows: Reassignment) -> ClusterImage:
    """Also with a Rebalance `fill` that moves partition 5, and would move 6."""
    image = ClusterImage(cluster_id=TOPIC, reassignments=Map({row.object.uid: row for row in rows}))
    holder = RebalanceObject(namespace="kafka", name="fill", uid="f")
    row = Rebalance(object=holder, mode="Full", phase="Beginning")
    moves = tuple(
        RebalanceMove(number=n, topic_id=TOPIC, index=n + 5, before=(0,), after=(1,))
        for n in (0, 1)
    )
    records = (
        RebalanceNoted(cause="c", rebalance=row),
        RebalanceMovesAdded(cause="c", uid="f", moves=moves),
        RebalanceNoted(
            cause="c", rebalance=replace(row, phase="Running", paused=True, bytes_per_second=9)
        ),
        RebalanceAdvanced(cause="c", uid="f", begun=(0,)),
    )
    return apply_all(image, records)


def a_row(*indexes: int, name: str = "away", **fields: object) -> Reassignment:
    row = Reassignment(
        object=ReassignmentObject(namespace="kafka", name=name, uid=f"uid of {name}"),
        phase="Running",
        partitions=(MovedPartitions(topic_id=TOPIC, ranges=tuple((i, i) for i in indexes)),),
    )
    return replace(row, **fields)


def a_mover(*indexes: int, **fields: object) -> Mover:
    return running(an_image(a_row(*indexes, **fields)))[0]


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


def test_throttle_limits_added_replica_out_of_sync_only():
    moving = a_move()
    assert is_limited(moving, BrokerId(3))
    assert not is_limited(moving, BrokerId(2)), "it merely fell behind"
    assert not is_limited(moving, BrokerId(0)), "it leads"
    joined = replace(moving, isr=(*moving.isr, BrokerId(3)))
    assert not is_limited(joined, BrokerId(3)), "commits wait for it now"
    assert not is_limited(replace(joined, adding=()), BrokerId(3))


def test_cluster_limits_what_no_object_limits_otherwise():
    assert limit_of(None, 50 * MIB) == Limit(CLUSTER, 50 * MIB)
    assert limit_of(a_mover(0), 50 * MIB) == Limit(CLUSTER, 50 * MIB)


def test_objects_own_limit_replaces_the_clusters():
    assert limit_of(a_mover(0, bytes_per_second=9), 50) == Limit("Reassignment kafka/away", 9)


def test_paused_move_copies_nothing_whatever_its_limit():
    for own in (None, 9):
        paused = limit_of(a_mover(0, paused=True, bytes_per_second=own), 50)
        assert paused == Limit("Reassignment kafka/away", 0)


def test_object_that_names_the_partition_moves_it():
    movers = running(an_image(a_row(0, 1, name="one"), a_row(2, name="two"), a_row(name="ended")))
    found = [mover_of(movers, a_move(index=index).key) for index in range(7)]
    names = [None if mover is None else str(mover) for mover in found]
    one, two, fill = "Reassignment kafka/one", "Reassignment kafka/two", "Rebalance kafka/fill"
    assert names == [one, one, two, None, None, fill, None], "6 has not begun to move"


def test_rebalance_has_limits_like_a_reassignment():
    assert limit_of(running(an_image())[0], 50) == Limit("Rebalance kafka/fill", 0)

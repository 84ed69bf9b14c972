"""What a broker tells of ISRs that it leads: who left, and why as far as it can know."""

from collections import Counter
from uuid import UUID

import pytest
from immutables import Map
from msgspec.structs import replace

from plimsoll_broker.replication.proposal_queue import SeenShrinks
from plimsoll_core.cluster.isr_shrinks import Left, ShrinkCause, seen_in_images
from plimsoll_core.cluster.model import Broker, ClusterImage, Grant, Partition
from plimsoll_core.ids import BrokerEpoch, BrokerId, IncarnationId, LeaderEpoch, PartitionEpoch


def a_broker(number: int, **differs: object) -> Broker:
    broker = Broker(
        id=BrokerId(number),
        broker_epoch=BrokerEpoch(number + 10),
        incarnation_id=IncarnationId(int=number),
        directory_ids=(),
        endpoints=(),
        rack=None,
        pod_uid=None,
        fenced=False,
        shutting_down=False,
    )
    return replace(broker, **differs)


IMAGE = ClusterImage(
    cluster_id=UUID(int=1),
    members=(BrokerId(0), BrokerId(1), BrokerId(2)),
    brokers=Map({BrokerId(b): a_broker(b) for b in range(3)}),
)
FULL = Partition(
    topic_id=UUID(int=7),
    index=0,
    replicas=(BrokerId(0), BrokerId(1), BrokerId(2)),
    isr=(BrokerId(0), BrokerId(1), BrokerId(2)),
    leader=BrokerId(0),
    leader_epoch=LeaderEpoch(1),
    partition_epoch=PartitionEpoch(1),
    min_isr=2,
)
WITHOUT_2 = replace(FULL, isr=(BrokerId(0), BrokerId(1)), partition_epoch=PartitionEpoch(2))


def with_broker(image: ClusterImage, broker: Broker) -> ClusterImage:
    return replace(image, brokers=image.brokers.set(broker.id, broker))


def left(cause: ShrinkCause, broker: int = 2) -> Counter[Left]:
    return Counter({Left(broker_id=BrokerId(broker), cause=cause): 1})


def seen(*images: ClusterImage, me: int = 0) -> SeenShrinks:
    shrinks = SeenShrinks(BrokerId(me))
    for image in images:
        shrinks.update(image)
    return shrinks


GRANT = Grant(broker_id=BrokerId(2), broker_epoch=None, pod_uid=None, revision="r")


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        pytest.param(with_broker(IMAGE, a_broker(2, fenced=True)), ShrinkCause.FENCED, id="fenced"),
        pytest.param(
            with_broker(IMAGE, a_broker(2, shutting_down=True)), ShrinkCause.RESTART, id="stops"
        ),
        pytest.param(
            with_broker(IMAGE, a_broker(2, fenced=True, broker_epoch=BrokerEpoch(99))),
            ShrinkCause.RESTART,
            id="began anew before anybody missed it",
        ),
        pytest.param(
            replace(
                with_broker(IMAGE, a_broker(2, shutting_down=True)),
                grants=Map({BrokerId(2): GRANT}),
            ),
            ShrinkCause.ROLL,
            id="restarted by grant",
        ),
        pytest.param(
            replace(with_broker(IMAGE, a_broker(2, fenced=True)), leaving=(BrokerId(2),)),
            ShrinkCause.REASSIGN,
            id="drained",
        ),
        pytest.param(IMAGE, ShrinkCause.UNKNOWN, id="its disk failed, which only it knows"),
    ],
)
def test_leader_counts_isr_departures_from_metadata(after, cause):
    shrinks = seen(IMAGE, after)
    shrinks.applied(FULL, WITHOUT_2)
    assert shrinks.counts == left(cause)


def test_only_the_leader_counts_a_shrink():
    counts = Counter[Left]()
    for me in range(3):
        shrinks = seen(IMAGE, with_broker(IMAGE, a_broker(2, fenced=True)), me=me)
        shrinks.applied(FULL, WITHOUT_2)
        counts += shrinks.counts
    assert counts == left(ShrinkCause.FENCED)


def test_new_leader_counts_the_old_one():
    shrinks = seen(IMAGE, with_broker(IMAGE, a_broker(0, fenced=True)), me=1)
    after = replace(FULL, isr=(BrokerId(1), BrokerId(2)), leader=BrokerId(1))
    shrinks.applied(FULL, after)
    assert shrinks.counts == left(ShrinkCause.FENCED, 0)


def test_lagging_follower_is_counted_once():
    shrinks = seen(IMAGE)
    shrinks.proposed(FULL, [BrokerId(2)])
    assert shrinks.counts == left(ShrinkCause.LAG)
    shrinks.proposed(FULL, [BrokerId(2)])
    shrinks.applied(FULL, WITHOUT_2)
    assert shrinks.counts == left(ShrinkCause.LAG)
    shrinks.applied(WITHOUT_2, FULL)
    shrinks.proposed(FULL, [BrokerId(2)])
    assert sum(shrinks.counts.values()) == 2, "it fell behind again"


def test_replica_that_is_moved_away_is_no_shrink():
    moved = replace(WITHOUT_2, replicas=WITHOUT_2.isr)
    assert list(seen_in_images(IMAGE, IMAGE, FULL, moved)) == []


def test_nothing_is_counted_before_there_are_metadata():
    shrinks = SeenShrinks(BrokerId(0))
    shrinks.applied(FULL, WITHOUT_2)
    shrinks.proposed(FULL, [BrokerId(2)])
    assert shrinks.counts == {}

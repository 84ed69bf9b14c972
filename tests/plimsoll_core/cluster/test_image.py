"""What each record does to an image, and that snapshots are canonical."""

from typing import get_args
from uuid import UUID

import msgspec
import pytest
from immutables import Map

from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.image import HOUR_MS, apply, apply_all
from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.model import (
    ClusterImage,
    Endpoint,
    Partition,
    PartitionKey,
    PendingDeletion,
    Recovery,
    TopicObject,
)
from plimsoll_core.cluster.record_versions import MetadataTooNew, read_records

TOPIC = UUID(int=7)
OBJECT = TopicObject(namespace="shop", name="orders", uid="u1")


def registered(broker: int) -> r.BrokerRegistered:
    return r.BrokerRegistered(
        cause="registration",
        broker_id=broker,
        incarnation_id=UUID(int=10 + broker),
        directory_ids=(UUID(int=20 + broker),),
        endpoints=(Endpoint(name="internal", host="127.0.0.1", port=9092),),
        rack="a",
        pod_uid=f"pod-{broker}",
    )


TOPIC_CREATED = r.TopicCreated(
    cause="created",
    topic_id=TOPIC,
    name="orders",
    replication_factor=2,
    min_isr=2,
    configs={"retention.ms": "5"},
    object=OBJECT,
)
PARTITIONS_CREATED = r.PartitionsCreated(
    cause="created",
    topic_id=TOPIC,
    first=0,
    replicas=((0, 1), (1, 2), (2, 0)),
    isr=((0, 1), (1,), ()),
)


@pytest.fixture
def image() -> ClusterImage:
    """Brokers 0, 1, 2 (epochs 0, 1, 2) and `orders` with three partitions."""
    empty = ClusterImage(cluster_id=UUID(int=1))
    brokers = [registered(broker) for broker in range(3)]
    return apply_all(empty, [*brokers, TOPIC_CREATED, PARTITIONS_CREATED])


def changed(**fields: object) -> r.PartitionsChanged:
    return r.PartitionsChanged(**{"cause": "lag", "topic_id": TOPIC, "ranges": ((0, 0),), **fields})


def partition(image: ClusterImage, index: int) -> Partition:
    return image.partitions[PartitionKey(TOPIC, index)]


def test_image_applies_every_record_of_the_log() -> None:
    from plimsoll_core.cluster.image import _APPLIERS

    assert set(_APPLIERS) == set(get_args(r.Record))


def test_broker_epoch_is_the_offset_of_its_registration(image: ClusterImage) -> None:
    assert [image.brokers[b].broker_epoch for b in range(3)] == [0, 1, 2]
    again = apply(image, registered(1))
    assert again.brokers[1].broker_epoch == image.next_offset == 5
    assert again.brokers[1].fenced


def test_offsets_count_records(image: ClusterImage) -> None:
    assert image.next_offset == 5
    assert apply(image, changed(isr=(0,))).next_offset == 6


def test_older_image_stays_as_it_was(image: ClusterImage) -> None:
    before = encode_image(image)
    apply(image, changed(isr=(0,)))
    apply(image, r.TopicRemoved(cause="gone", topic_id=TOPIC))
    assert encode_image(image) == before


def test_new_partitions_are_led_by_first_isr_member(image: ClusterImage) -> None:
    """LE=0, PE=0, isr = active members, leader = isr[0]."""
    assert [partition(image, n).leader for n in range(3)] == [0, 1, None]
    assert partition(image, 0).leader_epoch == partition(image, 0).partition_epoch == 0
    assert image.topics[TOPIC].partitions == 3
    assert partition(image, 0).min_isr == 2


def test_partitions_changed_record_raises_each_leader_epoch(
    image: ClusterImage,
) -> None:
    image = apply(image, changed(leader=1, leader_epoch_step=1))
    image = apply(image, changed(ranges=((0, 1),), isr=(1,), leader=1, leader_epoch_step=1))
    assert partition(image, 0).leader_epoch == 2
    assert partition(image, 1).leader_epoch == 1
    assert (partition(image, 0).partition_epoch, partition(image, 1).partition_epoch) == (2, 1)


def test_unset_fields_stay_and_none_is_a_value(image: ClusterImage) -> None:
    image = apply(image, changed(elr=(1,), isr=(0,)))
    image = apply(image, changed(leader=None, isr=(), recovery=Recovery.RECOVERING))
    p = partition(image, 0)
    assert (p.leader, p.isr, p.elr, p.recovery) == (None, (), (1,), Recovery.RECOVERING)


def test_hosted_follows_the_replicas(image: ClusterImage) -> None:
    image = apply(image, changed(replicas=(2, 1)))
    assert {key.index for key in image.hosted[2]} == {0, 1, 2}
    assert {key.index for key in image.hosted[0]} == {2}
    image = apply(image, r.TopicRemoved(cause="gone", topic_id=TOPIC))
    assert image.hosted == Map()


def test_fencing_and_shutdown_name_a_lifetime(image: ClusterImage) -> None:
    image = apply(image, r.BrokerUnfenced(cause="caught-up", broker_id=1, broker_epoch=1))
    assert image.brokers[1].active
    image = apply(image, r.BrokerShutdownStarted(cause="shutdown", broker_id=1, broker_epoch=1))
    assert not image.brokers[1].active
    image = apply(image, r.BrokerFenced(cause="fenced", broker_id=1, broker_epoch=1))
    assert image.brokers[1].fenced
    assert image.brokers[1].shutting_down
    with pytest.raises(AssertionError, match="another lifetime"):
        apply(image, r.BrokerFenced(cause="fenced", broker_id=1, broker_epoch=0))


def test_shutdown_is_cleared_only_by_a_new_incarnation(image: ClusterImage) -> None:
    """KIP-841: the flag is durable."""
    started = r.BrokerShutdownStarted(cause="shutdown", broker_id=1, broker_epoch=1)
    image = apply(apply(image, started), registered(1))
    assert not image.brokers[1].shutting_down


def test_updated_broker_keeps_its_epoch_and_its_state(image: ClusterImage) -> None:
    record = r.BrokerUpdated(
        cause="registration", broker_id=1, broker_epoch=1, directory_ids=(TOPIC,), endpoints=()
    )
    broker = apply(image, record).brokers[1]
    assert (broker.broker_epoch, broker.fenced, broker.rack) == (1, True, None)
    assert broker.directory_ids == (TOPIC,)


def test_unregistered_broker_is_gone(image: ClusterImage) -> None:
    record = r.BrokerUnregistered(cause="removed", broker_id=1, broker_epoch=1)
    assert 1 not in apply(image, record).brokers


def test_removed_topic_leaves_its_name_free(image: ClusterImage) -> None:
    image = apply(image, r.TopicRemoved(cause="gone", topic_id=TOPIC))
    assert not image.topics
    assert not image.topic_ids
    assert not image.partitions


def test_removals_are_remembered_for_an_hour(image: ClusterImage) -> None:
    for n, at in enumerate((1, HOUR_MS, HOUR_MS + 1, None)):
        topic_id = UUID(int=100 + n)
        created = msgspec.structs.replace(TOPIC_CREATED, topic_id=topic_id, name=f"t{n}")
        removed = r.TopicRemoved(cause="gone", topic_id=topic_id, now_ms=at)
        image = apply_all(image, [created, removed])
    assert image.removals_ms == (HOUR_MS, HOUR_MS + 1)


def test_detached_topic_knows_who_may_take_it_back(image: ClusterImage) -> None:
    pending = PendingDeletion(since_ms=1, until_ms=2)
    orphaned = r.TopicOrphaned(cause="its object is gone", topic_id=TOPIC, pending=pending)
    image = apply(image, orphaned)
    assert image.topics[TOPIC].pending_deletion == pending
    image = apply(image, r.TopicBound(cause="detached", topic_id=TOPIC, object=None))
    assert image.topics[TOPIC].object is None
    assert image.topics[TOPIC].detached_from == OBJECT
    image = apply(image, r.TopicBound(cause="revived", topic_id=TOPIC, object=OBJECT))
    assert image.topics[TOPIC].detached_from is None
    assert image.topics[TOPIC].pending_deletion is None


def test_configs_are_replaced_whole(image: ClusterImage) -> None:
    record = r.TopicConfigured(cause="configured", topic_id=TOPIC, configs={"segment.ms": "9"})
    topic = apply(image, record).topics[TOPIC]
    assert dict(topic.configs) == {"segment.ms": "9"}
    assert topic.min_isr == 2
    record = r.TopicConfigured(cause="configured", topic_id=TOPIC, configs={}, min_isr=1)
    assert apply(image, record).topics[TOPIC].min_isr == 1


def test_another_clusters_log_is_our_bug() -> None:
    declared = r.ClusterDeclared(cause="declared", cluster_id=UUID(int=2), name="other")
    with pytest.raises(AssertionError, match="another cluster"):
        apply(ClusterImage(cluster_id=UUID(int=1)), declared)


def test_snapshot_holds_committed_state_and_changes_nothing(image: ClusterImage) -> None:
    taken = r.SnapshotTaken(cause="the ring is full", name="s", end_offset=image.next_offset)
    after = apply(image, taken)
    assert after == msgspec.structs.replace(image, next_offset=image.next_offset + 1)
    with pytest.raises(AssertionError, match="at or before the next offset"):
        apply(image, msgspec.structs.replace(taken, end_offset=image.next_offset + 1))


def test_snapshots_of_equal_images_have_equal_bytes(image: ClusterImage) -> None:
    image = apply(image, r.ProducerIdsAllocated(cause="a", broker_id=1, next_producer_id=1000))
    image = apply(image, changed(isr=(0,), elr=(1,)))
    data = encode_image(image)
    assert decode_image(data) == image
    assert encode_image(decode_image(data)) == data


def test_decided_and_replayed_images_encode_equally(image: ClusterImage) -> None:
    """A text that was decoded and equals a field's default is another object."""
    decided = TOPIC_CREATED
    decoded = decided.strategy[:5] + decided.strategy[5:]
    assert decoded is not decided.strategy
    replayed = msgspec.structs.replace(decided, strategy=decoded)
    images = [
        apply_all(ClusterImage(cluster_id=image.cluster_id), (one, PARTITIONS_CREATED))
        for one in (decided, replayed)
    ]
    assert images[0] == images[1]
    assert encode_image(images[0]) == encode_image(images[1])


def test_snapshot_of_another_format_is_not_guessed_at(image: ClusterImage) -> None:
    newer = encode_image(image).replace(b'"format":1', b'"format":99')
    with pytest.raises(MetadataTooNew, match="#99"):
        decode_image(newer)


def test_records_survive_json_and_unknown_field_is_refused(image: ClusterImage) -> None:
    for record in (TOPIC_CREATED, PARTITIONS_CREATED, registered(0), changed(leader=None, isr=())):
        data = msgspec.json.encode((record,))
        assert read_records(data) == (record,)
        newer = data[:-2] + b',"of_a_later_version":1}]'
        with pytest.raises(MetadataTooNew, match="of_a_later_version"):
            read_records(newer)


class TestGrants:
    def test_grant_is_open_until_replaced_or_ended(self, image: ClusterImage) -> None:
        first = r.RestartGranted(cause="x", broker_id=1, broker_epoch=1, pod_uid="a", revision="R1")
        again = r.RestartGranted(cause="x", broker_id=1, broker_epoch=1, pod_uid="b", revision="R2")
        image = apply_all(image, [first, again])
        assert [(g.pod_uid, g.revision) for g in image.grants.values()] == [("b", "R2")]
        assert decode_image(encode_image(image)) == image
        image = apply(image, r.RestartEnded(cause="x", broker_id=1, proven="R2"))
        assert (len(image.grants), image.proven_revision) == (0, "R2")
        assert decode_image(encode_image(image)) == image

    def test_grant_that_came_to_nothing_proves_nothing(self, image: ClusterImage) -> None:
        grant = r.RestartGranted(cause="x", broker_id=1, revision="R1")
        image = apply_all(image, [grant, r.RestartEnded(cause="x", broker_id=1)])
        assert image.proven_revision == ""

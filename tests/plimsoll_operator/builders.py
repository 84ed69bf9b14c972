"""Clusters, topics and images for tests: each takes what matters and fills in the rest."""

from typing import Any
from uuid import UUID

from plimsoll_core.cluster.image import append, apply
from plimsoll_core.cluster.model import ClusterImage, Endpoint, TopicObject
from plimsoll_core.cluster.records import (
    BrokerRegistered,
    BrokerUnfenced,
    ControllerChanged,
    MembersChanged,
    MetadataVersionFinalized,
    PartitionsChanged,
    PartitionsCreated,
    Record,
    TopicCreated,
)
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch
from plimsoll_operator.api.load import from_object
from plimsoll_operator.api.logcluster import LogCluster

CLUSTER_UID = "75920e38-5be5-41ba-af62-586702af8b61"
TOPIC_ID = UUID("baac9f63-1d51-4a62-b8a7-3e69fec44aa8")
OBJECT = TopicObject(namespace="kafka", name="orders", uid="u1")


def a_cluster_body(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "LogCluster",
        "metadata": {"name": "main", "namespace": "kafka", "uid": CLUSTER_UID, "generation": 1},
        "spec": {"storage": {"size": "1Gi"}, **spec},
    }


def a_cluster(**spec: Any) -> LogCluster:
    return from_object(a_cluster_body(**spec), LogCluster)


def replay(image: ClusterImage, *records: Record) -> ClusterImage:
    for record in records:
        image = apply(image, record)
    return image


def registered(broker_id: int) -> BrokerRegistered:
    return BrokerRegistered(
        cause="registration",
        broker_id=BrokerId(broker_id),
        incarnation_id=UUID(int=broker_id + 1),
        directory_ids=(UUID(int=broker_id + 100),),
        endpoints=(Endpoint(name="internal", host=f"b{broker_id}", port=9092),),
        pod_uid=f"pod-{broker_id}",
    )


def an_image(brokers: tuple[int, ...] = (0, 1, 2)) -> ClusterImage:
    """A cluster whose brokers all take part."""
    image = replay(
        ClusterImage(cluster_id=UUID(CLUSTER_UID)),
        ControllerChanged(cause="TakeOver", controller_epoch=ControllerEpoch(1), identity="x"),
        MembersChanged(cause="declared", broker_ids=tuple(BrokerId(b) for b in brokers)),
    )
    for broker in brokers:
        image = replay(image, registered(broker))
        epoch = image.brokers[BrokerId(broker)].broker_epoch
        image = replay(
            image,
            BrokerUnfenced(
                cause="caught-up", broker_id=BrokerId(broker), broker_epoch=BrokerEpoch(epoch)
            ),
        )
    return image


def finalised(image: ClusterImage, version: int) -> ClusterImage:
    """The cluster once this metadata version is finalised; as it is where that is no later one."""
    if version <= image.metadata_version:
        return image
    return append(image, MetadataVersionFinalized(cause="test", metadata_version=version))


def with_topic(
    image: ClusterImage,
    replicas: tuple[tuple[int, ...], ...],
    holder: TopicObject | None = OBJECT,
    name: str = "orders",
) -> ClusterImage:
    """The topic `orders` with these replicas, all of them in sync, and min ISR 2."""
    rows = tuple(tuple(BrokerId(b) for b in row) for row in replicas)
    return replay(
        image,
        TopicCreated(
            cause="created",
            topic_id=TOPIC_ID,
            name=name,
            replication_factor=len(rows[0]),
            min_isr=2,
            object=holder,
        ),
        PartitionsCreated(cause="created", topic_id=TOPIC_ID, first=0, replicas=rows, isr=rows),
    )


def isr_changed(index: int, isr: tuple[int, ...], **more: Any) -> PartitionsChanged:
    """`more`: any other field of the record."""
    return PartitionsChanged(
        cause=more.pop("cause", "IsrShrinkLag"),
        topic_id=TOPIC_ID,
        ranges=((index, index),),
        isr=tuple(BrokerId(b) for b in isr),
        **more,
    )

"""What a verification asks with: a client that has seen brokers come and go, and topics."""

import contextlib
import os
import signal

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic
from tests.integration.local_cluster import WAIT_S, LocalCluster, produce, wait_for

from plimsoll_spark.settings import Refusal
from plimsoll_spark.topics import OffsetRange, TopicClient

TOPIC, OTHER, DELETED = "lonely", "other", "deleted"
SHORT_S = 3


def leader(cluster: LocalCluster) -> int | None:
    partition = cluster.topic(TOPIC).get(0)
    return None if partition is None else partition.leader


def named(client: TopicClient) -> set[int]:
    """The brokers that the client has been told of now, asking for another topic."""
    with contextlib.suppress(KafkaException):
        return set(client._consumer.list_topics(OTHER, timeout=2).brokers)
    return set()


def test_leader_that_was_away_is_found_again(cluster: LocalCluster) -> None:
    """librdkafka forgets a broker that is not named any more, remembers for minutes that it leads,
    and says meanwhile that there is no such partition."""
    config = {"min.insync.replicas": "1"}
    admin = cluster.admin()
    topics = [
        NewTopic(name, 1, replica_assignment=[[broker]], config=config)
        for name, broker in ((TOPIC, 2), (OTHER, 0))
    ]
    for made in admin.create_topics(topics).values():
        made.result(WAIT_S)
    wait_for("a leader", lambda: leader(cluster) == 2)
    produce(cluster.bootstrap, TOPIC, [b"one", b"two"])
    client = TopicClient(cluster.bootstrap, TOPIC)
    whole = {0: OffsetRange(log_start_offset=0, log_end_offset=2)}
    assert client.ranges((0,), WAIT_S) == whole
    away = cluster.wait_restarted(2, cluster.kill_broker(2))
    os.kill(away, signal.SIGSTOP)
    try:
        wait_for("a client that forgets it", lambda: named(client) == {0, 1}, 60, 0.1)
    finally:
        os.kill(away, signal.SIGCONT)
    wait_for("its leader again", lambda: leader(cluster) == 2)
    assert client.ranges((0,), WAIT_S) == whole
    client.close()


def test_topic_deleted_under_its_client_stays_deleted(cluster: LocalCluster) -> None:
    """Brokers of a local cluster create a topic of which a client asks for the metadata."""
    cluster.create_topic(DELETED, 1)
    cluster.wait_isr(DELETED, 3)
    client = TopicClient(cluster.bootstrap, DELETED)
    assert client.ranges((0,), WAIT_S) == {0: OffsetRange(log_start_offset=0, log_end_offset=0)}
    admin = cluster.admin()
    admin.delete_topics([DELETED])[DELETED].result(WAIT_S)
    with pytest.raises(KafkaException):
        client.ranges((0,), SHORT_S)
    with pytest.raises(KafkaException):
        client.topic_id(SHORT_S)
    with pytest.raises(Refusal):
        client.partitions(SHORT_S)
    assert client.leader_of(0) is None
    client.close()
    assert DELETED not in admin.list_topics(timeout=WAIT_S).topics

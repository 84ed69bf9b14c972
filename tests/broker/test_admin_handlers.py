"""What the metadata and admin APIs say about an image, in every version that is served."""

import asyncio
from uuid import UUID

import msgspec
import pytest
from immutables import Map

from plimsoll_broker.controller_client import NoController
from plimsoll_broker.dispatch import RequestContext
from plimsoll_broker.handlers.admin import admin_handlers
from plimsoll_broker.handlers.view import ClusterView, ImageWatch
from plimsoll_core.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from plimsoll_core.messages import (
    CreateTopics,
    DeleteTopics,
    Refused,
    TopicAnswer,
    TopicsAnswer,
)
from plimsoll_core.model import Broker, ClusterImage, Endpoint, Partition, PartitionKey, Topic
from plimsoll_wire.messages import decode_response, encode_request
from plimsoll_wire.versions import SUPPORTED, ApiKey

CLUSTER_ID = UUID("11111111-2222-3333-4444-555555555555")
ORDERS = UUID("12345678-1234-5678-1234-567812345678")
PAYMENTS = UUID("22345678-1234-5678-1234-567812345678")
MISSING = UUID("ffffffff-ffff-5678-1234-567812345678")


def a_broker(broker_id, *, fenced=False, listener="PLAINTEXT"):
    return Broker(
        id=BrokerId(broker_id),
        broker_epoch=BrokerEpoch(broker_id),
        incarnation_id=UUID(int=broker_id + 1),
        directory_ids=(UUID(int=broker_id + 100),),
        endpoints=(Endpoint(name=listener, host=f"host-{broker_id}", port=9092),),
        rack=f"rack-{broker_id}",
        pod_uid=None,
        fenced=fenced,
        shutting_down=False,
    )


def a_partition(topic_id, index, leader, **fields):
    values = {
        "topic_id": topic_id,
        "index": index,
        "replicas": (BrokerId(0), BrokerId(1), BrokerId(2)),
        "isr": (BrokerId(0), BrokerId(1)),
        "leader": None if leader is None else BrokerId(leader),
        "leader_epoch": LeaderEpoch(4),
        "partition_epoch": PartitionEpoch(9),
        "min_isr": 2,
    }
    return Partition(**{**values, **fields})


def an_image(*brokers, topics=("orders", "payments")):
    """Broker 2 is fenced; payments-1 has no leader."""
    brokers = brokers or (a_broker(0), a_broker(1), a_broker(2, fenced=True))
    ids = {"orders": ORDERS, "payments": PAYMENTS}
    partitions = {
        "orders": [a_partition(ORDERS, index, index % 2) for index in range(3)],
        "payments": [
            a_partition(PAYMENTS, 0, 0),
            a_partition(PAYMENTS, 1, None, isr=(), elr=(BrokerId(1),), last_known_elr=()),
        ],
    }
    return ClusterImage(
        cluster_id=CLUSTER_ID,
        brokers=Map({broker.id: broker for broker in brokers}),
        topics=Map(
            {
                ids[name]: Topic(
                    id=ids[name],
                    name=name,
                    partitions=len(partitions[name]),
                    replication_factor=3,
                    min_isr=2,
                    configs=Map({"retention.ms": "1000"}),
                )
                for name in topics
            }
        ),
        topic_ids=Map({name: ids[name] for name in topics}),
        partitions=Map(
            {
                PartitionKey(each.topic_id, each.index): each
                for name in topics
                for each in partitions[name]
            }
        ),
    )


class Harness:
    def __init__(self, image=None):
        self.watch = ImageWatch(image or an_image())
        self.commands = []
        self.answer = None
        view = ClusterView(
            broker_id=BrokerId(1),
            watch=self.watch,
            command=self.command,
            configs={"log.retention.ms": "5000", "num.io.threads": "8"},
        )
        self.handlers = admin_handlers(view)

    async def command(self, request, timeout_ms):
        self.commands.append((request, timeout_ms))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(request) if callable(self.answer) else self.answer

    def ask(self, key, version, values):
        body = bytearray(encode_request(key, version, values))
        context = RequestContext(key, version, 1, memoryview(body))
        reply = self.handlers[key](context)
        if isinstance(reply, bytes):
            return decode_response(key, version, reply)

        async def later():
            return decode_response(key, version, await reply)

        return later()


def versions(key):
    return range(SUPPORTED[key].first, SUPPORTED[key].last + 1)


# --- Metadata -------------------------------------------------------------------------------------


def metadata(harness, version, topics):
    values = {
        "topics": topics,
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    return harness.ask(ApiKey.METADATA, version, values)


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_all_topics_and_only_living_brokers(version):
    reply = metadata(Harness(), version, None if version >= 1 else [])
    assert [broker.node_id for broker in reply.brokers] == [0, 1]
    assert [topic.name for topic in reply.topics] == ["orders", "payments"]
    if version >= 1:
        assert reply.controller_id == 1, "this broker takes admin requests itself"
        assert reply.brokers[0].rack == "rack-0"
    if version >= 2:
        assert reply.cluster_id == "ERERESIiMzNERFVVVVVVVQ"
    orders = reply.topics[0].partitions
    assert [(each.partition_index, each.leader_id) for each in orders] == [(0, 0), (1, 1), (2, 0)]
    assert orders[0].replica_nodes == (0, 1, 2)
    assert orders[0].isr_nodes == (0, 1)
    if version >= 5:
        assert orders[0].offline_replicas == (2,)
    if version >= 7:
        assert orders[0].leader_epoch == 4
    if version >= 10:
        assert reply.topics[0].topic_id == ORDERS


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_one_topic_by_name_and_one_that_is_not_there(version):
    names = [{"name": "payments", "topic_id": None}, {"name": "gone", "topic_id": None}]
    known, unknown = metadata(Harness(), version, names).topics
    assert (known.name, known.error_code, unknown.name, unknown.error_code) == (
        "payments",
        0,
        "gone",
        3,
    )
    assert unknown.partitions == ()
    leaderless = known.partitions[1]
    assert (leaderless.error_code, leaderless.leader_id) == (5, -1)


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(version):
    ids = [{"name": None, "topic_id": ORDERS}, {"name": None, "topic_id": MISSING}]
    known, unknown = metadata(Harness(), version, ids).topics
    assert (known.name, known.error_code) == ("orders", 0)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, MISSING, 100)


@pytest.mark.parametrize("version", range(1, 14))
def test_no_topics_when_none_are_asked_for(version):
    assert metadata(Harness(), version, []).topics == ()


@pytest.mark.parametrize(("version", "code"), [(5, 5), (6, 72), (13, 72)])
def test_a_leader_without_this_listener(version, code):
    harness = Harness(an_image(a_broker(0, listener="OTHER"), a_broker(1)))
    reply = metadata(harness, version, None)
    assert [broker.node_id for broker in reply.brokers] == [1]
    first = reply.topics[0].partitions[0]
    assert (first.error_code, first.leader_id) == (code, -1)


def test_a_fenced_broker_names_a_living_one_for_admin_requests():
    harness = Harness(an_image(a_broker(0), a_broker(1, fenced=True), a_broker(2)))
    assert metadata(harness, 13, []).controller_id == 0


# --- DescribeCluster ------------------------------------------------------------------------------


def describe_cluster(version, **fields):
    values = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 1,
        "include_fenced_brokers": False,
        **fields,
    }
    return Harness().ask(ApiKey.DESCRIBE_CLUSTER, version, values)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_the_cluster_is_its_living_brokers(version):
    reply = describe_cluster(version)
    assert (reply.error_code, reply.cluster_id) == (0, "ERERESIiMzNERFVVVVVVVQ")
    assert [(each.broker_id, each.host) for each in reply.brokers] == [(0, "host-0"), (1, "host-1")]


def test_fenced_brokers_are_shown_when_asked_for():
    reply = describe_cluster(2, include_fenced_brokers=True)
    assert [(each.broker_id, each.is_fenced) for each in reply.brokers] == [
        (0, False),
        (1, False),
        (2, True),
    ]


def test_controllers_are_not_to_be_found_here():
    assert describe_cluster(1, endpoint_type=2).error_code == 115


# --- DescribeTopicPartitions ----------------------------------------------------------------------


def pages(harness, names, limit):
    cursor, found, replies = None, [], 0
    while True:
        values = {
            "topics": [{"name": name} for name in names],
            "response_partition_limit": limit,
            "cursor": cursor,
        }
        reply = harness.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, values)
        replies += 1
        for topic in reply.topics:
            assert topic.error_code == 0
            found += [(topic.name, each.partition_index) for each in topic.partitions]
        if reply.next_cursor is None:
            return found, replies
        cursor = {
            "topic_name": reply.next_cursor.topic_name,
            "partition_index": reply.next_cursor.partition_index,
        }


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 2000, 100_000])
@pytest.mark.parametrize("names", [(), ("payments", "orders")])
def test_pages_hold_every_partition_once_in_order(names, limit):
    found, replies = pages(Harness(), names, limit)
    everything = [("orders", 0), ("orders", 1), ("orders", 2), ("payments", 0), ("payments", 1)]
    assert found == everything
    assert replies <= -(-5 // limit) + 1


def test_elr_and_unknown_topics_are_told():
    values = {
        "topics": [{"name": "payments"}, {"name": "absent"}],
        "response_partition_limit": 100,
        "cursor": None,
    }
    absent, payments = Harness().ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, values).topics
    assert (absent.name, absent.error_code) == ("absent", 3)
    leaderless = payments.partitions[1]
    assert (leaderless.error_code, leaderless.eligible_leader_replicas) == (5, (1,))


# --- DescribeConfigs ------------------------------------------------------------------------------


def describe_configs(version, kind, name, keys=None, synonyms=True):
    values = {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        "include_synonyms": synonyms,
        "include_documentation": True,
    }
    (result,) = Harness().ask(ApiKey.DESCRIBE_CONFIGS, version, values).results
    return result


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_a_topic_s_configs_say_where_they_come_from(version):
    result = describe_configs(version, 2, "orders")
    by_name = {config.name: config for config in result.configs}
    assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("1000", 1)
    assert by_name["min.insync.replicas"].value == "2"
    assert (by_name["segment.bytes"].config_source, by_name["segment.bytes"].value) == (
        5,
        "1073741824",
    )
    sources = [(each.name, each.value, each.source) for each in by_name["retention.ms"].synonyms]
    assert sources == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "5000", 4),
        ("log.retention.ms", "604800000", 5),
    ]
    if version >= 3:
        assert by_name["retention.ms"].config_type == 5
        assert by_name["retention.ms"].documentation


def test_only_the_keys_that_were_asked_for_and_no_synonyms():
    result = describe_configs(4, 2, "orders", ["retention.ms", "unheard.of"], synonyms=False)
    assert [(each.name, each.synonyms) for each in result.configs] == [("retention.ms", ())]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [(2, "absent", 3), (4, "7", 42), (8, "x", 42), (4, "", 0), (4, "1", 0)],
)
def test_resources_that_are_not_here(kind, name, code):
    result = describe_configs(4, kind, name)
    assert result.error_code == code
    assert bool(result.error_message) == bool(code)


def test_a_broker_s_configs_are_what_it_was_given():
    by_name = {config.name: config for config in describe_configs(4, 4, "1").configs}
    assert (by_name["num.io.threads"].value, by_name["num.io.threads"].read_only) == ("8", True)
    assert (by_name["log.retention.ms"].value, by_name["log.retention.ms"].config_source) == (
        "5000",
        4,
    )


# --- CreateTopics ---------------------------------------------------------------------------------


def a_new_topic(name, **fields):
    values = {
        "name": name,
        "num_partitions": 2,
        "replication_factor": 3,
        "assignments": [],
        "configs": [],
    }
    return {**values, **fields}


def create(harness, version, *topics, timeout=5_000, validate_only=False):
    values = {"topics": list(topics), "timeout": timeout, "validate_only": validate_only}
    return harness.ask(ApiKey.CREATE_TOPICS, version, values)


def made(request):
    return TopicsAnswer(
        topics=tuple(
            TopicAnswer(name=topic.name, topic_id=PAYMENTS, partitions=2, replication_factor=3)
            for topic in request.topics
        )
    )


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
async def test_a_topic_is_answered_when_it_can_be_seen_with_its_leaders(version):
    harness = Harness(an_image(topics=("orders",)))
    harness.answer = made
    asking = asyncio.ensure_future(
        create(
            harness,
            version,
            a_new_topic("payments", configs=[{"name": "min.insync.replicas", "value": "2"}]),
        )
    )
    for leaderless in (True, False):
        await asyncio.sleep(0)
        assert not asking.done()
        image = an_image()
        if not leaderless:
            led = a_partition(PAYMENTS, 1, 0)
            image = msgspec.structs.replace(image, partitions=image.partitions.set(led.key, led))
        harness.watch.update(harness.watch.image, image)
    (topic,) = (await asking).topics
    assert (topic.name, topic.error_code) == ("payments", 0)
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (2, 3)
        assert {config.name: config.value for config in topic.configs}["retention.ms"] == "1000"
    if version >= 7:
        assert topic.topic_id == PAYMENTS
    ((request, _),) = harness.commands
    assert isinstance(request, CreateTopics)
    assert request.topics[0].configs == {"min.insync.replicas": "2"}


async def test_a_topic_that_does_not_show_in_time_is_made_nevertheless():
    harness = Harness(an_image(topics=("orders",)))
    harness.answer = made
    (topic,) = (await create(harness, 7, a_new_topic("payments"), timeout=1)).topics
    assert (topic.error_code, topic.num_partitions) == (0, 2)


async def test_defaults_and_assignments_are_passed_on():
    harness = Harness()
    harness.answer = made
    by_default = a_new_topic("a", num_partitions=-1, replication_factor=-1)
    assigned = a_new_topic(
        "b",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            {"partition_index": 1, "broker_ids": [2, 0]},
            {"partition_index": 0, "broker_ids": [0, 1]},
        ],
    )
    await create(harness, 4, by_default, assigned, validate_only=True)
    ((request, _),) = harness.commands
    first, second = request.topics
    assert (first.partitions, first.replication_factor, first.assignment) == (None, None, None)
    assert second.assignment == ((0, 1), (2, 0))
    assert request.validate_only


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"configs": [{"name": "retention.ms", "value": None}]}, 40),
        ({"assignments": [{"partition_index": 0, "broker_ids": [1]}]}, 42),
        (
            {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 1, "broker_ids": [1]}],
            },
            39,
        ),
    ],
)
async def test_a_topic_of_bad_form_is_refused_here(fields, code):
    harness = Harness()
    (topic,) = (await create(harness, 7, a_new_topic("x", **fields))).topics
    assert topic.error_code == code
    assert topic.error_message
    assert harness.commands == []


async def test_a_topic_named_twice_is_refused_and_the_others_go_on():
    harness = Harness()
    harness.answer = made
    reply = await create(
        harness, 7, a_new_topic("x"), a_new_topic("payments"), a_new_topic("x"), timeout=1
    )
    assert {topic.name: topic.error_code for topic in reply.topics} == {"x": 42, "payments": 0}


async def test_the_controller_s_refusal_is_the_client_s_answer():
    harness = Harness()
    sentence = "Topic orders is declared by the object Topic shop/orders."
    harness.answer = TopicsAnswer(
        topics=(TopicAnswer(name="orders", code=44, reason="PolicyViolation", message=sentence),)
    )
    (topic,) = (await create(harness, 7, a_new_topic("orders"))).topics
    assert (topic.error_code, topic.error_message) == (44, sentence)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (NoController("nobody answered"), 7),
        (Refused(reason="NotController", code=41, message="not me"), 41),
    ],
)
async def test_without_a_controller_every_topic_says_so(answer, code):
    harness = Harness()
    harness.answer = answer
    reply = await create(harness, 7, a_new_topic("a"), a_new_topic("b"))
    assert [topic.error_code for topic in reply.topics] == [code, code]


async def test_an_absurd_timeout_is_bounded():
    harness = Harness()
    harness.answer = made
    await create(harness, 7, a_new_topic("a"), timeout=2**31 - 1, validate_only=True)
    ((_, timeout_ms),) = harness.commands
    assert timeout_ms <= 60_000


# --- DeleteTopics ---------------------------------------------------------------------------------


def delete(harness, version, names=(), ids=(), timeout=5_000):
    targets = [{"name": name, "topic_id": None} for name in names]
    targets += [{"name": None, "topic_id": topic_id} for topic_id in ids]
    values = {"topics": targets, "topic_names": list(names), "timeout": timeout}
    return harness.ask(ApiKey.DELETE_TOPICS, version, values)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
async def test_a_deletion_is_answered_when_the_topic_is_gone_from_sight(version):
    harness = Harness()
    harness.answer = TopicsAnswer(topics=(TopicAnswer(name="payments", topic_id=PAYMENTS),))
    asking = asyncio.ensure_future(delete(harness, version, ["payments"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not asking.done()
    harness.watch.update(harness.watch.image, an_image(topics=("orders",)))
    (result,) = (await asking).responses
    assert (result.name, result.error_code) == ("payments", 0)
    assert harness.commands[0][0] == DeleteTopics(names=("payments",))


async def test_deletions_by_id():
    harness = Harness(an_image(topics=()))
    harness.answer = TopicsAnswer(
        topics=(
            TopicAnswer(name="orders", topic_id=ORDERS),
            TopicAnswer(name="", topic_id=MISSING, code=100, message="unknown"),
        )
    )
    reply = await delete(harness, 6, ids=[ORDERS, MISSING])
    results = {each.topic_id: (each.name, each.error_code) for each in reply.responses}
    assert results == {ORDERS: ("orders", 0), MISSING: (None, 100)}


async def test_a_topic_named_twice_is_not_deleted():
    harness = Harness()
    (result,) = (await delete(harness, 5, ["orders", "orders"])).responses
    assert result.error_code == 42
    assert harness.commands == []


async def test_a_deletion_without_a_controller():
    harness = Harness()
    harness.answer = NoController("nobody")
    reply = await delete(harness, 6, names=["orders"], ids=[PAYMENTS])
    assert [each.error_code for each in reply.responses] == [7, 7]

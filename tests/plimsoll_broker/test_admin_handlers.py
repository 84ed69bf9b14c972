"""What the metadata APIs say about an image, in every version that is served."""

import msgspec
import pytest
from immutables import Map
from tests.plimsoll_broker.described import (
    MISSING,
    ORDERS,
    PAYMENTS,
    Harness,
    a_broker,
    an_image,
    versions,
)

from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.cluster.topic_configs import MIN_ISR
from plimsoll_core.messages.brokers import TopicDefaults
from plimsoll_wire.api_versions import ApiKey

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
def test_metadata_lists_all_topics_and_only_live_brokers(version):
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
def test_metadata_by_name_returns_topic_or_error(version):
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
@pytest.mark.parametrize("name", [None, ""])
def test_topics_by_id(version, name):
    """Java's admin client puts an empty name beside the id."""
    ids = [{"name": name, "topic_id": ORDERS}, {"name": name, "topic_id": MISSING}]
    known, unknown = metadata(Harness(), version, ids).topics
    assert (known.name, known.error_code) == ("orders", 0)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, MISSING, 100)


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
@pytest.mark.parametrize("name", ["a b", "", "..", "x" * 250])
def test_impossible_topic_name_differs_from_missing_one(version, name):
    (topic,) = metadata(Harness(), version, [{"name": name, "topic_id": None}]).topics
    assert (topic.name, topic.error_code) == (name, 17)


@pytest.mark.parametrize("name", ["orders", "gone", "a b"])
def test_topic_by_id_is_returned_despite_name(name):
    both = [{"name": name, "topic_id": MISSING}, {"name": name, "topic_id": PAYMENTS}]
    missing, found = metadata(Harness(), 12, both).topics
    assert (missing.error_code, missing.topic_id, missing.partitions) == (100, MISSING, ())
    assert missing.name is None
    assert (found.name, found.topic_id, found.error_code) == ("payments", PAYMENTS, 0)


@pytest.mark.parametrize("version", range(1, 14))
def test_metadata_without_requested_topics_lists_none(version):
    assert metadata(Harness(), version, []).topics == ()


@pytest.mark.parametrize(("version", "code"), [(5, 5), (6, 72), (13, 72)])
def test_leader_without_this_listener(version, code):
    harness = Harness(an_image(a_broker(0, listener="OTHER"), a_broker(1)))
    reply = metadata(harness, version, None)
    assert [broker.node_id for broker in reply.brokers] == [1]
    first = reply.topics[0].partitions[0]
    assert (first.error_code, first.leader_id) == (code, -1)


def test_answer_is_as_new_as_the_image():
    harness = Harness()
    assert metadata(harness, 13, None) == metadata(harness, 13, None)
    harness.watch.update(harness.watch.image, an_image(topics=("orders",)))
    assert [topic.name for topic in metadata(harness, 13, None).topics] == ["orders"]
    assert [topic.name for topic in metadata(harness, 1, None).topics] == ["orders"]


def test_fenced_broker_names_an_active_one_for_admins():
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
def test_cluster_is_its_living_brokers(version):
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


@pytest.mark.parametrize(("asked", "code"), [(2, 114), (0, 115), (3, 115)])
def test_broker_names_its_endpoint_type_when_asked_another(asked, code):
    reply = describe_cluster(1, endpoint_type=asked, include_cluster_authorized_operations=True)
    assert (reply.error_code, reply.endpoint_type, reply.brokers) == (code, 1, ())
    assert reply.cluster_authorized_operations == -(2**31)


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


@pytest.mark.parametrize(
    ("names", "cursor", "told"),
    [
        (("orders",), ("orders", -1), [("orders", 42)]),
        (("orders", "payments"), ("other", 0), [("orders", 42), ("payments", 42)]),
        (("orders",), ("zzz", 0), [("orders", 42)]),
        ((), ("orders", -1), []),
        ((), ("other", 0), [("payments", 0)]),
        (("bad name",), None, [("bad name", 17)]),
    ],
)
def test_cursor_that_no_answer_gave_is_refused(names, cursor, told):
    values = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": 100,
        "cursor": cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    reply = Harness().ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, values)
    assert [(topic.name, topic.error_code) for topic in reply.topics] == told


# --- DescribeConfigs ------------------------------------------------------------------------------


def describe_configs(version, kind, name, keys=None, synonyms=True, harness=None):
    values = {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        "include_synonyms": synonyms,
        "include_documentation": True,
    }
    (result,) = (harness or Harness()).ask(ApiKey.DESCRIBE_CONFIGS, version, values).results
    return result


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_topic_s_configs_say_where_they_come_from(version):
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


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_unclean_recovery_is_shown_under_both_names(version):
    """Map true→proactive, false→balanced; the default is balanced."""
    result = describe_configs(version, 2, "orders")
    by_name = {config.name: config for config in result.configs}
    strategy, switch = (
        by_name["unclean.recovery.strategy"],
        by_name["unclean.leader.election.enable"],
    )
    assert (strategy.value, strategy.config_source) == ("Balanced", 5)
    assert (switch.value, switch.config_source) == ("false", 5)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_missing_and_existing_groups_have_no_configs(version):
    result = describe_configs(version, 32, "any")
    assert (result.error_code, result.configs) == (0, ())
    assert describe_configs(version, 32, "").error_code == 42


def test_describe_configs_returns_requested_keys_without_synonyms():
    result = describe_configs(4, 2, "orders", ["retention.ms", "unheard.of"], synonyms=False)
    assert [(each.name, each.synonyms) for each in result.configs] == [("retention.ms", ())]


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({}, 3),
        ({"configs": Map({"min.insync.replicas": "2"})}, 1),
        ({"object": TopicObject(namespace="shop", name="orders", uid="u")}, 1),
    ],
)
def test_topic_min_isr_is_shown_as_its_own(fields, source):
    image = an_image()
    topic = msgspec.structs.replace(image.topics[ORDERS], **fields)
    harness = Harness(msgspec.structs.replace(image, topics=image.topics.set(ORDERS, topic)))
    (config,) = describe_configs(4, 2, "orders", ["min.insync.replicas"], harness=harness).configs
    assert (config.value, config.config_source) == ("2", source)
    synonyms = [(each.name, each.value, each.source) for each in config.synonyms]
    assert synonyms == [("min.insync.replicas", "2", source), ("min.insync.replicas", "1", 5)]


def test_empty_list_of_keys_asks_for_all():
    assert describe_configs(4, 2, "orders", []) == describe_configs(4, 2, "orders", None)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (2, "bad name", 17),
        (2, "", 17),
        (4, "one", 42),
        (2, "absent", 3),
        (4, "7", 42),
        (8, "x", 42),
        (4, "", 0),
        (4, "1", 0),
    ],
)
def test_resources_that_are_not_here(kind, name, code):
    result = describe_configs(4, kind, name)
    assert result.error_code == code
    assert bool(result.error_message) == bool(code)


def test_broker_s_configs_are_what_it_was_given():
    by_name = {config.name: config for config in describe_configs(4, 4, "1").configs}
    assert (by_name["num.io.threads"].value, by_name["num.io.threads"].read_only) == ("8", True)
    assert (by_name["log.retention.ms"].value, by_name["log.retention.ms"].config_source) == (
        "5000",
        4,
    )


def test_broker_reports_defaults_learned_from_controller():
    harness, names = Harness(), ["num.partitions", "default.replication.factor", MIN_ISR]
    assert describe_configs(4, 4, "1", names, harness=harness).configs == ()
    harness.topic_defaults = TopicDefaults(partitions=6, replication_factor=3, min_isr=2)
    found = describe_configs(4, 4, "1", names, harness=harness).configs
    told = {each.name: (each.value, each.config_source, each.config_type) for each in found}
    assert told == dict(zip(names, [("6", 4, 3), ("3", 4, 3), ("2", 4, 3)], strict=True))
    assert all(each.read_only and each.documentation for each in found)


# --- ListConfigResources --------------------------------------------------------------------------


def resources(version, types=()):
    values = {"resource_types": list(types)} if version else {}
    return Harness().ask(ApiKey.LIST_CONFIG_RESOURCES, version, values)


@pytest.mark.parametrize(
    ("types", "found"),
    [
        ((), [("orders", 2), ("payments", 2), ("0", 4), ("1", 4)]),
        ((2,), [("orders", 2), ("payments", 2)]),
        ((4, 8, 16, 32), [("0", 4), ("1", 4)]),
        ((16,), []),
    ],
)
def test_topics_and_live_brokers_have_configs(types, found):
    reply = resources(1, types)
    assert reply.error_code == 0
    listed = [(each.resource_name, each.resource_type) for each in reply.config_resources]
    assert listed == found


def test_type_that_kafka_does_not_know_is_refused():
    reply = resources(1, (2, 99))
    assert (reply.error_code, reply.config_resources) == (35, ())


def test_version_0_finds_no_client_metrics():
    reply = resources(0)
    assert (reply.error_code, reply.config_resources) == (0, ())

"""A Topic object as a request: every default resolved, every impossible wish refused."""

from typing import Any
from uuid import UUID

import pytest

from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import DeclareTopic
from plimsoll_operator.api.broker_configs import broker_configs_of, config_strings, settings_of
from plimsoll_operator.api.load import Unreadable, from_object, from_yaml
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.reconcile.topic.topic_declaration import declare


def a_cluster(**spec: Any) -> LogCluster:
    body = {
        "metadata": {"name": "main", "namespace": "kafka", "uid": "u0"},
        "spec": {"storage": {"size": "1Gi"}, **spec},
    }
    return from_object(body, LogCluster)


def a_topic(namespace: str = "kafka", **spec: Any) -> Topic:
    body = {
        "metadata": {"name": "orders", "namespace": namespace, "uid": "u1"},
        "spec": {"clusterRef": {"name": "main", "namespace": "kafka"}, **spec},
    }
    return from_object(body, Topic)


def declared(topic: Topic, cluster: LogCluster, **labels: str) -> DeclareTopic:
    answer = declare(topic, cluster, labels)
    assert isinstance(answer, DeclareTopic), answer
    return answer


def refused(topic: Topic, cluster: LogCluster, **labels: str) -> Refusal:
    answer = declare(topic, cluster, labels)
    assert isinstance(answer, Refusal), answer
    return answer


def test_unset_fields_get_the_documented_defaults():
    request = declared(a_topic(), a_cluster())
    assert (request.topic_name, request.partitions) == ("orders", 6)
    assert (request.replication_factor, request.min_isr) == (3, 2)
    assert (request.strategy, request.deletion_policy) == ("RoundRobin", "Delete")


def test_default_replication_factor_fits_a_small_cluster():
    request = declared(a_topic(), a_cluster(brokers={"count": 1}))
    assert (request.replication_factor, request.min_isr) == (1, 1)


def test_clusters_defaults_win_over_the_built_in_ones():
    defaults = {"partitions": 12, "replicationFactor": 2, "minInSyncReplicas": 1}
    request = declared(a_topic(), a_cluster(topics={"defaults": defaults}))
    assert (request.partitions, request.replication_factor, request.min_isr) == (12, 2, 1)


def test_configs_are_strings_as_kafka_carries_them():
    request = declared(a_topic(config={"retention.ms": 5, "preallocate": True}), a_cluster())
    assert request.configs == {"preallocate": "true", "retention.ms": "5"}


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("min.insync.replicas", "spec.minInSyncReplicas"),
        ("unclean.recovery.strategy", "spec.uncleanRecovery.strategy"),
        ("unclean.leader.election.enable", "spec.uncleanRecovery.strategy"),
    ],
)
def test_topic_config_with_spec_field_is_rejected(key: str, field: str):
    refusal = refused(a_topic(config={key: 2}), a_cluster())
    assert refusal.reason is Reason.InvalidConfig
    assert field in refusal.message


def test_strategy_is_stated_or_left_to_cluster():
    stated = declared(a_topic(uncleanRecovery={"strategy": "Manual"}), a_cluster())
    assert stated.configs == {"unclean.recovery.strategy": "Manual"}
    left = declared(a_topic(), a_cluster(uncleanRecovery="Proactive"))
    assert left.configs == {}


@pytest.mark.parametrize(
    ("spec", "strategy"),
    [({}, "Balanced"), ({"uncleanRecovery": "Manual"}, "Manual")],
)
def test_cluster_tells_its_strategy_to_the_controller(spec: dict[str, str], strategy: str):
    assert settings_of(a_cluster(**spec)).unclean_recovery == strategy


def test_cluster_bounds_client_topics():
    plain = settings_of(a_cluster())
    assert plain.client_created_topics
    assert (plain.partitions_per_topic_max, plain.partitions_per_namespace_max) == (10_000, None)
    limits = {"partitionsPerTopic": 200, "partitionsPerNamespace": 2_000}
    stated = settings_of(a_cluster(topics={"clientCreated": "Deny", "limits": limits}))
    assert not stated.client_created_topics
    assert (stated.partitions_per_topic_max, stated.partitions_per_namespace_max) == (200, 2_000)


def test_cluster_tells_its_strategy_to_its_brokers_too():
    assert broker_configs_of(a_cluster(uncleanRecovery="Manual")) == {
        "unclean.recovery.strategy": "Manual"
    }
    assert broker_configs_of(a_cluster()) == {}


@pytest.mark.parametrize("key", ["unclean.recovery.strategy", "unclean.leader.election.enable"])
def test_cluster_strategy_is_no_config(key: str):
    refusal = broker_configs_of(a_cluster(config={key: "Manual"}))
    assert isinstance(refusal, Refusal)
    assert "spec.uncleanRecovery" in refusal.message


def test_foreign_namespace_is_not_allowed_by_default():
    assert refused(a_topic(namespace="shop"), a_cluster()).reason is Reason.NotAllowed


@pytest.mark.parametrize(
    ("allowed", "labels", "ok"),
    [
        ({"from": "All"}, {}, True),
        ({"from": "Same"}, {}, False),
        ({"from": "Selector"}, {}, False),
        ({"from": "Selector", "selector": {"matchLabels": {"k": "v"}}}, {"k": "v"}, True),
        ({"from": "Selector", "selector": {"matchLabels": {"k": "v"}}}, {"k": "w"}, False),
        (
            {
                "from": "Selector",
                "selector": {"matchExpressions": [{"key": "k", "operator": "Exists"}]},
            },
            {"k": "w"},
            True,
        ),
    ],
)
def test_namespaces_are_let_in_by_the_clusters_owner(allowed, labels, ok):
    cluster = a_cluster(topics={"allowedNamespaces": allowed})
    answer = declare(a_topic(namespace="shop"), cluster, labels)
    assert isinstance(answer, DeclareTopic) is ok


def test_foreign_namespace_names_follow_the_owners_prefix() -> None:
    cluster = a_cluster(
        topics={"allowedNamespaces": {"from": "All"}, "prefix": "team.{namespace}."}
    )
    refused = declare(a_topic(namespace="shop", topicName="billing.orders"), cluster)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.NotAllowed
    assert "begin with team.shop." in refused.message
    own = declare(a_topic(namespace="shop", topicName="team.shop.orders"), cluster)
    assert isinstance(own, DeclareTopic)
    assert isinstance(declare(a_topic(topicName="billing.orders"), cluster), DeclareTopic)


def explicit(*replicas: list[int], **spec: Any) -> Topic:
    assignment = [{"partition": i, "replicas": r} for i, r in enumerate(replicas)]
    return a_topic(placement={"strategy": "Explicit", "assignment": assignment}, **spec)


def test_explicit_assignment_states_partitions_and_replication_factor():
    request = declared(explicit([0, 1], [1, 2]), a_cluster())
    assert (request.partitions, request.replication_factor) == (2, 2)
    assert request.assignment == ((0, 1), (1, 2))


@pytest.mark.parametrize(
    ("topic", "sentence"),
    [
        (explicit([0, 0]), "lists a broker twice"),
        (explicit([0, 1], [2]), "all partitions must have the same number"),
        (explicit([0, 1], partitions=2), "every partition from 0 to 1"),
        (explicit([0, 1], replicationFactor=3), "spec.replicationFactor is 3"),
    ],
)
def test_broken_explicit_assignment_is_refused_with_a_sentence(topic, sentence):
    refusal = refused(topic, a_cluster())
    assert refusal.reason is Reason.PlacementInvalid
    assert sentence in refusal.message


TOPIC_YAML = """
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec:
  clusterRef: {name: main}
  partitions: 15
---
apiVersion: v1
kind: Namespace
metadata: {name: kafka}
"""


def test_files_resources_are_read_and_foreign_ones_skipped():
    (topic,) = from_yaml(TOPIC_YAML)
    assert isinstance(topic, Topic)
    assert topic.spec.partitions == 15


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("partitions", "partitons", "field spec.partitons is unknown"),
        ("15", "fifteen", "Topic orders"),
        ("15", "0", "Topic orders"),
        ("kind: Topic", "kind: Tropic", "this kind is unknown"),
        ("{name: main}", "{name: main", "not valid YAML"),
    ],
)
def test_typo_in_a_file_is_named(old, new, sentence):
    with pytest.raises(Unreadable, match=sentence):
        list(from_yaml(TOPIC_YAML.replace(old, new)))


@pytest.mark.parametrize(
    "stated", ["AAAAAAAAAAAAAAAAAAAABw", None, "", "orders", "A" * 21, "*" * 22]
)
def test_adopted_topic_is_named_by_annotation(stated: str | None):
    annotations = {} if stated is None else {"plimsoll.dev/adopt": stated}
    body = {
        "metadata": {"name": "orders", "namespace": "kafka", "uid": "u1",
                     "annotations": annotations},
        "spec": {"clusterRef": {"name": "main", "namespace": "kafka"}},
    }  # fmt: skip
    expected = UUID(int=7) if stated == "AAAAAAAAAAAAAAAAAAAABw" else None
    assert declared(from_object(body, Topic), a_cluster()).adopt == expected


def test_config_values_keep_their_written_form():
    written = {"a": "7d", "b": 1, "c": True, "d": False, "e": 0.5, "f": 2.0, "g": 2**63 - 1}
    assert config_strings(written) == {
        "a": "7d",
        "b": "1",
        "c": "true",
        "d": "false",
        "e": "0.5",
        "f": "2",
        "g": "9223372036854775807",
    }


def test_topic_takes_a_decimal_unquoted():
    body = {
        "metadata": {"name": "orders", "namespace": "kafka", "uid": "u1"},
        "spec": {"clusterRef": {"name": "main"}, "config": {"min.cleanable.dirty.ratio": 0.5}},
    }
    assert from_object(body, Topic).spec.config == {"min.cleanable.dirty.ratio": 0.5}

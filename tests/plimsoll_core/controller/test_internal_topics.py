"""The brokers' own topics: how they are made, and that nobody else makes or removes one."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS, INTERNAL_TOPICS
from plimsoll_core.controller.kernel.settings import InternalTopic
from plimsoll_core.messages.requests import (
    CreateTopics,
    DeclareTopic,
    DeleteTopics,
    NewTopic,
    Refused,
    TopicsAnswer,
)
from plimsoll_core.messages.topics import EnsureInternalTopic


@pytest.fixture
def newest(world: Any) -> Any:
    """A world whose metadata version knows compaction."""
    world.image = apply(world.image, MetadataVersionFinalized(cause="test", metadata_version=2))
    return world


def ensure(world: Any, name: str = GROUP_OFFSETS) -> Any:
    return world.ask(EnsureInternalTopic(name=name))


def test_offsets_topic_is_created_once_with_settings(newest: Any) -> None:
    newest.settings = replace(
        newest.settings,
        offsets_topic=InternalTopic(partitions=7, segment_bytes=1_000),
        client_created_topics=False,
    )
    answer = ensure(newest)
    assert isinstance(answer, TopicsAnswer)
    assert (answer.topics[0].partitions, answer.topics[0].replication_factor) == (7, 3)
    topic = newest.image.topics[newest.image.topic_ids[GROUP_OFFSETS]]
    assert (topic.min_isr, topic.object) == (2, None)
    assert dict(topic.configs) == {
        "cleanup.policy": "compact",
        "segment.bytes": "1000",
        "unclean.recovery.strategy": "Balanced",
    }
    end = len(newest.log)
    assert ensure(newest) == answer
    assert len(newest.log) == end


def test_offsets_topic_has_one_replica_per_broker(newest: Any) -> None:
    newest.settings = replace(newest.settings, offsets_topic=InternalTopic(replication_factor=9))
    brokers = len(newest.image.brokers)
    assert ensure(newest).topics[0].replication_factor == brokers


def test_offsets_topic_waits_for_compaction_metadata_version(world: Any) -> None:
    answer = ensure(world)
    assert isinstance(answer, Refused)
    assert answer.reason == "MetadataTooOld"


@pytest.mark.parametrize("name", ["orders", "__transaction_state", ""])
def test_other_topics_are_not_made_so(newest: Any, name: str) -> None:
    assert isinstance(ensure(newest, name), Refused)


def test_creation_of_existing_offsets_topic_is_refused(newest: Any) -> None:
    ensure(newest)
    end = len(newest.log)
    (made,) = newest.ask(CreateTopics(topics=(NewTopic(name=GROUP_OFFSETS),))).topics
    assert (made.reason, made.code) == ("TopicAlreadyExists", 36)
    assert len(newest.log) == end


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_clients_and_objects_may_have_no_internal_topic(newest: Any, name: str) -> None:
    (made,) = newest.ask(CreateTopics(topics=(NewTopic(name=name),))).topics
    assert (made.reason, made.code) == ("PolicyViolation", 44)
    declared = newest.ask(
        DeclareTopic(
            object=TopicObject(namespace="n", name="o", uid="u"),
            topic_name=name,
            partitions=1,
            replication_factor=1,
            min_isr=1,
        )
    )
    assert declared.reason == "InvalidConfig"


def test_clients_may_not_delete_the_topic_of_offsets(newest: Any) -> None:
    ensure(newest)
    topic_id = newest.image.topic_ids[GROUP_OFFSETS]
    answers = newest.ask(DeleteTopics(names=(GROUP_OFFSETS,), ids=(topic_id,))).topics
    assert [answer.reason for answer in answers] == ["PolicyViolation"] * 2
    assert GROUP_OFFSETS in newest.image.topic_ids

"""Clients change configs of their topics and add partitions to them; objects' topics stay."""

from typing import Any
from uuid import UUID

import pytest

from plimsoll_core.cluster.records import (
    MetadataVersionFinalized,
    PartitionsChanged,
    PartitionsCreated,
    TopicConfigured,
    TopicCreated,
)
from plimsoll_core.messages.requests import CreateTopics, DetachTopic, NewTopic
from plimsoll_core.messages.topics import (
    AddPartitions,
    AlterTopicConfigs,
    ConfigChange,
    TopicChanged,
    TopicConfigChanges,
    TopicGrowth,
)

OWN = {"min.insync.replicas": "1", "retention.ms": "5000"}


@pytest.fixture
def world(world: Any) -> Any:
    """Topic `t` is a client's, three partitions."""
    world.ask(CreateTopics(topics=(NewTopic(name="t", partitions=3, configs=OWN),)))
    return world


def configs(world: Any, name: str = "t") -> dict[str, str]:
    return dict(world.image.topics[world.image.topic_ids[name]].configs)


def set_(name: str, value: str | None, operation: str = "Set", otherwise: str = "") -> ConfigChange:
    return ConfigChange(name=name, operation=operation, value=value, otherwise=otherwise)


def delete(name: str) -> ConfigChange:
    return ConfigChange(name=name, operation="Delete")


def alter(
    world: Any, *changes: ConfigChange, name: str = "t", replace: bool = False, **request: Any
) -> TopicChanged:
    one = TopicConfigChanges(topic=name, changes=changes, replace=replace)
    answer = world.ask(AlterTopicConfigs(topics=(one,), **request))
    assert answer.end_offset == world.image.next_offset
    return answer.topics[0]


def grow(world: Any, partitions: int, *, name: str = "t", **wish: Any) -> TopicChanged:
    one = TopicGrowth(topic=name, partitions=partitions, **wish)
    return world.ask(AddPartitions(topics=(one,))).topics[0]


class TestConfigs:
    def test_config_change_leaves_other_configs_alone(self, world: Any) -> None:
        assert alter(world, set_("flush.ms", " 7 "), delete("retention.ms")).code == 0
        assert configs(world) == {"min.insync.replicas": "1", "flush.ms": "7"}
        assert world.p(name="t").min_isr == 1

    def test_what_holds_already_writes_nothing(self, world: Any) -> None:
        end = len(world.log)
        assert alter(world, set_("retention.ms", "5000"), delete("flush.ms")).code == 0
        assert len(world.log) == end

    def test_topic_codec_waits_for_its_metadata_version(self, world: Any) -> None:
        world.commit(MetadataVersionFinalized(cause="test", metadata_version=2))
        asked = set_("compression.type", "zstd")
        refused = alter(world, asked)
        assert refused.reason == "MetadataTooOld"
        assert "compression.type=zstd needs metadata version 0.2 (#3), but" in refused.message
        wish = NewTopic(name="new", partitions=1, configs={"compression.type": "lz4"})
        (made,) = world.ask(CreateTopics(topics=(wish,))).topics
        assert "needs metadata version" in made.message
        assert alter(world, set_("compression.type", "producer")).code == 0
        world.commit(MetadataVersionFinalized(cause="test", metadata_version=3))
        assert alter(world, asked).code == 0
        assert configs(world)["compression.type"] == "zstd"

    def test_empty_list_of_policies_needs_its_metadata_version(self, world: Any) -> None:
        world.commit(MetadataVersionFinalized(cause="test", metadata_version=2))
        asked = set_("cleanup.policy", "delete", "Subtract", "delete")
        refused = alter(world, asked)
        assert refused.reason == "MetadataTooOld"
        assert "cleanup.policy= needs metadata version 0.2 (#3), but" in refused.message
        world.commit(MetadataVersionFinalized(cause="test", metadata_version=3))
        assert alter(world, asked).code == 0
        assert configs(world)["cleanup.policy"] == ""
        assert alter(world, set_("cleanup.policy", "compact", "Append", "delete")).code == 0
        assert configs(world)["cleanup.policy"] == "compact"

    def test_whole_set_is_replaced(self, world: Any) -> None:
        assert alter(world, set_("flush.ms", "7"), replace=True).code == 0
        assert configs(world) == {"flush.ms": "7"}
        assert world.p(name="t").min_isr == 2, "the cluster's default again"

    def test_min_isr_reaches_every_partition_slice_by_slice(self, new_world: Any) -> None:
        world = new_world(3, slice_partitions_max=2)
        world.ask(CreateTopics(topics=(NewTopic(name="t", partitions=5),)))
        assert alter(world, set_("min.insync.replicas", "3")).code == 0
        assert {world.p(n, "t").min_isr for n in range(5)} == {3}
        slices = [r for r in world.log if isinstance(r, PartitionsChanged)]
        assert len(slices) >= 3
        assert sum(isinstance(r, TopicConfigured) for r in world.log) == 1, "decided once"

    def test_removed_min_isr_config_returns_to_default(self, world: Any) -> None:
        assert alter(world, delete("min.insync.replicas")).code == 0
        assert configs(world) == {"retention.ms": "5000"}
        assert world.p(2, "t").min_isr == 2

    def test_min_isr_stays_when_another_config_changes(self, world: Any) -> None:
        """Of a topic whose configs did not name it, as release 0.1 made them."""
        topic_id = world.image.topic_ids["t"]
        world.commit(TopicConfigured(cause="0.1", topic_id=topic_id, configs={}, min_isr=1))
        assert alter(world, set_("flush.ms", "7")).code == 0
        assert world.image.topics[topic_id].min_isr == 1

    def test_list_grows_from_what_holds_and_shrinks(self, world: Any) -> None:
        append = set_("cleanup.policy", "delete,delete", "Append", "delete")
        assert alter(world, append).code == 0
        assert configs(world)["cleanup.policy"] == "delete"
        name = "leader.replication.throttled.replicas"
        assert alter(world, set_(name, "0:1,1:2", "Subtract")).code == 0
        assert alter(world, set_(name, "0:1", "Append")).code == 40

    def test_older_name_of_the_strategy_takes_its_place(self, world: Any) -> None:
        assert alter(world, set_("unclean.leader.election.enable", "true")).code == 0
        assert configs(world)["unclean.recovery.strategy"] == "Proactive"
        assert alter(world, set_("unclean.leader.election.enable", "false")).code == 0
        assert configs(world)["unclean.recovery.strategy"] == "Balanced"
        assert alter(world, delete("unclean.leader.election.enable")).code == 0
        assert configs(world) == OWN

    def test_validate_only_answers_the_same_and_writes_nothing(self, world: Any) -> None:
        end = len(world.log)
        assert alter(world, set_("flush.ms", "7"), validate_only=True).code == 0
        assert alter(world, set_("flush.ms", "x"), validate_only=True).code == 40
        assert len(world.log) == end

    @pytest.mark.parametrize(
        ("changes", "code", "words"),
        [
            ((set_("no.such", "1"),), 40, "no topic config no.such"),
            ((set_("retention.ms", "soon"),), 40, "whole number"),
            ((set_("retention.ms", None),), 42, "Null value not supported for : retention.ms"),
            ((set_("retention.ms", "1"), set_("retention.ms", "2")), 42, "duplicate config keys"),
            ((set_("retention.ms", "1", "Append"),), 40, "because its type is not LIST"),
            ((set_("min.insync.replicas", "0"),), 40, "from 1"),
            ((set_("segment.bytes", "1000"),), 40, "at least 1048576"),
            ((set_("preallocate", "true"),), 40, "must be false"),
        ],
    )
    def test_one_bad_config_refuses_all_of_its_topic(
        self, world: Any, changes: tuple[ConfigChange, ...], code: int, words: str
    ) -> None:
        end = len(world.log)
        answer = alter(world, set_("flush.ms", "7"), *changes)
        assert answer.code == code
        assert words in answer.message
        assert len(world.log) == end

    def test_topics_are_answered_each_for_itself_in_turns(self, new_world: Any) -> None:
        world = new_world(3, slice_partitions_max=1)
        world.ask(CreateTopics(topics=tuple(NewTopic(name=n, partitions=2) for n in "ab")))
        changes = (set_("min.insync.replicas", "1"),)
        names = ("a", "gone", "b", "bad name", "b2", "b2")
        wishes = tuple(TopicConfigChanges(topic=name, changes=changes) for name in names)
        answers = world.ask(AlterTopicConfigs(topics=wishes)).topics
        assert [(one.topic, one.code) for one in answers] == [
            ("a", 0),
            ("gone", 3),
            ("b", 0),
            ("bad name", 17),
            ("b2", 42),
            ("b2", 42),
        ]
        assert {world.p(i, n).min_isr for n in "ab" for i in range(2)} == {1}

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            (set_("retention.ms", "1"), "spec.config"),
            (set_("min.insync.replicas", "1"), "spec.minInSyncReplicas"),
            (delete("min.insync.replicas"), "spec.minInSyncReplicas"),
            (set_("unclean.leader.election.enable", "true"), "spec.uncleanRecovery"),
        ],
    )
    def test_declared_topic_refusal_names_object_and_field(
        self, world: Any, change: ConfigChange, field: str
    ) -> None:
        end = len(world.log)
        answer = alter(world, change, name="orders")
        assert (answer.code, answer.reason) == (44, "PolicyViolation")
        assert answer.message == (
            "Clients cannot change or delete topic orders, because the object Topic shop/orders "
            f"declares it; edit {field} of that object."
        )
        assert len(world.log) == end

    def test_request_without_change_to_declared_topic_is_accepted(self, world: Any) -> None:
        """kafka-reassign-partitions takes away throttles that it never set."""
        nothing = delete("leader.replication.throttled.replicas")
        assert alter(world, nothing, set_("min.insync.replicas", "2"), name="orders").code == 0

    def test_topic_of_the_cluster_itself_is_not_changed(self, world: Any) -> None:
        name = "__consumer_offsets"
        topic_id, row = UUID(int=7), ((0, 1, 2),)
        made = TopicCreated(cause="", topic_id=topic_id, name=name, replication_factor=3, min_isr=2)
        world.commit(made)
        world.commit(PartitionsCreated(cause="", topic_id=topic_id, first=0, replicas=row, isr=row))
        end = len(world.log)
        for answer in (alter(world, set_("flush.ms", "7"), name=name), grow(world, 2, name=name)):
            assert (answer.code, "is internal" in answer.message) == (44, True)
        assert alter(world, delete("flush.ms"), name=name).code == 0
        assert len(world.log) == end

    def test_topic_detached_from_its_object_belongs_to_clients(self, world: Any) -> None:
        world.ask(DetachTopic(object=world.declaration().object))
        assert alter(world, set_("retention.ms", "1"), name="orders").code == 0
        assert configs(world, "orders") == {"retention.ms": "1"}


class TestPartitions:
    def test_new_partitions_continue_placement_with_topic_min_isr(self, world: Any) -> None:
        assert grow(world, 6).code == 0
        rows = [world.p(n, "t").replicas for n in range(6)]
        assert [row[0] for row in rows[:3]] == [row[0] for row in rows[3:]]
        assert {world.p(n, "t").min_isr for n in range(6)} == {1}
        assert all(world.p(n, "t").leader == rows[n][0] for n in range(6))

    def test_assignment_names_the_replicas_of_the_new_ones(self, world: Any) -> None:
        assert grow(world, 5, assignment=((2, 0, 1), (1, 2, 0))).code == 0
        assert [world.p(n, "t").replicas for n in (3, 4)] == [(2, 0, 1), (1, 2, 0)]

    @pytest.mark.parametrize(
        ("partitions", "wish", "code", "words"),
        [
            (3, {}, 37, "Topic already has 3 partition(s)."),
            (2, {}, 37, "has 3 partition(s); 2 would not be an increase"),
            (10**9, {}, 37, "1 to 10000"),
            (5, {"assignment": ((0, 1, 2),)}, 39, "of 2 partitions, not 1"),
            (4, {"assignment": ((0, 1),)}, 39, "has 3 replicas"),
            (4, {"assignment": ((0, 1, 9),)}, 39, "not registered: 9"),
            (4, {"assignment": ()}, 39, "not 0"),
            (2, {"name": "orders"}, 44, "edit spec.partitions of that object"),
            (2, {"name": "gone"}, 3, "no topic gone"),
            (2, {"name": "bad name"}, 17, "Topic name is invalid"),
        ],
    )
    def test_refusal_says_what_to_do_and_adds_nothing(
        self, world: Any, partitions: int, wish: dict[str, Any], code: int, words: str
    ) -> None:
        end = len(world.log)
        answer = grow(world, partitions, **wish)
        assert answer.code == code
        assert words in answer.message
        assert len(world.log) == end

    def test_topics_are_grown_each_for_itself_in_turns(self, new_world: Any) -> None:
        world = new_world(3, slice_partitions_max=1)
        world.ask(CreateTopics(topics=tuple(NewTopic(name=n, partitions=1) for n in "abc")))
        names = ("a", "b", "b", "c")
        wishes = tuple(TopicGrowth(topic=name, partitions=2) for name in names)
        answers = world.ask(AddPartitions(topics=wishes)).topics
        assert [(one.topic, one.code) for one in answers] == [
            ("a", 0),
            ("b", 42),
            ("b", 42),
            ("c", 0),
        ]
        assert len([n for n in "abc" if world.p(1 if n != "b" else 0, n)]) == 3

    def test_topic_without_partitions_grows_after_controller_death(self, world: Any) -> None:
        topic = NewTopic(name="cut", partitions=2, replication_factor=3)
        world.ask(CreateTopics(topics=(topic,)), crash_after=1)
        assert world.image.topics[world.image.topic_ids["cut"]].partitions == 0
        assert grow(world, 2, name="cut").code == 0
        assert [len(world.p(index, "cut").replicas) for index in (0, 1)] == [3, 3]

    def test_validate_only_adds_nothing(self, world: Any) -> None:
        end = len(world.log)
        wish = TopicGrowth(topic="t", partitions=4)
        answer = world.ask(AddPartitions(topics=(wish,), validate_only=True))
        assert answer.topics[0].code == 0
        assert len(world.log) == end

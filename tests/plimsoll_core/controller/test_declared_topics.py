"""What Topic objects make of the cluster, and how their data outlives a mistake."""

from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll_core.cluster.image import HOUR_MS
from plimsoll_core.cluster.model import RESTORE_SHOWN_MS, HistoryRestored, TopicObject
from plimsoll_core.ids import MetadataOffset
from plimsoll_core.messages.requests import (
    CreateTopics,
    DetachTopic,
    Done,
    NewTopic,
    Refused,
    TopicObjectGone,
)

DAY_MS = 24 * HOUR_MS
ORDERS = TopicObject(namespace="shop", name="orders", uid="uid-of-orders")
REAPPLIED = TopicObject(namespace="shop", name="orders", uid="another-uid")
RENAMED = TopicObject(namespace="shop", name="shop-orders", uid="uid-of-shop-orders")
STRANGER = TopicObject(namespace="evil", name="orders", uid="strange-uid")


def topic(world: Any, name: str = "orders") -> Any:
    return world.image.topics[world.image.topic_ids[name]]


def gone(world: Any, holder: TopicObject = ORDERS, now_ms: int = 0, **fields: Any) -> Any:
    values = {"grace_ms": DAY_MS, "removals_per_hour_max": 20, **fields}
    return world.ask(TopicObjectGone(object=holder, server_now_ms=now_ms, **values))


class TestDeclare:
    def test_creates_and_answers_what_there_is(self, new_world: Any) -> None:
        world = new_world(3)
        (answer,) = world.declare(partitions=15, strategy="Blocked").topics
        assert (answer.partitions, answer.replication_factor) == (15, 3)
        assert [world.p(n).replicas for n in (0, 1, 5, 14)] == [
            (0, 1, 2),
            (0, 2, 1),
            (1, 2, 0),
            (2, 0, 1),
        ]

    def test_unchanged_topic_object_adds_no_record(self, world: Any) -> None:
        world.declare()
        end = len(world.log)
        assert world.declare().topics[0].code == 0
        assert len(world.log) == end

    def test_growth_continues_the_formula(self, new_world: Any) -> None:
        small, large = new_world(3), new_world(3)
        small.declare(partitions=4)
        small.declare(partitions=9)
        large.declare(partitions=9)
        rows = [[w.p(n).replicas for n in range(9)] for w in (small, large)]
        assert rows[0] == rows[1]
        assert topic(small).partitions == 9

    def test_growth_changes_no_partition_that_is_there(self, world: Any) -> None:
        world.propose([0, 1])
        before = world.p(0)
        world.declare(partitions=5)
        assert world.p(0) is before

    def test_explicit_rows_are_taken_and_grown(self, world: Any) -> None:
        rows = ((0, 1, 2), (2, 1, 0))
        world.declare(partitions=2, strategy="Explicit", assignment=rows)
        assert world.p(1).replicas == (2, 1, 0)

    def test_min_isr_goes_into_every_partition(self, new_world: Any) -> None:
        """THEN for every partition of the topic: min_isr := v, PE += 1."""
        world = new_world(3)
        world.declare(partitions=6)
        world.declare(partitions=6, min_isr=3)
        assert {world.p(n).min_isr for n in range(6)} == {3}
        assert {world.p(n).partition_epoch for n in range(6)} == {1}
        world.declare(partitions=7, min_isr=3)
        assert world.p(6).min_isr == 3

    def test_configs_are_replaced(self, world: Any) -> None:
        world.declare(configs={"retention.ms": "5", "segment.bytes": "1048576"})
        world.declare(configs={"segment.bytes": "1048576"})
        assert dict(topic(world).configs) == {"segment.bytes": "1048576"}
        assert world.p().partition_epoch == 0

    @pytest.mark.parametrize(
        ("fields", "reason", "words"),
        [
            ({"partitions": 1}, "InvalidPartitions", "cannot decrease to 1"),
            ({"replication_factor": 5}, "NotEnoughBrokers", "needs 5 brokers"),
            ({"min_isr": 4}, "InvalidConfig", "not 4"),
            ({"min_isr": 0}, "InvalidConfig", "not 0"),
            ({"configs": {"min.insync.replicas": "2"}}, "InvalidConfig", "minInSyncReplicas"),
            ({"configs": {"retentoin.ms": "2"}}, "InvalidConfig", "retentoin.ms"),
            ({"configs": {"cleanup.policy": "expire"}}, "InvalidConfig", "must be delete"),
            ({"configs": {"segment.ms": "1"}}, "InvalidConfig", "at least 60000"),
            ({"configs": {"cleanup.policy": "compact"}}, "MetadataTooOld", "needs metadata"),
            ({"deletion_policy": "Keep"}, "InvalidConfig", "Delete or Retain"),
            ({"object": STRANGER}, "TopicNameTaken", "Topic shop/orders"),
            ({"partitions": 10**6}, "InvalidPartitions", "1 to 10000"),
        ],
    )
    def test_refusal_changes_no_part_of_a_topic(
        self, new_world: Any, fields: dict[str, Any], reason: str, words: str
    ) -> None:
        world = new_world(3)
        world.declare(partitions=2)
        end = len(world.log)
        answer = world.declare(**{"partitions": 2, "configs": {"retention.ms": "9"}, **fields})
        assert isinstance(answer, Refused)
        assert answer.reason == reason
        assert words in answer.message
        assert len(world.log) == end

    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            (None, "all 2 partitions, but names those of 0"),
            (((0, 1, 2),), "names those of 1"),
            (((0, 1, 2), (0, 1)), "replicationFactor is 3"),
            (((0, 1, 2), (0, 1, 1)), "twice"),
            (((0, 1, 2), (0, 1, 8)), "not registered: 8"),
        ],
    )
    def test_explicit_placement_is_checked(self, new_world: Any, rows: Any, words: str) -> None:
        world = new_world(3)
        answer = world.declare(partitions=2, strategy="Explicit", assignment=rows)
        assert answer.reason == "PlacementInvalid"
        assert words in answer.message

    def test_too_few_brokers_is_told_and_retried_later(self, new_world: Any) -> None:
        world = new_world(2)
        answer = world.declare()
        assert answer.reason == "NotEnoughBrokers"
        assert "only 2" in answer.message
        world.start(2)
        assert world.declare().topics[0].code == 0

    def test_namespace_that_is_full_gets_no_more_partitions(self, new_world: Any) -> None:
        """Neither by a new Topic nor by growth; what is there stays, other namespaces go on."""
        world = new_world(3, partitions_per_namespace_max=10)
        world.declare("orders", partitions=6)
        answer = world.declare("payments", partitions=5)
        assert answer.reason == "InvalidPartitions"
        assert "namespace shop have 6 partitions and may have 10; 5 more" in answer.message
        assert "partitionsPerNamespace" in answer.message
        assert world.declare("payments", partitions=4).topics[0].partitions == 4
        assert world.declare("orders", partitions=7).reason == "InvalidPartitions"
        assert world.declare("orders", partitions=6).topics[0].partitions == 6
        elsewhere = TopicObject(namespace="bank", name="loans", uid="u")
        assert world.declare("loans", partitions=10, object=elsewhere).topics[0].partitions == 10

    def test_clients_topic_is_not_taken_over(self, world: Any) -> None:
        world.ask(CreateTopics(topics=(NewTopic(name="mine"),)))
        answer = world.declare("mine")
        assert answer.reason == "TopicNameTaken"
        assert "a client created it" in answer.message

    def test_client_topic_is_adopted_by_object_with_id(self, world: Any) -> None:
        world.ask(CreateTopics(topics=(NewTopic(name="mine"),)))
        made = topic(world, "mine")
        assert world.declare("mine", adopt=topic(world).id).reason == "TopicNameTaken"
        same = {"partitions": made.partitions, "replication_factor": made.replication_factor}
        world.declare("mine", adopt=made.id, min_isr=made.min_isr, object=REAPPLIED, **same)
        assert topic(world, "mine").object == REAPPLIED
        assert topic(world, "mine").id == made.id
        assert "adopted by its object" in [record.cause for record in world.log]

    def test_declared_topic_is_not_adopted_by_another_object(self, world: Any) -> None:
        answer = world.declare(object=STRANGER, adopt=topic(world).id)
        assert answer.reason == "TopicNameTaken"
        assert topic(world).object == ORDERS


class TestDeletion:
    def test_data_stays_until_the_grace_has_passed(self, world: Any) -> None:
        assert gone(world) == Done()
        assert topic(world).pending_deletion.until_ms == DAY_MS
        gone(world, now_ms=DAY_MS - 1)
        assert "orders" in world.image.topic_ids
        gone(world, now_ms=DAY_MS)
        assert "orders" not in world.image.topic_ids
        assert gone(world, now_ms=DAY_MS + 1) == Done()

    def test_topic_without_grace_period_is_removed_at_once(self, world: Any) -> None:
        gone(world, grace_ms=0)
        assert "orders" not in world.image.topic_ids

    def test_reapplying_revives_the_same_topic(self, world: Any) -> None:
        """Only the same (namespace, name, topicName) revives."""
        before = world.image.topic_ids["orders"]
        gone(world)
        world.declare(object=REAPPLIED)
        assert world.image.topic_ids["orders"] == before
        assert topic(world).pending_deletion is None
        assert topic(world).object == REAPPLIED
        assert gone(world, ORDERS, DAY_MS) == Done(), "late news about the old object"
        assert topic(world).pending_deletion is None

    def test_name_of_topic_pending_deletion_is_rejected(self, world: Any) -> None:
        """R12: B must not read A's data."""
        gone(world)
        answer = world.declare(object=STRANGER)
        assert answer.reason == "TopicNameTaken"
        assert "was deleted" in answer.message

    def test_stranger_that_names_the_id_adopts_pending_topic(self, world: Any) -> None:
        before = topic(world).id
        gone(world)
        world.declare(object=STRANGER, adopt=before)
        assert topic(world).object == STRANGER
        assert topic(world).pending_deletion is None
        assert topic(world).id == before

    def test_renamed_object_takes_over_pending_topic_at_once(self, world: Any) -> None:
        """A chart that renames its objects: the old one goes, the new one comes."""
        before = topic(world).id
        assert "takes the topic over" in world.declare(object=RENAMED).message
        gone(world)
        world.declare(object=RENAMED)
        assert topic(world).id == before
        assert topic(world).object == RENAMED
        assert topic(world).pending_deletion is None
        assert gone(world, ORDERS, DAY_MS) == Done()
        assert "orders" in world.image.topic_ids
        assert world.declare().reason == "TopicNameTaken", "who had it before is a stranger now"

    @pytest.mark.parametrize("fields", [{}, {"grace_ms": 0}, {"acknowledged": True}])
    def test_heir_keeps_topic_whatever_grace_there_is(self, world: Any, fields: Any) -> None:
        before = topic(world).id
        gone(world, heir=RENAMED, claimed=True, **fields)
        assert topic(world).id == before
        assert topic(world).object == RENAMED
        assert topic(world).pending_deletion is None

    def test_heir_takes_over_retained_and_pending_topics(self, world: Any) -> None:
        world.declare(deletion_policy="Retain")
        gone(world, heir=RENAMED, claimed=True)
        assert topic(world).object == RENAMED
        world.declare(object=RENAMED)
        gone(world, RENAMED)
        gone(world, RENAMED, now_ms=DAY_MS, heir=ORDERS, claimed=True)
        assert topic(world).object == ORDERS

    @pytest.mark.parametrize("grace_ms", [0, DAY_MS])
    def test_topic_that_stranger_declares_is_never_removed(self, world: Any, grace_ms: int) -> None:
        before = topic(world).id
        gone(world, grace_ms=grace_ms, claimed=True)
        gone(world, grace_ms=grace_ms, now_ms=2 * DAY_MS, claimed=True)
        assert topic(world).id == before
        gone(world, grace_ms=grace_ms, now_ms=2 * DAY_MS)
        assert "orders" not in world.image.topic_ids

    def test_clock_of_the_grace_survives_a_take_over(self, world: Any) -> None:
        gone(world)
        world.take_over()
        gone(world, now_ms=DAY_MS)
        assert "orders" not in world.image.topic_ids

    def test_retained_topic_outlives_object_and_is_taken_back(self, world: Any) -> None:
        world.declare(deletion_policy="Retain")
        before = world.image.topic_ids["orders"]
        gone(world, now_ms=5)
        assert topic(world).object is None
        assert world.declare(object=STRANGER).reason == "TopicNameTaken"
        world.declare(object=REAPPLIED, deletion_policy="Retain")
        assert world.image.topic_ids["orders"] == before
        assert topic(world).object == REAPPLIED

    def test_namespace_off_the_list_detaches_never_deletes(self, world: Any) -> None:
        world.ask(DetachTopic(object=ORDERS))
        assert topic(world).object is None
        assert gone(world, now_ms=DAY_MS) == Done()
        assert "orders" in world.image.topic_ids

    def test_foreign_or_repeated_detach_changes_nothing(self, world: Any) -> None:
        """Asked again after a lost answer, or by an object that never had it: no record."""
        world.ask(DetachTopic(object=STRANGER))
        assert topic(world).object == ORDERS
        world.ask(DetachTopic(object=ORDERS))
        end = len(world.log)
        assert world.ask(DetachTopic(object=ORDERS)) == Done()
        assert len(world.log) == end


class TestMassDeletion:
    def declared(self, new_world: Any, count: int) -> Any:
        world = new_world(3)
        for n in range(count):
            world.declare(f"t{n}")
        return world

    def holder(self, n: int) -> TopicObject:
        return TopicObject(namespace="shop", name=f"t{n}", uid=f"uid-of-t{n}")

    def test_topics_that_vanish_together_lose_no_data(self, new_world: Any) -> None:
        world = self.declared(new_world, 4)
        for n in range(4):
            gone(world, self.holder(n), now_ms=n, removals_per_hour_max=3)
        for n in range(4):
            answer = gone(world, self.holder(n), now_ms=DAY_MS + n, removals_per_hour_max=3)
            assert answer.reason == "MassDeletion"
            assert "4 Topic objects disappeared" in answer.message
        assert len(world.image.topic_ids) == 4

    @pytest.mark.parametrize("grace_ms", [0, DAY_MS])
    def test_absence_since_restore_removes_no_data(self, new_world: Any, grace_ms: int) -> None:
        """The metadata came back from the brokers' copies, newer than the API server's storage."""
        world = self.declared(new_world, 1)
        row = HistoryRestored(at_ms=0, end_offset=MetadataOffset(0))
        world.image = replace(world.image, restored=row)
        fields = {"grace_ms": grace_ms, "removals_per_hour_max": 20}
        for now_ms in (1_000, 2_000 + grace_ms):
            answer = gone(world, self.holder(0), now_ms=now_ms, **fields)
        assert answer.reason == "MassDeletion"
        assert "The metadata log was restored" in answer.message
        gone(world, self.holder(0), now_ms=2_000 + grace_ms, acknowledged=True, **fields)
        assert not world.image.topic_ids

    def test_object_deleted_long_after_restore_goes(self, new_world: Any) -> None:
        world = self.declared(new_world, 1)
        row = HistoryRestored(at_ms=0, end_offset=MetadataOffset(0))
        world.image = replace(world.image, restored=row)
        fields = {"grace_ms": 0, "removals_per_hour_max": 20}
        assert gone(world, self.holder(0), now_ms=RESTORE_SHOWN_MS, **fields) == Done()
        assert not world.image.topic_ids

    def test_acknowledged_ones_are_removed(self, new_world: Any) -> None:
        world = self.declared(new_world, 4)
        fields = {"removals_per_hour_max": 1, "grace_ms": 0, "acknowledged": True}
        for n in range(4):
            gone(world, self.holder(n), **fields)
        assert not world.image.topic_ids

    def test_deletions_without_grace_period_are_limited_per_hour(self, new_world: Any) -> None:
        world = self.declared(new_world, 4)
        answers = [
            gone(world, self.holder(n), now_ms=n, grace_ms=0, removals_per_hour_max=2)
            for n in range(4)
        ]
        assert [isinstance(answer, Refused) for answer in answers] == [False, False, True, True]
        world.take_over()
        late = {"grace_ms": 0, "removals_per_hour_max": 2}
        assert isinstance(gone(world, self.holder(2), now_ms=HOUR_MS - 1, **late), Refused)
        assert gone(world, self.holder(2), now_ms=HOUR_MS, **late) == Done()

    def test_few_go_as_asked(self, new_world: Any) -> None:
        world = self.declared(new_world, 2)
        for now_ms in (0, DAY_MS):
            for n in range(2):
                assert gone(world, self.holder(n), now_ms=now_ms) == Done()
        assert not world.image.topic_ids

"""What clients may create and delete, and how a new topic comes into being."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid5

import pytest

from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.cluster.records import TopicRemoved
from plimsoll_core.controller.decide import Settings
from plimsoll_core.messages.brokers import BrokerFigures
from plimsoll_core.messages.requests import CreateTopics, DeleteTopics, NewTopic, TopicAnswer


def create(world: Any, name: str = "t", *, validate_only: bool = False, **wish: Any) -> TopicAnswer:
    request = CreateTopics(topics=(NewTopic(name=name, **wish),), validate_only=validate_only)
    return world.ask(request).topics[0]


def led_first(world: Any) -> Counter[int]:
    """How many partitions prefer each broker for their leader."""
    return Counter(p.replicas[0] for p in world.image.partitions.values())


class TestCreate:
    def test_new_topic_starts_active_and_led_by_first(self, world: Any) -> None:
        """LE=0, PE=0, isr = active members, leader = isr[0]."""
        world.beat(2, want_fence=True)
        world.now_ms += world.settings.session_timeout_ms
        answer = create(world, partitions=3, replication_factor=3)
        assert (answer.code, answer.partitions, answer.replication_factor) == (0, 3, 3)
        for index in range(3):
            p = world.p(index, "t")
            assert (p.leader, p.leader_epoch, p.partition_epoch) == (p.replicas[0], 0, 0)
            assert p.leader != 2
            assert p.isr == tuple(r for r in p.replicas if r != 2)

    def test_topic_id_is_not_predictable_from_its_name(self, world: Any) -> None:
        """An id that one may not describe is refused otherwise than one that does not exist."""
        world.soft.topic_id_key = b"of this process"
        begins = world.image.next_offset
        create(world, "secret")
        (made,) = [one for one in world.image.topics.values() if one.name == "secret"]
        assert made.id != uuid5(world.image.cluster_id, f"{begins}/secret")
        assert made.id.version == 5

    def test_topics_with_uneven_leaders_are_led_evenly_together(self, world: Any) -> None:
        """Fifty topics of four partitions on three brokers, and what deletions leave is filled."""
        for number in range(50):
            create(world, f"t{number}", partitions=4, replication_factor=3)
        assert led_first(world) == {0: 67, 1: 67, 2: 67}  # `orders` is the 201st partition
        led_by_0 = [f"t{n}" for n in range(50) if world.p(3, f"t{n}").replicas[0] == 0]
        world.ask(DeleteTopics(names=tuple(led_by_0[:5]), ids=()))
        uneven = led_first(world)
        assert max(uneven.values()) - min(uneven.values()) >= 4
        for number in range(10):
            create(world, f"new{number}", partitions=1, replication_factor=3)
        filled = led_first(world)
        assert max(filled.values()) - min(filled.values()) <= 1

    def test_create_topics_without_active_brokers_is_refused(self, world: Any) -> None:
        """A partition that begins without a leader would never get one."""
        for broker in (0, 1, 2):
            world.beat(broker, want_fence=True)
        end = len(world.log)
        answer = create(world, replication_factor=1)
        assert (answer.reason, answer.code) == ("NotEnoughBrokers", 38)
        assert "only 0 can hold replicas now" in answer.message
        assert len(world.log) == end

    @pytest.mark.parametrize("away", [(), (1, 2)])
    def test_strategy_that_is_none(self, world: Any, away: tuple[int, ...]) -> None:
        """Also where it would be placed on brokers that are fenced now."""
        for broker in away:
            world.beat(broker, want_fence=True)
        world.now_ms += world.settings.session_timeout_ms
        refusal = world.declare("other", strategy="Nearest")
        assert refusal.reason == "PlacementInvalid"
        assert "no placement strategy Nearest" in refusal.message

    def test_open_values_are_the_clusters_defaults(self, world: Any) -> None:
        answer = create(world)
        assert (answer.partitions, answer.replication_factor) == (6, 3)
        assert world.p(name="t").min_isr == 2

    def test_min_insync_replicas_becomes_the_partitions_own(self, world: Any) -> None:
        configs = {"min.insync.replicas": "3", "retention.ms": "1000"}
        answer = create(world, configs=configs)
        assert world.p(name="t").min_isr == 3
        assert answer.min_isr == 3
        assert dict(world.image.topics[answer.topic_id].configs) == configs, "it is the topic's own"

    def test_validated_topic_reports_its_future_min_insync_replicas(self, world: Any) -> None:
        assert create(world, validate_only=True).min_isr == create(world).min_isr == 2

    def test_numbers_are_kept_without_blanks_and_plus_signs(self, world: Any) -> None:
        answer = create(world, configs={"retention.ms": " 5000 ", "flush.ms": "+7"})
        kept = {"flush.ms": "7", "retention.ms": "5000"}
        assert dict(world.image.topics[answer.topic_id].configs) == kept

    def test_validate_only_answers_the_same_and_writes_nothing(self, world: Any) -> None:
        end = len(world.log)
        checked = create(world, partitions=2, validate_only=True)
        assert (checked.code, checked.partitions) == (0, 2)
        assert len(world.log) == end
        assert create(world, partitions=2) == checked

    def test_manual_assignment_is_taken_as_it_stands(self, world: Any) -> None:
        assert create(world, assignment=((2, 0), (1, 2))).code == 0
        assert [world.p(n, "t").replicas for n in range(2)] == [(2, 0), (1, 2)]

    def test_recreated_topic_gets_another_id(self, world: Any) -> None:
        """Never reused: a topic deleted and made again has another id."""
        first = create(world).topic_id
        world.ask(DeleteTopics(names=("t",)))
        assert create(world).topic_id != first

    def test_topic_id_is_reproducible_from_the_same_log(
        self, new_world: Callable[..., Any]
    ) -> None:
        ids = {create(new_world(3)).topic_id for _ in range(2)}
        assert len(ids) == 1

    def test_create_topics_rejects_one_and_accepts_another(self, world: Any) -> None:
        request = CreateTopics(topics=(NewTopic(name="bad name"), NewTopic(name="good")))
        answers = world.ask(request).topics
        assert [answer.code for answer in answers] == [17, 0]

    @pytest.mark.parametrize(
        ("wish", "code", "reason", "words"),
        [
            ({"partitions": 0}, 37, "InvalidPartitions", "not 0"),
            ({"partitions": 10**9}, 37, "InvalidPartitions", "1 to 10000"),
            ({"replication_factor": 0}, 38, "InvalidReplicationFactor", "at least 1"),
            ({"replication_factor": 4}, 38, "NotEnoughBrokers", "Add brokers"),
            ({"assignment": ((0, 1),), "partitions": 1}, 42, "InvalidRequest", "not both"),
            ({"assignment": ()}, 39, "InvalidReplicaAssignment", "no partition"),
            ({"assignment": ((0, 0),)}, 39, "InvalidReplicaAssignment", "twice"),
            ({"assignment": ((0, 9),)}, 39, "InvalidReplicaAssignment", "not registered: 9"),
            ({"configs": {"no.such": "1"}}, 40, "InvalidConfig", "no topic config no.such"),
            ({"configs": {"retention.ms": "soon"}}, 40, "InvalidConfig", "whole number"),
            ({"configs": {"min.insync.replicas": "0"}}, 40, "InvalidConfig", "from 1"),
            ({"name": "orders"}, 36, "TopicAlreadyExists", "Topic 'orders' already exists"),
            ({"name": "orders", "configs": {"no.such": "1"}}, 36, "TopicAlreadyExists", "exists"),
            ({"name": "__cluster_metadata"}, 42, "InvalidRequest", "internal topic"),
            ({"name": ""}, 17, "InvalidTopicName", "the empty string is not allowed"),
            ({"name": ".."}, 17, "InvalidTopicName", "'..' is not allowed"),
            ({"name": "a" * 250}, 17, "InvalidTopicName", "249"),
            ({"name": "grün"}, 17, "InvalidTopicName", "ASCII"),
            ({"name": "a\n"}, 17, "InvalidTopicName", "ASCII alphanumerics"),
        ],
    )
    def test_refusal_says_what_to_do(
        self, world: Any, wish: dict[str, Any], code: int, reason: str, words: str
    ) -> None:
        end = len(world.log)
        answer = create(world, **wish)
        assert (answer.code, answer.reason) == (code, reason)
        assert words in answer.message
        assert len(world.log) == end

    def test_names_differing_in_dots_and_underscores_collide(self, world: Any) -> None:
        assert create(world, "a.b_c").code == 0
        answer = create(world, "a_b.c")
        assert answer.code == 17
        assert "a.b_c" in answer.message
        assert create(world, "a-b-c").code == 0

    def test_cluster_that_denies_client_topics_says_so(self, new_world: Any) -> None:
        world = new_world(3, client_created_topics=False)
        answer = create(world)
        assert (answer.code, answer.reason) == (44, "PolicyViolation")

    def test_topic_is_not_created_without_an_active_broker(self, new_world: Any) -> None:
        """no unfenced broker ⇒ INVALID_REPLICATION_FACTOR."""
        world = new_world(0)
        world.register(0)
        assert create(world, replication_factor=1).code == 38


class TestPlacementPool:
    def test_starting_broker_keeps_its_place_in_the_formula(self, new_world: Any) -> None:
        """A cluster that is just coming up gets the placement that it would get a second later."""
        world = new_world(2)
        world.register(2)
        world.declare(partitions=3, strategy="Blocked")
        assert [world.p(n).replicas[0] for n in range(3)] == [0, 1, 2]
        assert world.p(2).leader == 0
        assert world.p(2).isr == (0, 1)

    def test_dead_broker_gets_nothing_while_others_suffice(self, world: Any) -> None:
        world.beat(2, want_fence=True)
        world.now_ms += world.settings.session_timeout_ms
        create(world, partitions=4, replication_factor=2)
        assert all(2 not in world.p(n, "t").replicas for n in range(4))

    def test_partitions_all_get_an_active_replica(self, new_world: Any) -> None:
        """Otherwise it would begin without a leader and never get one."""
        world = new_world(1)
        for broker in (1, 2, 3):
            world.register(broker)
        create(world, partitions=8, replication_factor=2)
        assert all(world.p(n, "t").leader == 0 for n in range(8))

    def test_broker_that_is_shutting_down_gets_nothing(self, world: Any) -> None:
        world.beat(0, want_shutdown=True)
        assert create(world, replication_factor=3).code == 38

    def test_denied_topic_is_compared_with_no_name(self, new_world: Any) -> None:
        world = new_world(3)
        create(world, "a.b")
        world.settings = Settings(client_created_topics=False)
        assert create(world, "a_b").code == 44
        assert create(world, "a.b").code == 36, "clients that create it if missing wait for this"

    def test_name_is_free_again_after_deletion(self, world: Any) -> None:
        create(world, "a.b")
        world.ask(DeleteTopics(names=("a.b",)))
        assert create(world, "a_b").code == 0
        assert "a_b" in create(world, "a.b").message
        restarted = decode_image(encode_image(world.image))
        assert restarted.spellings == world.image.spellings

    @pytest.mark.parametrize("validate_only", [False, True])
    def test_many_topics_take_turns_with_others(self, world: Any, validate_only: bool) -> None:
        """20,000 names in one decision held the loop of all clusters' controllers for seconds."""
        world.settings = Settings(slice_partitions_max=25)
        wishes = tuple(NewTopic(name=f"n{n}", partitions=1) for n in range(7))
        answers, slices = in_slices(
            world, CreateTopics(topics=(*wishes, wishes[0]), validate_only=validate_only)
        )
        assert [answer.name for answer in answers] == [one.name for one in (*wishes, wishes[0])]
        assert slices == 3
        assert ("n6" in world.image.topic_ids) != validate_only

    def test_refused_partitions_fill_turn_too(self, new_world: Any) -> None:
        world = new_world(3, slice_partitions_max=25)
        world.beat(0, figures=BrokerFigures(partitions_max=20))
        wishes = tuple(NewTopic(name=f"n{n}", partitions=30) for n in range(3))
        answers, slices = in_slices(world, CreateTopics(topics=wishes))
        assert [answer.code for answer in answers] == [44] * 3
        assert slices == 3


def in_slices(world: Any, request: Any) -> tuple[tuple[TopicAnswer, ...], int]:
    """The answers to a request, and the number of decisions that it took."""
    for slices in range(1, 100):
        decision = world.decide(request)
        for record in decision.records:
            world.commit(record)
        if decision.again is None:
            return decision.answer.topics, slices
        request = decision.again
    raise AssertionError("it never ended")


class TestDelete:
    def test_many_deletions_take_turns_with_others(self, world: Any) -> None:
        ids = [create(world, f"n{n}", partitions=5).topic_id for n in range(6)]
        world.settings = Settings(slice_partitions_max=25)
        answers, slices = in_slices(
            world, DeleteTopics(names=("n0", "n1", "n2"), ids=(*ids[3:], ids[0]))
        )
        assert [answer.topic_id for answer in answers] == [*ids, ids[0]]
        assert [answer.code for answer in answers] == [0] * 6 + [100]
        assert slices == 4
        assert not [name for name in world.image.topic_ids if name.startswith("n")]

    def test_topics_are_deleted_by_name_and_by_id(self, world: Any) -> None:
        first, second = create(world, "a"), create(world, "b")
        answers = world.ask(DeleteTopics(names=("a",), ids=(second.topic_id,))).topics
        assert [(x.name, x.topic_id, x.code) for x in answers] == [
            ("a", first.topic_id, 0),
            ("b", second.topic_id, 0),
        ]
        assert all(isinstance(record, TopicRemoved) for record in world.log[-2:])
        assert PartitionKey(first.topic_id, 0) not in world.image.partitions

    def test_unknown_ones_are_told_apart(self, world: Any) -> None:
        answers = world.ask(DeleteTopics(names=("no", ""), ids=(UUID(int=5),))).topics
        assert [answer.code for answer in answers] == [3, 3, 100]

    def test_topic_with_an_object_is_refused_naming_it(self, world: Any) -> None:
        (answer,) = world.ask(DeleteTopics(names=("orders",))).topics
        assert (answer.code, answer.reason) == (44, "PolicyViolation")
        assert "Topic shop/orders" in answer.message
        assert "orders" in world.image.topic_ids

    def test_clients_deletions_are_no_mass_deletion(self, world: Any) -> None:
        create(world)
        world.ask(DeleteTopics(names=("t",)))
        assert world.image.removals_ms == ()

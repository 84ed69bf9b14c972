"""Each predicate notices the image it is there for: a watchdog that never barks proves nothing.

The images are made by hand, since no decision of the controller leads to them.
"""

from typing import Any
from uuid import UUID

import pytest
from immutables import Map
from msgspec.structs import replace

from plimsoll_core.cluster.invariants import (
    EVERY_DECISION,
    EVERY_RECORD,
    always_led,
    elr_rule,
    epochs_monotone,
    full_after,
    indexes,
    isr_active,
    leader_shape,
    membership,
    reassign,
    reassigned_in_sync,
    rebalances,
    recovery_quorum,
    set_shape,
    violations,
)
from plimsoll_core.cluster.model import (
    ClusterImage,
    Partition,
    PartitionKey,
    Rebalance,
    RebalanceMove,
    RebalanceObject,
    RebalanceRest,
)


def with_p(image: ClusterImage, **fields: Any) -> ClusterImage:
    """The image with its one partition changed, whatever the rules say."""
    ((key, p),) = image.partitions.items()
    return replace(image, partitions=image.partitions.set(key, replace(p, **fields)))


def with_broker(image: ClusterImage, broker: int, **fields: Any) -> ClusterImage:
    changed = replace(image.brokers[broker], **fields)
    return replace(image, brokers=image.brokers.set(broker, changed))


def test_invariants_hold_for_what_the_controller_decides(world: Any) -> None:
    assert violations(world.image, EVERY_DECISION) == []
    assert list(epochs_monotone(world.image, world.image)) == []
    assert list(reassigned_in_sync(world.image, world.image)) == []


@pytest.mark.parametrize(
    ("predicate", "fields", "words"),
    [
        (set_shape, {"replicas": (0, 1, 1)}, "repeats a broker in replicas"),
        (set_shape, {"isr": (0, 0)}, "repeats a broker in isr"),
        (set_shape, {"isr": (0,), "elr": (1,), "last_known_elr": (1,)}, "repeats a broker"),
        (set_shape, {"isr": (0, 7)}, "outside replicas"),
        (set_shape, {"adding": (2,), "removing": (2,)}, "repeats a broker in moves"),
        (set_shape, {"adding": (7,)}, "outside replicas"),
        (elr_rule, {"isr": (0, 1), "elr": (2,)}, "elr (2,)"),
        (elr_rule, {"isr": (0, 1), "last_known_elr": (2,)}, "lkelr (2,)"),
        (leader_shape, {"leader": 2, "isr": (0, 1)}, "led by 2 outside isr"),
        (leader_shape, {"leader": 0, "isr": ()}, "led by 0 outside isr ()"),
        (isr_active, {"isr": (0, 7)}, "broker 7 in its isr"),
        (always_led, {"leader": None}, "no leader though 0 may lead"),
        (always_led, {"leader": None, "isr": (), "elr": (1,)}, "no leader though 1 may lead"),
        (reassign, {"adding": (2,)}, "still moves though [0, 1, 2] is in isr"),
        (reassign, {"removing": (2,), "isr": (0, 1)}, "still moves though [0, 1]"),
    ],
)
def test_partition_that_breaks_a_rule_is_named(
    world: Any, predicate: Any, fields: dict[str, Any], words: str
) -> None:
    """I11 to I14, I26 and "whoever may lead does", one broken field each."""
    image = with_p(world.image, **fields)
    told = list(predicate(image))
    assert any(words in sentence for sentence in told), told
    assert all(f"{world.p().topic_id}-0" in sentence for sentence in told)


def test_always_led_accepts_leaderless_partition_with_fenced_elr(world: Any) -> None:
    """ "Whoever may lead does": a fenced member of the ELR may not."""
    image = with_broker(world.image, 1, fenced=True)
    image = with_p(image, leader=None, isr=(), elr=(1,))
    assert list(always_led(image)) == []


@pytest.mark.parametrize("state", ["fenced", "shutting_down"])
def test_isr_active_notices_a_member_that_left(world: Any, state: str) -> None:
    """I14: "isr members registered, not fenced, not shutting_down"."""
    (told,) = isr_active(with_broker(world.image, 2, **{state: True}))
    assert "broker 2" in told


class TestIndexes:
    """What is derived equals what it is derived from."""

    def test_partition_under_anothers_key(self, world: Any) -> None:
        p: Partition = world.p()
        other = PartitionKey(p.topic_id, 5)
        image = replace(world.image, partitions=Map({other: p}))
        assert any("is filed under" in sentence for sentence in indexes(image))

    def test_replica_unknown_to_its_broker_is_reported(self, world: Any) -> None:
        image = replace(world.image, hosted=world.image.hosted.delete(1))
        assert list(indexes(image)) == ["Indexes: hosted differs from the partitions' replicas"]

    def test_min_isr_that_its_topic_does_not_state(self, world: Any) -> None:
        image = with_p(world.image, min_isr=3)
        (told,) = indexes(image)
        assert told == "Indexes: min_isr_behind differs from the partitions' min ISRs"

    def test_name_that_leads_to_another_topic(self, world: Any) -> None:
        image = replace(world.image, topic_ids=Map({"orders": UUID(int=9)}))
        assert list(indexes(image)) == ["Indexes: topic_ids differs from the topics"]

    def test_name_that_is_spelled_otherwise(self, world: Any) -> None:
        image = replace(world.image, spellings=Map({"a_b": ("a.b",)}))
        assert list(indexes(image)) == ["Indexes: spellings differs from the topics' names"]

    def test_gap_in_the_numbers(self, world: Any) -> None:
        topic = world.image.topics[world.p().topic_id]
        topics = world.image.topics.set(topic.id, replace(topic, partitions=2))
        (told,) = indexes(replace(world.image, topics=topics))
        assert "numbered 0" in told


class TestRebalances:
    """One plan runs at a time; what is left of it is whole, and gone when it has ended."""

    @pytest.fixture
    def running(self, world: Any) -> ClusterImage:
        """A plan of one move, which is on the way."""
        p = world.p()
        move = RebalanceMove(
            number=0, topic_id=p.topic_id, index=0, before=p.replicas, after=(2, 1, 0)
        )
        rest = RebalanceRest(moves=Map({0: move}), active=Map({p.key: 0}))
        rows = Map({"u1": self.row("u1")})
        image = replace(world.image, rebalances=rows, rebalance_rests=Map({"u1": rest}))
        assert list(rebalances(image)) == []
        return image

    @staticmethod
    def row(uid: str, **fields: Any) -> Rebalance:
        values = {
            "object": RebalanceObject(namespace="kafka", name=uid, uid=uid),
            "mode": "Full",
            "phase": "Running",
            "total": 1,
        }
        return Rebalance(**{**values, **fields})

    def test_concurrent_rebalances_are_reported(self, running: ClusterImage) -> None:
        image = replace(
            running,
            rebalances=running.rebalances.set("u2", self.row("u2", total=0)),
            rebalance_rests=running.rebalance_rests.set("u2", RebalanceRest()),
        )
        assert list(rebalances(image)) == ["OneRebalance: ['u1', 'u2'] run at the same time"]

    def test_running_rebalance_without_remaining_moves_row_is_reported(
        self, running: ClusterImage
    ) -> None:
        (told,) = rebalances(replace(running, rebalance_rests=Map()))
        assert "with what is left being None" in told

    def test_ended_rebalance_with_remaining_moves_row_is_reported(
        self, running: ClusterImage
    ) -> None:
        rows = running.rebalances.set("u1", self.row("u1", phase="Completed"))
        (told,) = rebalances(replace(running, rebalances=rows))
        assert "with what is left being RebalanceRest" in told

    def test_active_row_of_another_partition(self, running: ClusterImage) -> None:
        rest = running.rebalance_rests["u1"]
        other = PartitionKey(rest.moves[0].topic_id, 5)
        for active in (Map({other: 0}), Map({other: 3})):
            rests = Map({"u1": replace(rest, active=active)})
            (told,) = rebalances(replace(running, rebalance_rests=rests))
            assert "which is of another partition" in told

    def test_row_that_was_lost(self, running: ClusterImage) -> None:
        rows = Map({"u1": self.row("u1", total=3, moved=1)})
        (told,) = rebalances(replace(running, rebalances=rows))
        assert "2 partitions of 3" in told


class TestMembership:
    """I26: "brokers with replicas are registered members"; only who is known can leave or join."""

    def test_replica_on_a_broker_that_is_not_registered(self, world: Any) -> None:
        image = replace(world.image, brokers=world.image.brokers.delete(1))
        (told,) = membership(image)
        assert told == "Membership: broker 1 holds replicas but is not registered"

    def test_replica_on_a_broker_that_is_no_member(self, world: Any) -> None:
        (told,) = membership(replace(world.image, members=(0, 1)))
        assert told == "Membership: broker 2 holds replicas but is no member"

    def test_stranger_that_leaves(self, world: Any) -> None:
        assert list(membership(replace(world.image, leaving=(2,)))) == []
        (told,) = membership(replace(world.image, leaving=(2, 8)))
        assert told == "Membership: [8] are leaving but unknown"

    def test_newcomer_that_is_no_member(self, world: Any) -> None:
        (told,) = membership(replace(world.image, newcomers=(8,)))
        assert told == "Membership: (8,) joined but are no members"

    def test_volume_given_back_while_its_broker_is_there(self, world: Any) -> None:
        assert list(membership(replace(world.image, released=Map({"pvc-8": 8})))) == []
        (told,) = membership(replace(world.image, released=Map({"pvc-1": 1})))
        assert told == "Membership: the volume pvc-1 of broker 1 is released"


class TestEpochs:
    """I10: "PE +1 exactly per changed record, LE non-decreasing, BE unique and increasing"."""

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"partition_epoch": 0, "isr": (0, 1)}, "jumped from PE"),
            ({"partition_epoch": 2}, "jumped from PE"),
            ({"partition_epoch": 1, "leader_epoch": 2}, "went to LE 2"),
            ({"partition_epoch": 1, "leader_epoch": -1}, "went to LE -1"),
            ({"partition_epoch": 1, "leader": 1}, "two leaders at LE 0"),
        ],
    )
    def test_partition_epochs_that_go_back_are_reported(
        self, world: Any, fields: dict[str, Any], words: str
    ) -> None:
        assert (world.p().partition_epoch, world.p().leader_epoch) == (0, 0)
        told = list(epochs_monotone(world.image, with_p(world.image, **fields)))
        assert any(words in sentence for sentence in told), told

    def test_broker_epoch_that_goes_back_is_reported(self, world: Any) -> None:
        (told,) = epochs_monotone(world.image, with_broker(world.image, 0, broker_epoch=-5))
        assert told == "EpochsMonotone: broker 0 went back to -5"

    def test_broker_epoch_shared_by_two_brokers_is_reported(self, world: Any) -> None:
        taken = world.image.brokers[2].broker_epoch
        (told,) = epochs_monotone(world.image, with_broker(world.image, 0, broker_epoch=taken))
        assert told == "EpochsMonotone: two brokers share an epoch"


class TestMoves:
    """I26: "a partition never loses its last ISR member to a reassignment"."""

    def test_last_in_sync_replica_dropped_by_a_move(self, world: Any) -> None:
        after = with_p(world.image, replicas=(1, 2), isr=())
        told = list(reassigned_in_sync(world.image, after))
        assert "lost its last in-sync replica" in told[0]

    def test_below_min_isr_by_a_move(self, world: Any) -> None:
        after = with_p(world.image, replicas=(0, 1), isr=(0,))
        (told,) = reassigned_in_sync(world.image, after)
        assert "fell below min ISR by a move: (0, 1, 2) to (0,)" in told

    def test_move_ended_before_added_replica_synced_is_reported(self, world: Any) -> None:
        after = with_p(world.image, replicas=(0, 1, 5), isr=(0, 1))
        (told,) = reassigned_in_sync(world.image, after)
        assert told.endswith("ended a move without [5]")

    def test_move_that_ends_with_enough_in_sync(self, world: Any) -> None:
        assert list(reassigned_in_sync(world.image, with_p(world.image, replicas=(0, 1)))) == []

    def test_shrink_without_a_move_is_ignored(self, world: Any) -> None:
        assert list(reassigned_in_sync(world.image, with_p(world.image, isr=()))) == []


class TestRecoveryQuorum:
    """I15: what was acknowledged is on at least min ISR replicas that are still known."""

    def test_set_that_lost_track(self, world: Any) -> None:
        full = full_after(frozenset(), world.empty, world.image)
        assert full == {world.p().key}
        assert full_after(full, world.image, world.image) == full
        image = with_p(world.image, leader=None, isr=(), last_known_elr=(1,))
        (told,) = recovery_quorum(image, full)
        assert "has lost track" in told
        kept = with_p(world.image, leader=None, isr=(), last_known_elr=(1, 2))
        assert list(recovery_quorum(kept, full)) == []

    def test_recovery_quorum_ends_when_min_isr_exceeds_isr(self, world: Any) -> None:
        full = frozenset({world.p().key})
        raised = with_p(world.image, isr=(0, 1), min_isr=3)
        assert full_after(full, world.image, raised) == frozenset()
        shrunk = with_p(world.image, isr=(0,))
        assert full_after(full, world.image, shrunk) == full, "a shrink alone clears nothing"


def test_violations_of_several_predicates_are_all_reported(world: Any) -> None:
    image = with_p(world.image, leader=2, isr=(0, 1), elr=(2,))
    told = violations(image, EVERY_RECORD)
    assert [sentence.partition(":")[0] for sentence in told] == ["ELRRule", "LeaderShape"]

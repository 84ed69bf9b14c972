"""What a cluster's policy for racks refuses, and what it places."""

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.messages.requests import CreateTopics, NewTopic, Refused, Registered

RACKS = ("a", "a", "b", "b")


@pytest.fixture
def racked(new_world: Callable[..., Any]) -> Callable[..., Any]:
    """Brokers 0, 1 in rack a and 2, 3 in rack b, under a policy."""

    def make(policy: str, racks: tuple[str | None, ...] = RACKS) -> Any:
        world = new_world(0, rack_policy=policy)
        for broker, rack in enumerate(racks):
            world.start(broker, rack=rack)
        return world

    return make


def fence(world: Any, *brokers: int) -> None:
    for broker in brokers:
        world.beat(broker, want_fence=True)
    world.now_ms += world.settings.session_timeout_ms


def spread(world: Any) -> list[set[str | None]]:
    brokers = world.image.brokers
    return [{brokers[b].rack for b in p.replicas} for p in world.image.partitions.values()]


class TestRequired:
    def test_broker_without_a_rack_does_not_register(self, racked: Callable[..., Any]) -> None:
        world = racked("Required")
        refusal = world.register(4)
        assert isinstance(refusal, Refused)
        assert refusal.reason == "InvalidRegistration"
        assert "Broker 4 cannot register, because it has no rack" in refusal.message
        assert isinstance(world.register(4, rack="c"), Registered)

    def test_partitions_are_all_in_two_racks(self, racked: Callable[..., Any]) -> None:
        world = racked("Required")
        world.declare(partitions=12, replication_factor=2, min_isr=1)
        assert spread(world) == [{"a", "b"}] * 12

    def test_partition_reaches_into_a_rack_that_is_down(self, racked: Callable[..., Any]) -> None:
        """Two brokers of one rack could hold it, but not as required."""
        world = racked("Required")
        fence(world, 2, 3)
        world.declare(partitions=4, replication_factor=2, min_isr=1)
        assert spread(world) == [{"a", "b"}] * 4
        assert all(p.leader in (0, 1) for p in world.image.partitions.values())

    def test_explicit_assignment_in_one_rack_is_refused(self, racked: Callable[..., Any]) -> None:
        world = racked("Required")
        row = {"strategy": "Explicit", "replication_factor": 2, "min_isr": 1}
        refusal = world.declare(assignment=((0, 1),), **row)
        assert refusal.reason == "PlacementInvalid"
        assert "two racks" in refusal.message
        wish = NewTopic(name="t", assignment=((2, 3),))
        (answer,) = world.ask(CreateTopics(topics=(wish,))).topics
        assert answer.reason == "InvalidReplicaAssignment"
        assert not isinstance(world.declare(assignment=((0, 2),), **row), Refused)

    def test_required_rack_policy_accepts_one_replica_or_rack(
        self, racked: Callable[..., Any]
    ) -> None:
        world = racked("Required", ("a", "a", "a"))
        assert not isinstance(world.declare(), Refused)
        two = racked("Required")
        one = two.declare(replication_factor=1, min_isr=1)
        assert not isinstance(one, Refused)

    def test_broker_from_before_the_policy_is_named(self, racked: Callable[..., Any]) -> None:
        world = racked("Preferred", ("a", None, "b"))
        world.settings = type(world.settings)(rack_policy="Required")
        refusal = world.declare(replication_factor=2, min_isr=1)
        assert refusal.reason == "InvalidRequest"
        assert "broker 1 registered without one" in refusal.message

    def test_more_replicas_need_every_rack_known(self, racked: Callable[..., Any]) -> None:
        """Where they would go is not guessed."""
        world = racked("Preferred", ("a", None, "b"))
        world.declare(replication_factor=2, min_isr=1)
        world.settings = type(world.settings)(rack_policy="Required")
        refusal = world.declare(replication_factor=3, min_isr=1)
        assert refusal.reason == "InvalidRequest"
        assert "broker 1 registered without one" in refusal.message
        assert not world.p().moving


class TestPreferred:
    def test_growth_continues_where_the_topic_began(self, racked: Callable[..., Any]) -> None:
        """Owners take turns between racks, so that is not where its first broker's id stands."""
        for name in ("a", "b", "c", "d", "e", "f"):
            world = racked("Preferred", ("a", "a", "a", "b", "b", "b"))
            world.declare(name, partitions=2, replication_factor=2)
            world.declare(name, partitions=6, replication_factor=2)
            assert len({world.p(n, name).replicas[0] for n in range(6)}) == 6

    def test_racks_are_used_when_all_brokers_have_one(self, racked: Callable[..., Any]) -> None:
        world = racked("Preferred")
        world.declare(partitions=12, replication_factor=2, min_isr=1)
        assert spread(world) == [{"a", "b"}] * 12

    def test_preferred_rack_policy_ignores_racks_if_one_lacks(
        self, racked: Callable[..., Any]
    ) -> None:
        world, plain = racked("Preferred", ("a", "a", "b", None)), racked("Preferred", (None,) * 4)
        for each in (world, plain):
            each.declare(partitions=12, replication_factor=2, min_isr=1)
        assert rows(world) == rows(plain)

    def test_topic_is_created_in_the_remaining_rack(self, racked: Callable[..., Any]) -> None:
        world = racked("Preferred")
        fence(world, 2, 3)
        world.declare(partitions=4, replication_factor=2, min_isr=1)
        assert spread(world) == [{"a"}] * 4


def test_ignored_racks_place_nothing(racked: Callable[..., Any]) -> None:
    ignored, plain = racked("Ignored"), racked("Preferred", (None,) * 4)
    for each in (ignored, plain):
        each.declare(partitions=12, replication_factor=2, min_isr=1)
    assert rows(ignored) == rows(plain)
    assert ignored.image.brokers[0].rack == "a", "still told to clients"


def rows(world: Any) -> list[tuple[int, ...]]:
    return [world.p(index).replicas for index in range(12)]

"""An emptied volume that may stand for the last copy is refused; naming a leader is the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from plimsoll_core.cluster.model import AnnouncedEndpoint, Recovery
from plimsoll_core.messages.requests import Refused, Registered

FLAP_MS = 60_000


def test_broker_with_empty_volume_registers_after_new_leader(world: Any) -> None:
    world.propose([0, 1])
    world.kill(1, 0)
    world.register(1)
    refused = world.register(0, volume_is_empty=True)
    assert isinstance(refused, Refused)
    assert "spec.uncleanRecovery.elect" in refused.message
    world.tell(2, (0, 4))
    world.name_leader(2)
    assert isinstance(world.register(0, volume_is_empty=True), Registered)


def test_emptied_only_copy_is_given_up_by_name(
    new_world: Callable[..., Any],
) -> None:
    world = new_world(3)
    world.declare(
        strategy="Explicit", assignment=((0,), (0,)), partitions=2, replication_factor=1,
        min_isr=1,
    )  # fmt: skip
    world.kill(0)
    assert isinstance(world.register(0, volume_is_empty=True), Refused)
    (answer,) = world.name_leader(0)
    assert (answer.reason, "gives up" in answer.message) == ("LeaderNotEligible", True)
    refused = world.register(0, volume_is_empty=True)
    assert "only complete copy of 1 partitions, such as orders-1" in refused.message
    world.name_leader(0, 1)
    assert isinstance(world.register(0, volume_is_empty=True), Registered)
    world.now_ms += FLAP_MS
    world.beat(0)
    for index in (0, 1):
        world.tell(0, (None, 0), index)
        assert (world.p(index).leader, world.p(index).recovery) == (0, Recovery.RECOVERING)


def test_empty_volume_given_up_is_rejected_next_epoch(
    new_world: Callable[..., Any],
) -> None:
    world = new_world(3)
    world.declare(strategy="Explicit", assignment=((0,),), replication_factor=1, min_isr=1)
    world.kill(0)
    world.register(0, volume_is_empty=True)
    world.name_leader(0)
    world.register(0, clean=True)
    world.now_ms += FLAP_MS
    world.beat(0)
    assert world.p().leader == 0, "its old volume came back"
    world.kill(0)
    assert isinstance(world.register(0, volume_is_empty=True), Refused)


def test_process_with_empty_only_copy_registers_another_listener(
    new_world: Callable[..., Any],
) -> None:
    """Its endpoints were refused for as long as it lived: the cluster could not be reached."""
    world = new_world(3)
    process = UUID(int=0xBE)
    world.kill(0)
    first = world.register(0, volume_is_empty=True, incarnation_id=process)
    world.now_ms += FLAP_MS
    world.beat(0)
    world.declare(strategy="Explicit", assignment=((0,),), replication_factor=1, min_isr=1)
    assert world.p().leader == 0
    secured = (AnnouncedEndpoint(name="secured", host="b", port=9094),)
    again = world.register(0, volume_is_empty=True, incarnation_id=process, endpoints=secured)
    assert again == first
    assert [one.name for one in world.image.brokers[0].endpoints] == ["secured"]
    assert isinstance(world.register(0, volume_is_empty=True), Refused), "another process"

"""What a new term finishes, after a crash between any two records of its predecessor."""

from typing import Any

import pytest

from plimsoll_core.cluster.records import (
    EPOCHS_SKIPPED,
    ClusterDeclared,
    MetadataVersionFinalized,
)
from plimsoll_core.controller.take_over import EPOCH_STEPS, PRODUCER_IDS_SKIPPED
from plimsoll_core.messages.requests import Activated


@pytest.mark.parametrize("crash_after", range(4))
def test_unfence_cut_short_leaves_nobody_without_a_leader(world: Any, crash_after: int) -> None:
    """R18: crash inside 3.4 (unfenced first, elections after)."""
    for broker in (2, 1, 0):
        world.beat(broker, want_fence=True)
    assert world.p().leader is None
    world.ask(world.heartbeat(0), crash_after=crash_after)
    world.beat(0)
    assert world.p().leader == 0


@pytest.mark.parametrize("crash_after", range(5))
def test_fence_cut_short_is_done_again(new_world: Any, crash_after: int) -> None:
    """The record comes last, so that the broker is fenced again."""
    world = new_world(3)
    world.declare(partitions=6)
    world.ask(world.heartbeat(0, want_fence=True), crash_after=crash_after)
    assert world.image.brokers[0].active == (crash_after < 5)
    world.beat(0, want_fence=True)
    assert all(0 not in p.isr for p in world.image.partitions.values())


def test_leaderless_partitions_are_elected_in_slices(new_world: Any) -> None:
    world = new_world(3, slice_partitions_max=2)
    world.declare(partitions=5)
    for broker in (2, 1, 0):
        world.beat(broker, want_fence=True)
    decision = world.decide(world.heartbeat(0))
    world.commit(decision.records[0])
    world.take_over()
    assert {p.leader for p in world.image.partitions.values()} == {0}


def test_declares_a_new_cluster_once(new_world: Any) -> None:
    world = new_world(0)
    assert [r.name for r in world.log if isinstance(r, ClusterDeclared)] == ["main"]
    world.take_over()
    assert len([r for r in world.log if isinstance(r, ClusterDeclared)]) == 1
    assert world.image.name == "main"


def test_take_over_without_a_name_declares_nothing(new_world: Any) -> None:
    world = new_world(0)
    world.image = world.empty
    assert world.decide(Activated()).records == ()


@pytest.mark.parametrize("crash_after", range(1, 4))
def test_shutdown_cut_short_is_finished_in_slices(new_world: Any, crash_after: int) -> None:
    """I14: who began to shut down leaves every ISR, also where the last term got no further."""
    world = new_world(3, slice_partitions_max=2)
    world.declare(partitions=7)
    world.ask(world.heartbeat(0, want_shutdown=True), crash_after=crash_after)
    assert world.image.brokers[0].shutting_down
    assert all(0 not in p.isr and p.leader != 0 for p in world.image.partitions.values())
    assert not world.soft.leaving


@pytest.mark.parametrize(
    ("version", "changes", "skipped"), [(4, EPOCH_STEPS, EPOCH_STEPS), (5, 1, EPOCHS_SKIPPED + 1)]
)
def test_restored_log_skips_epochs_before_anything_else(
    new_world: Any, version: int, changes: int, skipped: int
) -> None:
    """Copies are not synced: a lost election may have used the next leader epochs."""
    world = new_world(3, slice_partitions_max=2)
    world.commit(MetadataVersionFinalized(cause="test", metadata_version=version))
    world.declare(partitions=5)
    for broker in (2, 1, 0):
        world.beat(broker, want_fence=True)
    before, ids = world.image.partitions, world.image.next_producer_id
    world.commit(world.decide(world.heartbeat(0)).records[0])
    begun = len(world.log)
    world.take_over(restored=True)
    records = world.log[begun + 1 :]
    assert [type(one).__name__ for one in records[: changes + 1]] == [
        *["PartitionsChanged"] * changes,
        "ProducerIdsAllocated",
    ]
    for key, partition in world.image.partitions.items():
        assert partition.leader_epoch == before[key].leader_epoch + skipped + 1
        assert partition.partition_epoch > before[key].partition_epoch + skipped
        assert partition.leader == 0
    assert world.image.next_producer_id == ids + PRODUCER_IDS_SKIPPED
    world.take_over()
    assert all(p.leader_epoch < 20 + skipped for p in world.image.partitions.values()), "once only"

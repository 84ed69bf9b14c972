"""Min ISR changes: "for every partition of the topic: min_isr := v, PE += 1"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plimsoll_core.cluster.records import PartitionsChanged


def declare(world: Any, min_isr: int, **fields: Any) -> Any:
    rows = ((0, 1, 2),) * fields.get("partitions", 1)
    return world.declare(strategy="Explicit", assignment=rows, min_isr=min_isr, **fields)


def test_min_isr_change_gives_every_partition_a_new_partition_epoch(
    new_world: Callable[..., Any],
) -> None:
    world = new_world(3)
    declare(world, 2, partitions=5)
    before = [world.p(index) for index in range(5)]
    declare(world, 3, partitions=5)
    for old in before:
        new = world.p(old.index)
        assert (new.min_isr, new.partition_epoch) == (3, old.partition_epoch + 1)
        assert new.leader_epoch == old.leader_epoch
    (record,) = [r for r in world.log if isinstance(r, PartitionsChanged)]
    assert record.ranges == ((0, 4),)


def test_min_isr_declared_again_changes_nothing(world: Any) -> None:
    declare(world, 3)
    end = len(world.log)
    declare(world, 3)
    assert len(world.log) == end


@pytest.mark.parametrize("partitions", [4, 5])
def test_min_isr_of_many_partitions_changes_slice_by_slice(
    new_world: Callable[..., Any], partitions: int
) -> None:
    world = new_world(3, slice_partitions_max=2)
    declare(world, 2, partitions=partitions)
    first = world.decide(
        world.declaration(
            strategy="Explicit",
            assignment=((0, 1, 2),) * partitions,
            partitions=partitions,
            min_isr=1,
        )
    )
    assert first.again is not None
    assert sum(p.min_isr == 1 for p in first.image.partitions.values()) == 2
    declare(world, 1, partitions=partitions)
    assert all(p.min_isr == 1 for p in world.image.partitions.values())


@pytest.mark.parametrize("crash_after", range(4))
def test_new_term_finishes_what_was_left_half_done(
    new_world: Callable[..., Any], crash_after: int
) -> None:
    world = new_world(3, slice_partitions_max=2)
    declare(world, 2, partitions=5)
    request = world.declaration(
        strategy="Explicit", assignment=((0, 1, 2),) * 5, partitions=5, min_isr=3
    )
    world.ask(request, crash_after=crash_after)
    stated = world.image.topics[world.image.topic_ids["orders"]].min_isr
    assert stated == (3 if crash_after else 2)
    assert {p.min_isr for p in world.image.partitions.values()} == {stated}


def test_large_enough_isr_clears_both_lists(world: Any) -> None:
    """ "abs(isr) ≥ new m → clear elr and lkelr"."""
    world.kill(2, 1)
    assert (world.p().isr, world.p().elr) == ((0,), (1,))
    declare(world, 1)
    assert (world.p().isr, world.p().elr, world.p().last_known_elr) == ((0,), (), ())


def test_smaller_isr_keeps_both_lists(world: Any) -> None:
    """ "else keep both"."""
    world.kill(2)
    world.register(1)
    assert (world.p().isr, world.p().elr, world.p().last_known_elr) == ((0,), (), (1,))
    declare(world, 3)
    assert (world.p().isr, world.p().elr, world.p().last_known_elr) == ((0,), (), (1,))


@pytest.mark.parametrize("min_isr", [1, 3])
def test_leaderless_partition_keeps_its_recovery_set(world: Any, min_isr: int) -> None:
    """ "[K] emits ClearElr, which also forgets the recovery set of a leaderless partition"."""
    for broker in (0, 1, 2):
        world.register(broker)
    before = world.p()
    assert (before.leader, before.last_known_elr) == (None, (1, 2))
    declare(world, min_isr)
    after = world.p()
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (None, (), (), (1, 2))
    assert after.partition_epoch == before.partition_epoch + 1


def test_proposal_made_before_the_raise_is_not_committed_after_it(world: Any) -> None:
    """S24: "here 95 (PE moved), leader learns m=2 first"."""
    declare(world, 1)
    assert world.propose([0, 2]).code == 0
    proposal = world.proposal([0])
    declare(world, 2)
    answer = world.ask(proposal).partitions[0]
    assert answer.code == 95
    assert world.p().isr == (0, 2)

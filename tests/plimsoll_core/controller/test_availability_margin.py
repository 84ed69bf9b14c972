"""May broker b leave partition p?  By example, and as a promise over random histories."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace

from plimsoll_core.cluster.model import ClusterImage, Grant, Partition, Topic
from plimsoll_core.controller.kernel.availability_margin import (
    HOLDS_MAX,
    away,
    exposed,
    holds,
    may_become,
    may_leave,
)
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate, change

Build = Callable[..., Partition]
NONE_ABSENT: frozenset[int] = frozenset()


def image_of(*partitions: Partition, name: str = "orders") -> ClusterImage:
    hosted: dict[int, Map[Any, None]] = {}
    for p in partitions:
        for r in p.replicas:
            hosted[r] = hosted.get(r, Map()).set(p.key, None)
    topic = Topic(
        id=partitions[0].topic_id,
        name=name,
        partitions=len(partitions),
        replication_factor=3,
        min_isr=2,
    )
    return ClusterImage(
        cluster_id=UUID(int=1),
        topics=Map({topic.id: topic}),
        partitions=Map({p.key: p for p in partitions}),
        hosted=Map(hosted),
    )


class TestOnePartition:
    def test_isr_member_may_leave_isr_above_min_isr(self, a_partition: Build) -> None:
        assert may_leave(a_partition(), 1, NONE_ABSENT)

    def test_isr_member_at_min_isr_may_not_leave(self, a_partition: Build) -> None:
        p = a_partition(isr=(1, 2))
        assert [may_leave(p, b, NONE_ABSENT) for b in (1, 2, 3)] == [False, False, True]

    def test_catching_up_replica_stays_below_min_isr(self, a_partition: Build) -> None:
        p = a_partition(isr=(1,), elr=(2,))
        assert not may_leave(p, 3, NONE_ABSENT)
        assert may_leave(p, 3, NONE_ABSENT, joins=False)

    def test_absent_replica_counts_as_gone_unlike_non_replica(self, a_partition: Build) -> None:
        assert not may_leave(a_partition(), 1, {2})
        assert may_leave(a_partition(), 1, {7})

    def test_broker_itself_may_be_among_the_absent(self, a_partition: Build) -> None:
        assert may_leave(a_partition(), 1, {1})

    def test_move_may_end_meanwhile(self, a_partition: Build) -> None:
        """1, 2, 3 → 1, 4, 5.  When 5 joins, 2 and 3 go: then 1 and 4 must not both be away."""
        p = a_partition(replicas=(1, 4, 5, 2, 3), adding=(4, 5), removing=(2, 3), isr=(1, 4, 2, 3))
        assert may_leave(p, 1, NONE_ABSENT)
        assert not may_leave(p, 1, {4})
        assert may_leave(p, 1, {2})

    def test_adding_replica_counts_toward_target_before_joining_isr(
        self, a_partition: Build
    ) -> None:
        p = a_partition(replicas=(1, 2, 4, 3), adding=(4,), removing=(3,), isr=(1, 2, 3))
        assert may_leave(p, 4, NONE_ABSENT)
        assert not may_leave(p, 4, {1})

    def test_offline_replica_may_restart_during_its_reassignment(self, a_partition: Build) -> None:
        """A bad image keeps the last complete replica from starting: it needs another pod."""
        p = a_partition(
            replicas=(1, 3, 2, 4), adding=(2,), removing=(4,), isr=(), elr=(1,), leader=None
        )
        assert may_leave(p, 1, NONE_ABSENT, joins=False)
        assert not may_leave(p, 1, NONE_ABSENT)

    def test_exposed_partition_is_interrupted_while_all_is_well(self, a_partition: Build) -> None:
        p = a_partition(replicas=(1, 2), isr=(1, 2))
        assert exposed(p)
        assert may_leave(p, 1, NONE_ABSENT)
        assert not may_leave(p, 1, NONE_ABSENT, "Block")
        assert not may_leave(p, 1, {2})
        assert not may_leave(replace(p, isr=(1,)), 1, NONE_ABSENT)

    def test_factor_one(self, a_partition: Build) -> None:
        p = a_partition(replicas=(1,), isr=(1,))
        assert may_leave(p, 1, NONE_ABSENT)
        assert not may_leave(p, 1, NONE_ABSENT, "Block")

    def test_last_copy_in_sync_stays(self, a_partition: Build) -> None:
        assert not may_leave(a_partition(isr=(2,), elr=(1,)), 2, NONE_ABSENT)


class TestMoves:
    def test_move_whose_end_needs_the_absent_waits(self, a_partition: Build) -> None:
        p = a_partition()
        assert not may_become(p, p.isr, (1, 2), {1})
        assert may_become(p, p.isr, (2, 3), {1})
        assert may_become(p, p.isr, (1, 2, 4), {1})

    def test_taking_a_move_back_counts_who_stays(self, a_partition: Build) -> None:
        p = a_partition(replicas=(1, 2, 3, 4), adding=(4,), isr=(1, 2, 4))
        assert may_become(p, (1, 2), (), NONE_ABSENT)
        assert not may_become(p, (1, 2), (), {1})
        assert may_become(p, (1, 2), (), {4})

    def test_rollback_that_keeps_isr_is_allowed_with_absentee(self, a_partition: Build) -> None:
        p = a_partition(replicas=(1, 2, 3, 4), adding=(4,), isr=(1, 2))
        assert may_become(p, (1, 2), (), {1})


class TestHolds:
    def test_holds_are_empty_when_the_broker_may_leave(self, a_partition: Build) -> None:
        found = holds(image_of(a_partition()), 1, NONE_ABSENT)
        assert not found
        assert found.worst == ()

    def test_says_who_must_rejoin_which_isr(self, a_partition: Build) -> None:
        found = holds(image_of(a_partition(isr=(1, 2)), name="shop.orders"), 1, NONE_ABSENT)
        assert found.total == 1
        (hold,) = found.worst
        assert (hold.reason, hold.until) == (
            "WouldDropBelowMinISR",
            "broker 3 rejoins the ISR of shop.orders-0",
        )
        assert (hold.broker_id, hold.topic, hold.index, hold.spare) == (1, "shop.orders", 0, -1)

    def test_says_who_is_restarting(self, a_partition: Build) -> None:
        (hold,) = holds(image_of(a_partition()), 1, {2}).worst
        assert hold.reason == "AnotherBrokerIsAway"
        assert hold.until == "broker 2 is back from a restart and in the ISR of orders-0"

    def test_says_how_an_exposed_topic_is_let_go(self, a_partition: Build) -> None:
        (hold,) = holds(
            image_of(a_partition(replicas=(1,), isr=(1,))), 1, NONE_ABSENT, "Block"
        ).worst
        assert hold.reason == "ExposedTopic"
        assert "spec.maintenance.exposedTopics is Interrupt" in hold.until

    def test_says_that_a_move_must_end(self, a_partition: Build) -> None:
        """The target alone can spare no broker, and the policy is to wait."""
        p = a_partition(removing=(3,), isr=(1, 2, 3), replicas=(1, 2, 3))
        (hold,) = holds(image_of(p), 1, NONE_ABSENT, "Block").worst
        assert (hold.reason, hold.until) == ("PartitionMoves", "the move of orders-0 has ended")

    def test_hold_names_both_missing_replicas(self, a_partition: Build) -> None:
        (hold,) = holds(image_of(a_partition(isr=(1,), elr=(2, 3))), 1, NONE_ABSENT).worst
        assert hold.until == "brokers 2 and 3 rejoin the ISR of orders-0"

    def test_worst_come_first_and_the_list_is_bounded(self, a_partition: Build) -> None:
        rows = [a_partition(index=n, isr=(1, 2)) for n in range(30)]
        rows[29] = a_partition(index=29, isr=(1,), elr=(2,))
        found = holds(image_of(*rows), 1, NONE_ABSENT)
        assert found.total == 30
        assert len(found.worst) == HOLDS_MAX
        assert [h.index for h in found.worst[:3]] == [29, 0, 1]

    def test_grants_are_who_is_away(self, a_partition: Build) -> None:
        image = image_of(a_partition())
        grant = Grant(broker_id=2, broker_epoch=7, pod_uid="p", revision="r")
        assert away(replace(image, grants=image.grants.set(2, grant))) == {2}


# --- the promise -------------------------------------------------------------------------------

SIX = range(1, 7)


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    """Perhaps moving, perhaps with some replicas out of sync; without an ISR it has no leader."""
    settled = tuple(draw(st.permutations(SIX))[: draw(st.integers(1, 4))])
    target = tuple(draw(st.permutations(SIX))[: draw(st.integers(1, 4))])
    if draw(st.booleans()):
        target = settled
    adding = tuple(r for r in target if r not in settled)
    removing = tuple(r for r in settled if r not in target)
    replicas = (*target, *removing)
    isr = tuple(r for r in replicas if draw(st.integers(0, 3)))
    p = Partition(
        topic_id=UUID(int=7),
        index=0,
        replicas=replicas,
        adding=adding,
        removing=removing,
        isr=isr,
        leader=None,
        leader_epoch=1,
        partition_epoch=1,
        min_isr=draw(st.integers(1, 3)),
    )
    return change(p, PartitionUpdate(), lambda broker: True)


Event = tuple[str, int]
WHAT = st.sampled_from(["grant", "grant", "stop", "stop", "back", "join", "join"])
EVENTS = st.lists(st.tuples(WHAT, st.integers(0, 5)), min_size=6, max_size=30)


def spares(p: Partition) -> bool:
    """Whether the promise is about it: it could spare a broker, now and when its move ends."""
    return not exposed(p) and len(p.target) > p.min_isr


@pytest.mark.slow
@settings(max_examples=500)
@given(partitions(), EVENTS, st.sampled_from(["Interrupt", "Block"]), st.booleans())
def test_granted_absence_never_takes_isr_below_minimum(
    p: Partition, events: list[Event], policy: Any, joins: bool
) -> None:
    """Whoever is granted stops some time later; others join meanwhile, and moves end."""
    granted: set[int] = set()
    stopped: set[int] = set()
    returned: set[int] = set()
    for what, position in events:
        before, broker = p, p.replicas[position % len(p.replicas)]
        if what == "grant" and broker not in granted and broker not in stopped:
            if may_leave(p, broker, granted, policy, joins=joins):
                granted.add(broker)
                returned.discard(broker)
        elif what == "stop" and broker in granted:
            stopped.add(broker)
            returned.discard(broker)
            p = change(
                p,
                PartitionUpdate(isr=[r for r in p.isr if r != broker]),
                lambda b: b not in stopped,
            )
        elif what == "back" and broker in stopped:
            stopped.discard(broker)
            returned.add(broker)
        elif what == "join" and (broker not in granted or broker in returned) and p.isr:
            p = change(p, PartitionUpdate(isr={*p.isr, broker}), lambda b: b not in stopped)
            if broker in returned:
                granted.discard(broker)
        if policy == "Block" or spares(before):
            dropped = len(p.isr) < len(before.isr)
            assert not dropped or len(p.isr) >= p.effective_min_isr, (before, what, broker)

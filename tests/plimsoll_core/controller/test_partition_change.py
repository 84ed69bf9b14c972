"""The rule for changes, step by step; `change` is the only maker of changed partitions."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from plimsoll_core.cluster.model import Partition, Recovery
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate, as_records, change

Build = Callable[..., Partition]


def every_broker(broker: int) -> bool:
    return True


def only(*brokers: int) -> Callable[[int], bool]:
    return lambda broker: broker in brokers


def shrunk(
    p: Partition, *isr: int, ok: Callable[[int], bool] = every_broker, **w: Any
) -> Partition:
    return change(p, PartitionUpdate(isr=isr, **w), ok)


class TestElr:
    """Step 3.  Below min ISR, who was complete stays electable."""

    def test_shrink_below_min_isr_moves_member_to_elr(self, a_partition: Build) -> None:
        p = shrunk(a_partition(isr=(1, 2)), 1)
        assert (p.isr, p.elr, p.last_known_elr) == ((1,), (2,), ())

    def test_isr_at_min_isr_needs_no_elr(self, a_partition: Build) -> None:
        """abs(isr') ≥ m' ⇒ elr' = lkelr' = ∅."""
        p = shrunk(a_partition(isr=(1,), elr=(2,), last_known_elr=(3,)), 1, 3)
        assert (p.isr, p.elr, p.last_known_elr) == ((1, 3), (), ())

    def test_lost_member_is_distrusted_but_remembered(self, a_partition: Build) -> None:
        p = shrunk(a_partition(isr=(1, 2)), 1, lost={2})
        assert (p.isr, p.elr, p.last_known_elr) == ((1,), (), (2,))

    def test_lost_member_leaves_the_elr_too(self, a_partition: Build) -> None:
        p = shrunk(a_partition(isr=(1,), elr=(2, 3)), 1, lost={3})
        assert (p.elr, p.last_known_elr) == ((2,), (3,))

    def test_elr_and_isr_are_disjoint(self, a_partition: Build) -> None:
        """The TLA omits "− isr'" and so breaks ELR∩ISR=∅ for MinISR ≥ 3."""
        p = a_partition(replicas=(1, 2, 3, 4, 5), isr=(1, 2), elr=(3,), min_isr=3)
        p = shrunk(p, 1, 2)
        assert (p.isr, p.elr) == ((1, 2), (3,))

    def test_removed_replica_does_not_linger(self, a_partition: Build) -> None:
        """[K] omits "∩ replicas'", so a removed replica can linger in the ELR."""
        p = a_partition(isr=(1,), elr=(2,), last_known_elr=(3,))
        p = change(p, PartitionUpdate(replicas=(1,), isr=(1,)), every_broker)
        assert (p.elr, p.last_known_elr) == ((), ())

    def test_effective_min_isr_is_bounded_by_settled_replicas(self, a_partition: Build) -> None:
        """m(p) = max(1, min(min_isr, |replicas − adding|))."""
        p = a_partition(replicas=(1, 2), adding=(2,), isr=(1,), min_isr=2)
        assert p.effective_min_isr == 1


class TestElection:
    """Step 4.  A leader stays while it is valid."""

    def test_leader_stays_while_it_is_valid(self, a_partition: Build) -> None:
        p = a_partition(isr=(1, 2, 3), leader=2)
        assert shrunk(p, 2, 3).leader == 2

    def test_first_valid_replica_in_order_is_elected(self, a_partition: Build) -> None:
        p = shrunk(a_partition(replicas=(1, 3, 2), leader=1), 2, 3)
        assert (p.leader, p.leader_epoch) == (3, 6)

    def test_unacceptable_replica_is_never_elected(self, a_partition: Build) -> None:
        p = shrunk(a_partition(), 2, 3, ok=only(3))
        assert p.leader == 3

    def test_partition_without_a_valid_replica_has_no_leader(self, a_partition: Build) -> None:
        p = shrunk(a_partition(isr=(1,), min_isr=1), ok=only())
        assert (p.isr, p.elr, p.leader) == ((), (1,), None)

    def test_elr_leads_only_when_the_isr_is_empty(self, a_partition: Build) -> None:
        p = a_partition(isr=(1,), elr=(2,))
        assert shrunk(p, 1, ok=only(2)).leader is None
        elected = shrunk(p, ok=only(2))
        assert (elected.leader, elected.isr, elected.elr) == (2, (2,), (1,))

    def test_leader_from_elr_clears_it_at_lower_minimum(self, a_partition: Build) -> None:
        p = a_partition(isr=(), leader=None, elr=(2, 3), last_known_elr=(1,), min_isr=1)
        p = change(p, PartitionUpdate(), every_broker)
        assert (p.isr, p.elr, p.last_known_elr) == ((2,), (), ())

    def test_last_known_elr_is_never_elected_by_itself(self, a_partition: Build) -> None:
        p = a_partition(isr=(), leader=None, last_known_elr=(1, 2))
        assert change(p, PartitionUpdate(), every_broker) is p

    def test_preferred_goes_back_to_the_first_replica(self, a_partition: Build) -> None:
        p = a_partition(leader=2)
        assert change(p, PartitionUpdate(preferred=True), every_broker).leader == 1
        assert change(p, PartitionUpdate(preferred=True), only(2, 3)) is p


class TestReassignment:
    """Step 1.  A move ends with the change that brings the whole target into the ISR."""

    def moving(self, a_partition: Build) -> Partition:
        return a_partition(replicas=(1, 2, 4, 3), adding=(4,), removing=(3,), isr=(1, 2), min_isr=2)

    def test_worked_example(self, a_partition: Build) -> None:
        """leader adds 4 → one record: replicas 1,2,4 isr 1,2,4 LE+1 PE+1."""
        p = shrunk(self.moving(a_partition), 1, 2, 4)
        assert (p.replicas, p.isr, p.adding, p.removing) == ((1, 2, 4), (1, 2, 4), (), ())
        assert (p.leader_epoch, p.partition_epoch) == (6, 10)

    def test_target_outside_the_isr_waits(self, a_partition: Build) -> None:
        p = shrunk(self.moving(a_partition), 1, 2)
        assert p.adding == (4,)

    def test_leader_outside_the_target_is_replaced(self, a_partition: Build) -> None:
        """S32: the ISR that completes a move takes the leadership along."""
        p = a_partition(replicas=(3, 1, 2, 4), adding=(4,), removing=(3,), isr=(1, 2, 3), leader=3)
        p = shrunk(p, 1, 2, 3, 4)
        assert (p.leader, p.isr, p.replicas) == (1, (1, 2, 4), (1, 2, 4))

    def test_move_never_empties_the_isr(self, a_partition: Build) -> None:
        """S31: 4 and 5 keep leading until 1, 2, 3 ⊆ ISR."""
        p = a_partition(
            replicas=(1, 2, 3, 4, 5), adding=(1, 2, 3), removing=(4, 5), isr=(4, 5), leader=4
        )
        p = shrunk(p, 1, 2, 4, 5)
        assert (p.leader, p.removing) == (4, (4, 5))
        p = shrunk(p, 1, 2, 3, 4, 5)
        assert (p.leader, p.isr, p.replicas) == (1, (1, 2, 3), (1, 2, 3))


class TestEpochs:
    """Step 5."""

    def test_change_without_a_difference_writes_no_record(self, a_partition: Build) -> None:
        p = a_partition()
        same = shrunk(p, 3, 1, 2)
        assert same is p
        assert as_records([(p, same)], "lag") == ()

    def test_shrink_and_growth_do_not_start_a_term(self, a_partition: Build) -> None:
        """ISR shrink and pure growth do not bump LE."""
        p = shrunk(a_partition(), 1, 2)
        assert (p.leader_epoch, p.partition_epoch) == (5, 10)
        grown = change(p, PartitionUpdate(replicas=(1, 2, 3, 4), adding=(4,)), every_broker)
        assert (grown.leader_epoch, grown.partition_epoch) == (5, 11)

    def test_removal_of_a_replica_starts_a_term(self, a_partition: Build) -> None:
        p = change(a_partition(), PartitionUpdate(replicas=(1, 2)), every_broker)
        assert (p.leader, p.leader_epoch) == (1, 6)

    def test_losing_the_leader_starts_a_term(self, a_partition: Build) -> None:
        p = shrunk(a_partition(isr=(1,)), ok=only())
        assert (p.leader, p.leader_epoch) == (None, 6)


class TestMinIsr:
    def test_lower_minimum_clears_elr_and_raise_keeps_it(self, a_partition: Build) -> None:
        """abs(isr) ≥ new m → clear elr and lkelr, else keep both."""
        p = a_partition(isr=(1,), elr=(2,), last_known_elr=(3,), min_isr=2)
        lower = change(p, PartitionUpdate(min_isr=1), every_broker)
        assert (lower.elr, lower.last_known_elr) == ((), ())
        higher = change(p, PartitionUpdate(min_isr=3), every_broker)
        assert (higher.elr, higher.last_known_elr) == ((2,), (3,))
        assert higher.partition_epoch == p.partition_epoch + 1


class TestRecords:
    def test_equal_changes_share_one_record_in_ranges(self, a_partition: Build) -> None:
        old = [a_partition(index=n, leader_epoch=n) for n in (4, 1, 2, 0, 9)]
        pairs = [(p, shrunk(p, 1, 2)) for p in old]
        (record,) = as_records(pairs, "lag")
        assert record.ranges == ((0, 2), (4, 4), (9, 9))
        assert (record.isr, record.leader, record.leader_epoch_step) == ((1, 2), UNSET, 0)

    def test_different_changes_are_different_records(self, a_partition: Build) -> None:
        first = a_partition(index=0)
        second = a_partition(index=1, replicas=(3, 1, 2))
        records = as_records([(p, shrunk(p, 2, 3)) for p in (first, second)], "fenced")
        assert [record.ranges for record in records] == [((0, 0),), ((1, 1),)]
        assert {record.cause for record in records} == {"fenced"}

    @pytest.mark.parametrize("field", ["leader", "recovery", "min_isr", "adding"])
    def test_partition_record_states_only_the_fields_that_differ(
        self, a_partition: Build, field: str
    ) -> None:
        values = {"leader": None, "recovery": Recovery.RECOVERING, "min_isr": 1, "adding": (3,)}
        p = a_partition()
        (record,) = as_records([(p, replace(p, **{field: values[field]}))], "x")
        for name in values:
            assert (getattr(record, name) is UNSET) == (name != field)


class TestEndOfMoves:
    """Step 1.  What is added is in sync, and the ISR that is left keeps its margin."""

    @pytest.mark.parametrize(
        ("replicas", "adding", "removing", "isr", "min_isr", "ends"),
        [
            pytest.param((1, 2, 3, 0), (3,), (0,), (0, 1, 3), 2, True, id="dead one stays"),
            pytest.param((0, 1, 2, 3), (3,), (), (0, 1, 3), 2, True, id="one more"),
            pytest.param((1, 2, 3, 0), (3,), (0,), (0, 1), 2, False, id="added one is missing"),
            pytest.param((1, 2, 0), (), (0,), (0, 1), 2, False, id="below min ISR"),
            pytest.param((1, 2, 4, 0), (), (0,), (0, 1, 4), 1, False, id="fewer than it had"),
            pytest.param((1, 2, 3, 0), (3,), (0,), (0, 3), 2, False, id="below min ISR again"),
            pytest.param((2, 0, 1), (), (0, 1), (0, 1), 1, False, id="nobody is left"),
            pytest.param((1, 2, 0), (), (0,), (0, 1, 2), 2, True, id="whole target"),
        ],
    )
    def test_move_ends_with_its_margin_and_not_before(
        self,
        a_partition: Build,
        replicas: tuple[int, ...],
        adding: tuple[int, ...],
        removing: tuple[int, ...],
        isr: tuple[int, ...],
        min_isr: int,
        ends: bool,
    ) -> None:
        p = a_partition(replicas=replicas, isr=isr, leader=isr[0], min_isr=min_isr)
        wish = PartitionUpdate(replicas=replicas, adding=adding, removing=removing)
        p = change(p, wish, every_broker)
        assert p.moving is not ends
        assert ends is (set(p.replicas) == set(replicas) - set(removing) and not p.adding)

    def test_broker_that_may_restart_counts_for_no_margin(self, a_partition: Build) -> None:
        p = a_partition(replicas=(1, 2, 3, 0), isr=(0, 1, 3), leader=0)
        wish = PartitionUpdate(adding=(3,), removing=(0,))
        assert change(p, wish, every_broker, {3}).moving
        assert not change(p, wish, every_broker, {0}).moving

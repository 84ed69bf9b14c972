"""Possible data loss stays visible: a condition for a day, and since when a partition is unwell."""

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.builders import TOPIC_ID, an_image, isr_changed, replay, with_topic

from plimsoll_core.cluster.model import ClusterImage, PartitionKey, Recovery
from plimsoll_core.cluster.records import PartitionsCreated, Record, TopicRemoved
from plimsoll_core.controller.partitions.unclean_recovery import UNCLEAN_CAUSES
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.status.record_events import occurrences
from plimsoll_operator.status.unclean_recovery_condition import SHOWN_MS, UncleanRecovery
from plimsoll_operator.status.unhealthy_since import Unhealthy

NOW_MS = 1_795_000_000_000
ROWS = ((0, 1, 2),) * 3


def lost_and_elected(index: int = 1) -> tuple[Record, ...]:
    return (
        isr_changed(index, (), leader=None, leader_epoch_step=1, cause="registration"),
        isr_changed(
            index,
            (2,),
            leader=BrokerId(2),
            leader_epoch_step=1,
            recovery=Recovery.RECOVERING,
            cause=UNCLEAN_CAUSES[0],
        ),
    )


def told(memory: UncleanRecovery, old: ClusterImage, records: tuple[Record, ...], now_ms: int):
    memory.update(records, list(occurrences(old, replay(old, *records), records)), now_ms)


def an_election(now_ms: int = NOW_MS) -> UncleanRecovery:
    memory = UncleanRecovery()
    told(memory, with_topic(an_image(), ROWS), lost_and_elected(), now_ms)
    return memory


class TestCondition:
    def test_unclean_recovery_condition_is_false_without_unclean_elections(self):
        shown = UncleanRecovery().condition(NOW_MS)
        assert (shown.type, shown.status, shown.reason) == (
            "UncleanRecovery",
            "False",
            "NothingLost",
        )

    def test_unclean_election_is_shown_for_a_day(self):
        memory = an_election()
        shown = memory.condition(NOW_MS)
        assert (shown.status, shown.reason) == ("True", "RecordsMayBeLost")
        assert timestamp(NOW_MS) in shown.message
        assert "Topic orders: broker 2 leads" in shown.message
        assert memory.condition(NOW_MS + SHOWN_MS - 1).status == "True"
        assert memory.condition(NOW_MS + SHOWN_MS).status == "False"

    def test_each_further_one_is_counted_and_shown_for_its_own_day(self):
        memory = an_election()
        told(memory, with_topic(an_image(), ROWS), lost_and_elected(0), NOW_MS + 1_000)
        shown = memory.condition(NOW_MS + SHOWN_MS)
        assert shown.status == "True"
        assert shown.message.startswith("2 partitions")

    def test_clean_changes_say_nothing(self):
        memory = UncleanRecovery()
        told(memory, with_topic(an_image(), ROWS), (isr_changed(0, (0, 1)),), NOW_MS)
        assert memory.condition(NOW_MS).status == "False"

    def test_next_controller_goes_on_with_what_it_finds_shown(self):
        before = replace(an_election().condition(NOW_MS), last_transition_time=timestamp(NOW_MS))
        memory = UncleanRecovery()
        memory.begin(an_image(), [before], NOW_MS + 60_000)
        after = memory.condition(NOW_MS + 60_000)
        assert (after.status, after.message) == ("True", before.message)
        assert memory.condition(NOW_MS + SHOWN_MS).status == "False"

    @pytest.mark.parametrize("stamp", ["", "yesterday"])
    def test_time_that_is_none_counts_as_now(self, stamp: str):
        before = replace(an_election().condition(NOW_MS), last_transition_time=stamp)
        memory = UncleanRecovery()
        memory.begin(an_image(), [before], NOW_MS)
        assert memory.condition(NOW_MS + SHOWN_MS - 1).status == "True"

    def test_election_that_was_never_shown_is_known_by_its_recovery(self):
        image = replay(with_topic(an_image(), ROWS), *lost_and_elected())
        memory = UncleanRecovery()
        memory.begin(image, (), NOW_MS)
        assert memory.condition(NOW_MS).message.startswith("1 partitions")

    def test_term_that_begins_again_forgets_nothing(self):
        memory = an_election()
        before = memory.condition(NOW_MS)
        memory.begin(an_image(), (), NOW_MS + 1_000)
        assert memory.condition(NOW_MS + 1_000) == before


def since(memory: Unhealthy, index: int) -> int:
    return memory.since_ms(PartitionKey(TOPIC_ID, index))


class TestSince:
    def test_unhealthy_since_is_when_the_partition_lost_its_full_isr(self):
        old = with_topic(an_image(), ROWS)
        memory = Unhealthy()
        memory.begin(old, NOW_MS)
        records = (isr_changed(0, (0, 1)),)
        worse = replay(old, *records)
        memory.update(old, worse, records, NOW_MS + 1_000)
        records = (isr_changed(0, (0,)), isr_changed(1, (0,)))
        memory.update(worse, replay(worse, *records), records, NOW_MS + 2_000)
        assert (since(memory, 0), since(memory, 1)) == (NOW_MS + 1_000, NOW_MS + 2_000)

    def test_health_ends_it(self):
        old = replay(with_topic(an_image(), ROWS), isr_changed(0, (0, 1)))
        memory = Unhealthy()
        memory.begin(old, NOW_MS)
        assert since(memory, 0) == NOW_MS
        records = (isr_changed(0, (0, 1, 2)),)
        memory.update(old, replay(old, *records), records, NOW_MS)
        with pytest.raises(KeyError):
            since(memory, 0)

    def test_new_partitions_may_begin_unwell(self):
        old = with_topic(an_image(), ROWS)
        memory = Unhealthy()
        record = PartitionsCreated(
            cause="created",
            topic_id=TOPIC_ID,
            first=3,
            replicas=((BrokerId(0), BrokerId(1)),),
            isr=((BrokerId(0),),),
        )
        memory.update(old, replay(old, record), (record,), NOW_MS)
        assert since(memory, 3) == NOW_MS

    def test_removed_topic_is_forgotten(self):
        old = replay(with_topic(an_image(), ROWS), isr_changed(0, (0, 1)))
        memory = Unhealthy()
        memory.begin(old, NOW_MS)
        record = TopicRemoved(cause="deleted", topic_id=TOPIC_ID)
        memory.update(old, replay(old, record), (record,), NOW_MS)
        with pytest.raises(KeyError):
            since(memory, 0)

    def test_topic_status_changes_by_itself_only_while_it_moves_or_lacks_a_leader(self):
        image = replay(with_topic(an_image(), ROWS), isr_changed(0, (0, 1)))
        memory = Unhealthy()
        memory.begin(image, NOW_MS)
        assert memory.restless_topics(image) == []
        image = replay(image, isr_changed(1, (), leader=None, leader_epoch_step=1))
        memory.begin(image, NOW_MS)
        assert memory.restless_topics(image) == [TOPIC_ID]

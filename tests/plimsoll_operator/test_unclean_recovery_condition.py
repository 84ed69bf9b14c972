"""Possible data loss stays visible: a condition for a day, and since when a partition is unwell."""

from functools import partial

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.builders import TOPIC_ID, an_image, isr_changed, replay, with_topic
from tests.plimsoll_operator.test_leader import BrokenLog, Scene

from plimsoll_core.cluster.model import ClusterImage, PartitionKey, Recovery
from plimsoll_core.cluster.records import ControllerChanged, PartitionsCreated, Record, TopicRemoved
from plimsoll_core.controller.partitions.unclean_recovery import POSSIBLE_CAUSES, UNCLEAN_CAUSES
from plimsoll_core.ids import BrokerId, ControllerEpoch
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.metalog.codec import pack
from plimsoll_operator.metalog.interface import EMPTY_TIP, LogUnavailable, OpenedLog
from plimsoll_operator.process_clocks import wall_ms
from plimsoll_operator.reconcile.cluster.logcluster_status import cluster_memory
from plimsoll_operator.status.record_events import occurrences
from plimsoll_operator.status.unclean_recovery_condition import (
    SHOWN_MS,
    UncleanElections,
    UncleanRecovery,
)
from plimsoll_operator.status.unhealthy_since import Unhealthy

NOW_MS = 1_795_000_000_000
ROWS = ((0, 1, 2),) * 3


def lost_and_elected(index: int = 1, cause: str = POSSIBLE_CAUSES[0]) -> tuple[Record, ...]:
    return (
        isr_changed(index, (), leader=None, leader_epoch_step=1, cause="registration"),
        isr_changed(
            index,
            (2,),
            leader=BrokerId(2),
            leader_epoch_step=1,
            recovery=Recovery.RECOVERING,
            cause=cause,
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
        assert "Topic orders: broker 2 became the leader" in shown.message
        assert memory.condition(NOW_MS + SHOWN_MS - 1).status == "True"
        assert memory.condition(NOW_MS + SHOWN_MS).status == "False"

    def test_further_elections_are_counted_by_day(self):
        memory = an_election()
        told(memory, with_topic(an_image(), ROWS), lost_and_elected(0), NOW_MS + 1_000)
        shown = memory.condition(NOW_MS + SHOWN_MS)
        assert shown.status == "True"
        assert shown.message.startswith("2 partitions")

    def test_clean_changes_say_nothing(self):
        memory = UncleanRecovery()
        told(memory, with_topic(an_image(), ROWS), (isr_changed(0, (0, 1)),), NOW_MS)
        assert memory.condition(NOW_MS).status == "False"

    def test_next_controller_continues_shown_elections(self):
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

    def test_unshown_election_is_known_by_recovery(self):
        image = replay(with_topic(an_image(), ROWS), *lost_and_elected())
        memory = UncleanRecovery()
        memory.begin(image, (), NOW_MS)
        assert "partitions orders-1. " in memory.condition(NOW_MS).message
        assert memory.condition(NOW_MS).message.startswith("1 partition got")

    def test_stopped_partition_proves_no_recent_election(self):
        """Its replica was elected uncleanly long ago, and the mark stays as long as no ISR grows.
        All brokers stopped, and the metadata log was restored: nothing was lost."""
        stopped = isr_changed(1, (), leader=None, leader_epoch_step=1, cause="shutdown")
        image = replay(with_topic(an_image(), ROWS), *lost_and_elected(), stopped)
        assert image.partitions[PartitionKey(TOPIC_ID, 1)].recovery is Recovery.RECOVERING
        memory = UncleanRecovery()
        memory.begin(image, (), NOW_MS)
        shown = memory.condition(NOW_MS)
        assert (shown.status, shown.reason) == ("False", "NothingLost")
        assert memory.elections(NOW_MS) == UncleanElections()

    def test_term_that_begins_again_forgets_nothing(self):
        memory = an_election()
        before = memory.condition(NOW_MS)
        memory.begin(an_image(), (), NOW_MS + 1_000)
        assert memory.condition(NOW_MS + 1_000) == before


def log_of(*batches: tuple[int, tuple[Record, ...]]) -> OpenedLog:
    """A log with records that were written at those times."""
    found, tip = [], EMPTY_TIP
    for at_ms, records in batches:
        made = pack(records, tip, ControllerEpoch(1), partial(str, len(found)), at_ms)
        found += made
        tip = tip.after(made[-1])
    return OpenedLog(tip=tip, snapshot=None, batches=tuple(found))


CERTAIN = next(cause for cause in UNCLEAN_CAUSES if cause not in POSSIBLE_CAUSES)
CLEAN = (isr_changed(0, (0, 1)),)


class TestNextController:
    def test_unshown_election_is_read_from_log(self):
        log = log_of((NOW_MS, CLEAN), (NOW_MS + 500, lost_and_elected()))
        memory = UncleanRecovery()
        memory.begin(an_image(), (), NOW_MS + 60_000, log)
        shown = memory.condition(NOW_MS + 60_000)
        assert (shown.status, shown.reason) == ("True", "RecordsMayBeLost")
        assert shown.message.startswith("1 partition got a leader that may lack")
        assert POSSIBLE_CAUSES[0] in shown.message
        known = memory.elections(NOW_MS + 60_000)
        assert known == UncleanElections(partitions=1, certain=0, last_ms=NOW_MS + 500)
        assert memory.elections(NOW_MS + 500 + SHOWN_MS) == UncleanElections()

    def test_shown_election_in_log_counts_once(self):
        before = replace(
            an_election(NOW_MS + 400).condition(NOW_MS), last_transition_time=timestamp(NOW_MS)
        )
        log = log_of(
            (NOW_MS + 300, lost_and_elected()), (NOW_MS + 9_000, lost_and_elected(2, CERTAIN))
        )
        memory = UncleanRecovery()
        memory.begin(an_image(), [before], NOW_MS + 10_000, log)
        known = memory.elections(NOW_MS + 10_000)
        assert known == UncleanElections(partitions=2, certain=1, last_ms=NOW_MS + 9_000)
        shown = memory.condition(NOW_MS + 10_000)
        assert shown.reason == "RecordsLost"
        assert "1 of them certainly do" in shown.message

    def test_election_of_the_day_before_is_over(self):
        memory = UncleanRecovery()
        memory.begin(an_image(), (), NOW_MS + SHOWN_MS, log_of((NOW_MS, lost_and_elected())))
        assert memory.condition(NOW_MS + SHOWN_MS).status == "False"

    def test_certain_loss_passes_to_next_controller(self):
        first = UncleanRecovery()
        told(first, with_topic(an_image(), ROWS), lost_and_elected(0, CERTAIN), NOW_MS)
        told(first, with_topic(an_image(), ROWS), lost_and_elected(1, CERTAIN), NOW_MS)
        shown = first.condition(NOW_MS)
        assert shown.reason == "RecordsLost"
        assert shown.message.startswith("2 partitions got a leader that lacks")
        second = UncleanRecovery()
        second.begin(an_image(), [shown], NOW_MS + 1_000)
        assert second.condition(NOW_MS + 1_000).reason == "RecordsLost"
        assert second.elections(NOW_MS + 1_000) == first.elections(NOW_MS)


def since(memory: Unhealthy, index: int) -> int:
    return memory.since_ms(PartitionKey(TOPIC_ID, index))


class TestSince:
    def test_unhealthy_since_counts_from_incomplete_isr(self):
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

    def test_topic_status_refreshes_only_while_changing(self):
        image = replay(with_topic(an_image(), ROWS), isr_changed(0, (0, 1)))
        memory = Unhealthy()
        memory.begin(image, NOW_MS)
        assert memory.restless_topics(image) == []
        image = replay(image, isr_changed(1, (), leader=None, leader_epoch_step=1))
        memory.begin(image, NOW_MS)
        assert memory.restless_topics(image) == [TOPIC_ID]


async def test_next_operator_shows_election_that_was_never_shown():
    """The first died between the commit and its status."""
    at_ms = wall_ms()
    scene = Scene(BrokenLog(LogUnavailable("not opened")))
    leader = scene.leader
    opened = leader.controller.options.on_open
    assert opened is not None
    opened(log_of((at_ms, lost_and_elected(1, CERTAIN))))
    image = with_topic(an_image(), ROWS)
    began = ControllerChanged(cause="take-over", identity="b", controller_epoch=ControllerEpoch(9))
    for told_of in leader.controller._committer.subscribers:
        told_of(image, image, (began,))
    known = cluster_memory(leader.term).unclean.elections(at_ms)
    assert (known.partitions, known.certain, known.last_ms) == (1, 1, at_ms)

"""`unclean.recovery.strategy` per topic: its strategies when no replica may lead cleanly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll_core.cluster.model import Partition, Recovery
from plimsoll_core.cluster.topic_configs import UNCLEAN_RECOVERY
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate, change
from plimsoll_core.messages.requests import (
    CreateTopics,
    DeleteTopics,
    NewTopic,
    ReportReplicaLogs,
    Tick,
)

WAIT_MS = 5_000


def declare(world: Any, strategy: str | None, **fields: Any) -> Partition:
    configs = {} if strategy is None else {UNCLEAN_RECOVERY: strategy}
    world.declare(strategy="Explicit", assignment=((0, 1, 2),), configs=configs, **fields)
    p: Partition = world.p()
    return p


def lagging(world: Any, strategy: str | None) -> Partition:
    """Broker 2 fell behind and left the ISR; then 1 and 0 died, in this order: ELR {0, 1}."""
    declare(world, strategy)
    world.propose([0, 1])
    world.kill(1, 0)
    p: Partition = world.p()
    assert (p.leader, p.isr, p.elr, p.last_known_elr) == (None, (), (0, 1), ())
    return p


def everybody_came_back(world: Any, strategy: str | None) -> Partition:
    """Everything was killed at once, and runs again already: LKELR {1, 2}."""
    declare(world, strategy)
    for broker in (0, 1, 2):
        world.register(broker)
    world.soft.flaps.clear()
    for broker in (0, 1, 2):
        world.beat(broker)
    p: Partition = world.p()
    assert (p.leader, p.isr, p.elr, p.last_known_elr) == (None, (), (), (1, 2))
    return p


class TestWhichStrategy:
    def test_balanced_is_the_default(self, world: Any) -> None:
        """ "balanced (default)"."""
        everybody_came_back(world, None)
        world.tell(1, (0, 10))
        world.tell(2, (0, 10))
        assert world.p().leader == 1

    def test_cluster_says_what_a_topic_does_not(self, new_world: Callable[..., Any]) -> None:
        world = new_world(3, unclean_recovery="Manual")
        everybody_came_back(world, None)
        world.tell(1, (0, 10))
        world.tell(2, (0, 10))
        assert world.p().leader is None

    def test_topic_outweighs_its_cluster(self, new_world: Callable[..., Any]) -> None:
        world = new_world(3, unclean_recovery="Manual")
        everybody_came_back(world, "Balanced")
        world.tell(1, (0, 10))
        world.tell(2, (0, 10))
        assert world.p().leader == 1

    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ({"unclean.recovery.strategy": "mAnUaL"}, "Manual"),
            ({"unclean.leader.election.enable": "true"}, "Proactive"),
            ({"unclean.leader.election.enable": "FALSE"}, "Balanced"),
            (
                {
                    "unclean.leader.election.enable": "true",
                    "unclean.recovery.strategy": "proactive",
                },
                "Proactive",
            ),
        ],
    )
    def test_client_may_give_either_of_kafkas_keys(
        self, world: Any, given: dict[str, str], kept: str
    ) -> None:
        """ "Map true→proactive, false→balanced"."""
        (answer,) = world.ask(CreateTopics(topics=(NewTopic(name="t", configs=given),))).topics
        assert answer.code == 0
        topic = world.image.topics[world.image.topic_ids["t"]]
        assert dict(topic.configs) == {UNCLEAN_RECOVERY: kept}

    @pytest.mark.parametrize(
        "given",
        [
            {"unclean.recovery.strategy": "soon"},
            {"unclean.leader.election.enable": "maybe"},
            {"unclean.leader.election.enable": "true", "unclean.recovery.strategy": "Balanced"},
        ],
    )
    def test_create_topics_rejects_conflicting_unclean_recovery_configs(
        self, world: Any, given: dict[str, str]
    ) -> None:
        (answer,) = world.ask(CreateTopics(topics=(NewTopic(name="t", configs=given),))).topics
        assert (answer.code, answer.reason) == (40, "InvalidConfig")
        assert answer.message.endswith(".")


class TestBalanced:
    def test_fenced_member_of_the_elr_is_waited_for(self, world: Any) -> None:
        """ "Clean first, always: while isr ∪ elr ≠ ∅ a member becoming acceptable is elected"."""
        before = lagging(world, "Balanced")
        world.tell(2, (0, 5))
        world.now_ms += 100 * WAIT_MS
        world.ask(Tick())
        assert world.p() == before
        world.start(1, clean=True)
        assert (world.p().leader, world.p().recovery) == (1, Recovery.RECOVERED)

    def test_balanced_recovery_skips_replica_that_left_isr(self, world: Any) -> None:
        """S11: "picks 2; never 1 (it left while the quorum was full)"."""
        everybody_came_back(world, "Balanced")
        world.tell(0, (0, 95))
        world.tell(1, (0, 80))
        world.tell(2, (0, 90))
        assert world.p().leader == 2

    def test_balanced_recovery_elects_longest_log_once_unfenced(self, world: Any) -> None:
        """ "wake 3.8 sessions waiting for b"; S22: "not elected until unfenced and answered"."""
        declare(world, "Balanced")
        for broker in (0, 1, 2):
            world.register(broker)
        world.tell(1, (0, 80))
        world.tell(2, (0, 90))
        assert world.p().leader is None
        world.now_ms += WAIT_MS
        world.beat(2)
        assert world.p().leader == 2


class TestProactive:
    def test_fenced_elr_is_awaited_for_a_bounded_time(self, world: Any) -> None:
        """ "WHEN leader=−1 and no replica is valid now (even if the ELR is merely fenced). Ask all
        active replicas, wait ≤ T (5 s), take the greatest answer"."""
        before = lagging(world, "Proactive")
        world.tell(2, (0, 5))
        world.now_ms += WAIT_MS - 1
        world.ask(Tick())
        assert world.p() == before
        world.now_ms += 1
        world.ask(Tick())
        p = world.p()
        assert (p.leader, p.isr, p.elr, p.recovery) == (2, (2,), (), Recovery.RECOVERING)
        assert p.leader_epoch == before.leader_epoch + 1

    def test_elr_that_was_passed_over_stays_last_known(self, world: Any) -> None:
        """I15: "full => abs(isr|elr|lkelr) >= m" also after an election past the ELR."""
        lagging(world, "Proactive")
        world.now_ms += WAIT_MS
        world.tell(2, (0, 5))
        assert (world.p().leader, world.p().last_known_elr) == (2, (0, 1))

    def test_elr_member_back_in_time_is_elected_cleanly(self, world: Any) -> None:
        lagging(world, "Proactive")
        world.tell(2, (0, 5))
        world.now_ms += 4_000
        world.register(1, clean=True)
        world.beat(1)
        assert (world.p().leader, world.p().recovery) == (1, Recovery.RECOVERED)
        world.now_ms += WAIT_MS
        world.ask(Tick())
        assert world.p().leader == 1

    def test_greatest_of_those_that_told_in_time_leads(self, world: Any) -> None:
        everybody_came_back(world, "Proactive")
        world.tell(0, (0, 7))
        world.tell(1, (0, 9))
        assert world.p().leader is None
        world.now_ms += WAIT_MS
        world.ask(Tick())
        assert world.p().leader == 1

    def test_proactive_recovery_elects_once_all_replicas_reported(self, world: Any) -> None:
        everybody_came_back(world, "Proactive")
        world.tell(0, (0, 7))
        world.tell(1, (0, 9))
        assert world.p().leader is None
        world.tell(2, (0, 8))
        assert world.p().leader == 1

    def test_fenced_broker_is_not_chosen_despite_its_report(self, world: Any) -> None:
        """ "take the greatest answer" of "all active replicas"."""
        declare(world, "Proactive")
        for broker in (0, 1, 2):
            world.register(broker)
        world.tell(2, (0, 9))
        world.now_ms += WAIT_MS
        world.beat(1)
        world.tell(1, (0, 4))
        assert world.p().leader == 1

    def test_wait_starts_anew_with_the_controller(self, world: Any) -> None:
        """S29: "soft state rebuilt; running recoveries restart"."""
        lagging(world, "Proactive")
        world.tell(2, (0, 5))
        world.now_ms += WAIT_MS - 1
        world.take_over()
        world.tell(2, (0, 5))
        world.now_ms += WAIT_MS - 1
        world.beat(2)
        world.ask(Tick())
        assert world.p().leader is None
        world.now_ms += 1
        world.ask(Tick())
        assert world.p().leader == 2

    def test_removed_topic_is_waited_for_no_longer(self, world: Any) -> None:
        topic = NewTopic(
            name="t", assignment=((0, 1),), configs={"unclean.leader.election.enable": "true"}
        )
        world.ask(CreateTopics(topics=(topic,)))
        world.kill(0, 1)
        assert world.p(0, "t").leader is None
        world.tell(0, (0, 1), name="t")
        world.ask(DeleteTopics(names=("t",)))
        world.now_ms += WAIT_MS
        world.ask(Tick())
        soft = world.soft
        assert (soft.leaderless, soft.reports, soft.overdue_ms) == ({}, {}, {})


class TestManual:
    def test_manual_recovery_elects_no_replica_whatever_is_reported(self, world: Any) -> None:
        """ "manual: nothing automatic"."""
        before = everybody_came_back(world, "Manual")
        for broker in (0, 1, 2):
            world.tell(broker, (0, 10 + broker))
        world.now_ms += 100 * WAIT_MS
        world.ask(Tick())
        assert world.p() == before
        assert set(world.soft.reports[before.key]) == {0, 1, 2}, "told all the same"

    def test_clean_election_needs_nobody(self, world: Any) -> None:
        lagging(world, "Manual")
        world.start(1, clean=True)
        assert world.p().leader == 1

    def test_other_strategy_decides_from_what_was_told(self, world: Any) -> None:
        everybody_came_back(world, "Manual")
        world.tell(1, (0, 10))
        world.tell(2, (0, 11))
        declare(world, "Balanced")
        world.tell(1, (0, 10))
        assert world.p().leader == 2


def test_long_reports_are_heard_slice_by_slice(new_world: Callable[..., Any]) -> None:
    world = new_world(3, slice_partitions_max=2)
    rows = ((0, 1, 2),) * 5
    world.declare(strategy="Explicit", assignment=rows, partitions=5)
    for broker in (0, 1, 2):
        world.register(broker)
    world.now_ms += WAIT_MS
    for broker in (0, 1, 2):
        world.beat(broker)
    for broker in (1, 2):
        one = world.report(broker, (0, 10))
        logs = tuple(replace(one.logs[0], index=index) for index in range(5))
        world.ask(ReportReplicaLogs(broker_id=broker, broker_epoch=one.broker_epoch, logs=logs))
    assert [world.p(index).leader for index in range(5)] == [1] * 5


def test_unclean_leader_of_single_copy_needs_no_elr(a_partition: Callable[..., Any]) -> None:
    """I12: abs(isr) ≥ m leaves neither."""
    p = a_partition(isr=(), elr=(2,), last_known_elr=(3,), leader=None, min_isr=1)
    after = change(p, PartitionUpdate(unclean=1), lambda _: True)
    assert (after.isr, after.elr, after.last_known_elr) == ((1,), (), ())

"""A leaderless partition says which brokers it waits for and why, and what giving up would cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.records import BrokerUnregistered
from plimsoll_core.cluster.topic_configs import UNCLEAN_RECOVERY
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.partitions.unclean_recovery import KnownLoss, Outlook, outlook
from plimsoll_core.messages.requests import FailedReplica, ReportFailedReplicas

ROW = (0, 1, 2)


def look(world: Any, index: int = 0) -> Outlook:
    turn = DecisionContext(
        image=world.image, soft=world.soft, now_ms=world.now_ms, settings=world.settings
    )
    return outlook(turn, world.p(index))


def declare(world: Any, strategy: str) -> None:
    configs = {UNCLEAN_RECOVERY: strategy}
    world.declare(strategy="Explicit", assignment=(ROW,), configs=configs)


def everybody_lost(world: Any, strategy: str = "Balanced") -> None:
    """Everything was killed at once; only brokers 0 and 1 take part again: LKELR {1, 2}."""
    declare(world, strategy)
    for broker in ROW:
        world.register(broker)
    world.now_ms += 5_000
    world.beat(0)
    world.beat(1)
    assert world.p().last_known_elr == (1, 2)


class TestLed:
    def test_fenced_replica(self, world: Any) -> None:
        world.kill(2)
        found = look(world)
        assert (found.cause, found.waits_for, found.loss) == ("BrokerFenced", (2,), None)
        assert found.why == (
            "Partition orders-0 tolerates fewer failures than it should, because these replicas "
            "are not in its ISR: broker 2 (fenced). Those that are catching up return by "
            "themselves; start brokers that are down."
        )

    def test_slow_replica(self, world: Any) -> None:
        world.propose([0, 1])
        assert (look(world).cause, look(world).waits_for) == ("CatchingUp", (2,))

    def test_worst_of_several(self, world: Any) -> None:
        world.propose([0, 1])
        world.beat(0, want_shutdown=True)
        found = look(world)
        assert (found.cause, found.waits_for) == ("BrokerStopping", (0, 2))
        assert found.why == (
            "Partition orders-0 tolerates fewer failures than it should, because these replicas "
            "are not in its ISR: broker 0 (stopping), broker 2 (catching up). Those that are "
            "catching up return by themselves; start brokers that are down."
        )

    def test_failed_disk(self, world: Any) -> None:
        p = world.p()
        failed = FailedReplica(topic_id=p.topic_id, index=0)
        epoch = world.image.brokers[1].broker_epoch
        world.ask(ReportFailedReplicas(broker_id=1, broker_epoch=epoch, replicas=(failed,)))
        assert (look(world).cause, look(world).waits_for) == ("StorageFailed", (1,))


class TestClean:
    def test_elr_is_waited_for(self, world: Any) -> None:
        world.propose([0, 1])
        world.kill(1, 0)
        found = look(world)
        assert (found.cause, found.waits_for) == ("BrokerFenced", (0, 1))
        assert found.why.endswith("broker 0 (fenced), broker 1 (fenced).")
        assert found.loss is None, "no broker has reported its log"

    def test_proactive_waits_a_moment_only(self, world: Any) -> None:
        declare(world, "Proactive")
        world.propose([0, 1])
        world.kill(1, 0)
        assert "another active replica leads instead" in look(world).why

    def test_emptied_volume_is_called_so(self, new_world: Callable[..., Any]) -> None:
        world = new_world(3)
        world.declare(strategy="Explicit", assignment=((0,),), replication_factor=1, min_isr=1)
        world.kill(0)
        world.register(0, volume_is_empty=True)
        assert (look(world).cause, look(world).waits_for) == ("VolumeEmptied", (0,))

    def test_unregistered_broker_is_called_so(self, world: Any) -> None:
        """No rule unregisters a broker that hosts replicas; an image may still say so."""
        world.propose([0, 1])
        world.kill(1, 0)
        epoch = world.image.brokers[1].broker_epoch
        gone = BrokerUnregistered(cause="test", broker_id=1, broker_epoch=epoch)
        world.image = apply(world.image, gone)
        found = look(world)
        assert found.waits_for == (0, 1)
        assert found.why.endswith("broker 0 (fenced), broker 1 (not registered).")


class TestRecovery:
    def test_balanced_names_who_has_not_told(self, world: Any) -> None:
        everybody_lost(world)
        found = look(world)
        assert (found.cause, found.waits_for) == ("BrokerFenced", (1, 2))
        assert "broker 1 (has not reported its log), broker 2 (fenced)" in found.why
        world.tell(1, (0, 9))
        assert look(world).waits_for == (2,)

    def test_balanced_recovery_names_complete_replica_that_cannot_lead(self, world: Any) -> None:
        everybody_lost(world)
        world.tell(1, (0, 9))
        world.tell(2, (0, 10))
        found = look(world)
        assert (found.cause, found.waits_for) == ("BrokerFenced", (2,))
        assert found.why.endswith("start its broker if it is down: broker 2 (fenced).")

    def test_manual_says_what_to_do(self, world: Any) -> None:
        everybody_lost(world, "Manual")
        found = look(world)
        assert (found.cause, found.waits_for) == ("LeaderNotNamed", (1, 2))
        assert "spec.uncleanRecovery.elect" in found.why
        for broker in ROW:
            world.tell(broker, (0, 9))
        assert look(world).waits_for == ()

    def test_proactive_takes_the_first_answers(self, world: Any) -> None:
        everybody_lost(world, "Proactive")
        world.soft.leaderless[world.p().key] = world.now_ms
        world.tell(0, (0, 9))
        found = look(world)
        assert found.waits_for == (1, 2)
        assert "of those that have reported becomes leader" in found.why


class TestEstimate:
    def test_known_loss_is_difference_to_longest_log(self, world: Any) -> None:
        """ "difference between the best known log end and the candidate's"."""
        everybody_lost(world, "Manual")
        world.tell(0, (0, 90))
        world.tell(2, (0, 100))
        assert look(world).loss == KnownLoss(leader=0, records=10)

    def test_known_loss_names_fenced_replica_without_other_reports(self, world: Any) -> None:
        everybody_lost(world, "Manual")
        world.tell(2, (0, 100))
        assert look(world).loss == KnownLoss(leader=2, records=0)

    def test_known_loss_counts_log_end_before_last_crash(self, world: Any) -> None:
        """Broker 2 told of 100 records, and came back with none: ten of them are known lost."""
        everybody_lost(world, "Manual")
        world.tell(0, (0, 90))
        world.tell(2, (0, 100))
        world.register(2)
        assert look(world).loss == KnownLoss(leader=0, records=10)

    def test_known_loss_names_best_candidate_while_balanced_waits(self, world: Any) -> None:
        everybody_lost(world)
        world.tell(0, (0, 95))
        world.tell(1, (0, 94))
        assert look(world).waits_for == (2,)
        assert look(world).loss == KnownLoss(leader=0, records=0)

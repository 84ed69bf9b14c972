"""A broker whose copy of the metadata was given up counts as complete nowhere where it sets its log
aside."""

from typing import Any

from plimsoll_core.cluster.model import DismissedCopy, HistoryRestored
from plimsoll_core.cluster.records import RESTORED_CAUSE, ControllerChanged
from plimsoll_core.controller.brokers.dismissed_copies import logs_to_keep
from plimsoll_core.ids import BrokerId, MetadataOffset
from plimsoll_core.messages.brokers import DismissCopy
from plimsoll_core.messages.requests import BrokerProvenDead


def give_up(world: Any, *brokers: int) -> None:
    """A history is restored, and the copies of these brokers are given up with it."""
    gone = tuple(
        DismissedCopy(broker_id=BrokerId(one), applied_offset=MetadataOffset(9), nonce="n")
        for one in brokers
    )
    restored = HistoryRestored(at_ms=1, end_offset=world.image.next_offset, dismissed=gone)
    epoch = world.image.controller_epoch + 1
    world.commit(
        ControllerChanged(
            cause=RESTORED_CAUSE, controller_epoch=epoch, identity="o", restored=restored
        )
    )


def dismiss(world: Any, broker: int) -> Any:
    world.ask(DismissCopy(broker_id=BrokerId(broker)))
    return logs_to_keep(world.image, BrokerId(broker))


def die(world: Any, broker: int) -> None:
    epoch = world.image.brokers[broker].broker_epoch
    world.ask(BrokerProvenDead(broker_id=BrokerId(broker), broker_epoch=epoch, evidence="dead"))


def test_other_member_that_dies_stays_the_complete_one(world: Any) -> None:
    """S10 between the dismissal and the new registration of broker 1."""
    world.propose([0, 1])
    give_up(world, 1)
    assert dismiss(world, 1) == ()
    die(world, 0)
    assert (world.p().leader, world.p().isr, world.p().elr) == (None, (), (0,))
    world.start(1)
    assert (world.p().leader, world.p().elr) == (None, (0,))


def test_dismissed_broker_is_fenced_and_leads_nothing(world: Any) -> None:
    give_up(world, 0)
    dismiss(world, 0)
    assert world.image.brokers[0].fenced
    assert world.p().leader != 0
    assert 0 not in world.p().isr


def test_one_log_of_dismissed_brokers_is_kept(world: Any) -> None:
    world.propose([0, 1])
    give_up(world, 0, 1)
    assert [indexes for _, indexes in dismiss(world, 0)] == [(0,)]
    assert dismiss(world, 1) == ()


def test_copy_dropped_already_is_no_reason(world: Any) -> None:
    give_up(world, 1)
    dismiss(world, 1)
    world.start(1)
    before = len(world.log)
    dismiss(world, 1)
    assert len(world.log) == before
    assert not world.image.brokers[1].fenced


def test_last_known_log_of_kept_history_comes_first(world: Any) -> None:
    """The log of broker 1 has another history; that of broker 0, which stopped uncleanly, does not
    and may lack no more than its last records."""
    world.propose([0, 1])
    die(world, 1)
    die(world, 0)
    world.start(0)
    assert (world.p().elr, world.p().last_known_elr) == ((1,), (0,))
    give_up(world, 1)
    assert dismiss(world, 1) == ()
    assert 1 not in world.p().elr

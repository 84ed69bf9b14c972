"""The life of state changes on a broker: received, pending, completed, as counts."""

from __future__ import annotations

from collections.abc import Callable

from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.test_role_changes import a_broker_of, led_by, without
from tests.plimsoll_broker.trio import Broker, Controller
from tests.plimsoll_operator.builders import an_image, with_topic

from plimsoll_broker.replication.role_changes import StateChanges
from plimsoll_core.ids import BrokerId

Make = Callable[[int], Broker]
HERE = BrokerId(0)


async def test_broker_counts_required_and_completed_state_changes(
    controller: Controller, broker: Make
) -> None:
    one = await a_broker_of(controller, broker, 30)
    changes = one.manager.changes
    assert (
        changes.received
        == changes.completed
        == {
            "start-replica": 30,
            "become-leader": 30,
            "become-follower": 0,
            "close-replica": 0,
        }
    )
    image = led_by(controller.image, 1)
    one.manager.apply_image(controller.image, image)
    await until(lambda: changes.completed["become-follower"] == 30)
    gone = without(image, "t")
    one.manager.apply_image(image, gone)
    await until(lambda: changes.completed["close-replica"] == 30)
    assert changes.received == changes.completed
    assert changes.pending == 0


def test_unfinished_change_keeps_its_first_time() -> None:
    image = with_topic(an_image(), ((0, 1, 2),))
    (partition,) = image.partitions.values()
    now_ms = [1_000]
    changes = StateChanges(HERE, lambda: now_ms[0])
    changes.ask(image, None, partition)
    now_ms[0] = 3_000
    changes.ask(image, None, partition)
    assert (changes.pending, changes.pending_ms) == (2, 2_000)
    assert changes.received["start-replica"] == 1
    changes.done(partition.key)
    assert (changes.pending, changes.pending_ms) == (0, 0)


def test_removed_unopened_replica_has_nothing_pending() -> None:
    image = with_topic(an_image(), ((0, 1, 2),))
    (partition,) = image.partitions.values()
    changes = StateChanges(HERE, lambda: 0)
    changes.ask(image, None, partition)
    changes.keep(image.hosted[BrokerId(0)].delete(partition.key))
    assert changes.pending == 0

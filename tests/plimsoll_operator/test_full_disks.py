"""Rebalances and Reassignments look at disks: what brokers say with their heartbeats."""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import TOPIC_ID, an_image
from tests.plimsoll_operator.moving import Moves
from tests.plimsoll_operator.rebalancing import ROWS, Rebalancings
from tests.plimsoll_operator.test_blocked_objects import events, shown

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.controller.moves.move_room import FRESH_MS
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import BrokerFigures
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.broker_status import BrokerSeen, ShownBroker, broker_status

MIB = 2**20


def disks(scene: Any, age_ms: int = 0, **free_mib: int) -> None:
    """Of 64 MiB each: `b3=1` is broker 3 with 1 MiB free."""
    deciding = scene.deciding
    for number, broker in deciding.image.brokers.items():
        free = free_mib.get(f"b{number}", 60)
        deciding.soft.contacts[number] = Contact(
            broker_epoch=broker.broker_epoch,
            last_ms=deciding.now_ms - age_ms,
            figures=BrokerFigures(disk_free_bytes=free * MIB, disk_bytes=64 * MIB),
        )
    for index in range(len(ROWS)):
        deciding.soft.sizes[PartitionKey(TOPIC_ID, index)] = 10 * MIB


def condition(status: Any, kind: str) -> Any:
    return next(c for c in status.conditions if c.type == kind)


async def test_fill_of_small_disk_is_bounded_and_reported() -> None:
    scene = Rebalancings(approval="Automatic")
    disks(scene, b3=20)
    status = await scene.look()
    assert condition(status, "Planned").reason == "DiskSpace"
    assert "on broker 3 20 MiB of 64 MiB are free" in condition(status, "Planned").message
    assert sum(3 in p.adding for p in scene.moving()) == 1
    scene.copied()
    while (status := await scene.look()).phase == "Running":
        scene.copied()
    assert status.phase == "Completed", "it ends"


async def test_fill_onto_full_disk_waits_and_says_so() -> None:
    scene = Rebalancings(brokers=[3], approval="Automatic")
    disks(scene, b3=1, b4=1)
    with pytest.raises(Retry, match="to broker 3"):
        await scene.look()
    assert scene.status.phase == "Blocked"
    assert condition(scene.status, "Blocked").reason == "DiskFull"
    cluster, blocked = shown(scene)
    assert (blocked.status, cluster.blocked[0].reason) == ("True", "DiskFull")


async def test_fill_waits_for_disk_that_fills_midway() -> None:
    scene = Rebalancings(brokers=[3], approval="Automatic", limits={"concurrentMovesPerBroker": 1})
    told = events(scene)
    disks(scene)
    await scene.look()
    assert scene.moving()
    disks(scene, b3=1, b4=1)
    status = await scene.look()
    assert (status.phase, condition(status, "Blocked").reason) == ("Blocked", "DiskFull")
    assert "The disk of broker " in condition(status, "Blocked").message
    assert status.progress.eta_seconds is None
    scene.copied()
    status = await scene.look()
    assert condition(status, "Blocked").reason == "DiskFull", "what has not begun waits, too"
    assert not scene.moving()
    assert [one.reason for one in told if one.reason.endswith("Blocked")] == ["RebalanceBlocked"]
    disks(scene)
    assert (await scene.look()).phase == "Running"
    assert scene.moving()


async def test_stale_disk_figures_are_reported_and_counts_decide() -> None:
    for age_ms in (FRESH_MS + 1, None):
        scene = Rebalancings(approval="Automatic")
        if age_ms is not None:
            disks(scene, age_ms, b3=1, b4=1)
        status = await scene.look()
        assert status.phase == "Running"
        text = condition(status, "Planned").message
        assert "The disk usage of brokers 3, 4 is unknown" in text


async def test_reassignment_waits_for_room_on_its_target() -> None:
    scene = Moves()
    disks(scene, b4=12)
    with pytest.raises(Retry, match="The move would copy 20 MiB to broker 4"):
        await scene.look()
    cluster, _ = shown(scene)
    assert [(row.object, row.reason) for row in cluster.blocked] == [("kafka/move", "DiskFull")]
    assert not scene.p().moving
    disks(scene)
    assert (await scene.look()).phase == "Running"


@pytest.mark.parametrize(
    ("free", "short", "reason", "text"),
    [
        (60, False, None, ""),
        (1, False, "NearlyFull", "nearly full"),
        (1, True, "RefusesRecords", "refuses clients' records"),
        (20, True, "RefusesRecords", "20 MiB of 64 MiB are free"),
    ],
)
def test_broker_says_what_its_disk_lacks(
    free: int, short: bool, reason: str | None, text: str
) -> None:
    view = ShownBroker(
        disk_free=free * MIB,
        disk_bytes=64 * MIB,
        disk_short=short,
        leaders=0,
        replicas=0,
        in_sync=0,
        lowest_margin=None,
        backlog=None,
        release="",
    )
    status = broker_status(an_image(), BrokerId(0), BrokerSeen(view=view))
    shown = next((one for one in status.conditions if one.type == "DiskPressure"), None)
    assert (shown.reason if shown else None) == reason
    ready = condition(status, "Ready")
    assert ready.status == "True"
    assert text in ready.message
    assert ("disk" in ready.message) is (shown is not None)

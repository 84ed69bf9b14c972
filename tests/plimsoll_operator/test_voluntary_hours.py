"""What the owner of a cluster sees of windows and pauses: what waits, until when, and its start."""

from dataclasses import replace
from typing import Any

import pytest
from tests.plimsoll_operator.rolling import NEW, Cluster, declare
from tests.plimsoll_operator.rolling import a_cluster as running_cluster
from tests.plimsoll_operator.test_members_drain import Draining

from plimsoll_operator.api.broker_configs import settings_of
from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.api.maintenance_windows import HoursClock
from plimsoll_operator.reconcile.cluster import logcluster_status
from plimsoll_operator.reconcile.logbroker import logbroker_status

SATURDAYS = {"windows": [{"schedule": "0 2 * * 6", "duration": "4h"}]}
FRIDAY, SATURDAY = milliseconds("2026-11-27T12:00:00Z"), milliseconds("2026-11-28T02:30:00Z")
OPENS = "the maintenance window opens at 2026-11-28T02:00:00Z"


class Hours:
    """The wall clock of a scene, and the settings that the controller has at each look."""

    def __init__(self, scene: Any, deciding: Any, now_ms: int = FRIDAY) -> None:
        self.scene, self.deciding, self.now_ms = scene, deciding, now_ms
        self.clock = HoursClock(lambda: scene.term.cluster, lambda: self.now_ms)
        scene.term.now_ms = lambda: self.now_ms

    def at(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.follow()

    def follow(self) -> None:
        settings = settings_of(self.scene.term.cluster)
        self.deciding.settings = replace(settings, hours=self.clock())

    def conditions(self) -> dict[str, Any]:
        draft = logcluster_status.render(self.scene.term, self.scene.term.key)
        assert draft is not None
        return {one.type: one for one in draft.status.conditions}


async def rolling(**spec: Any) -> tuple[Cluster, Hours]:
    three = await running_cluster((0, 1, 2))
    hours = Hours(three.scene, three.deciding)
    declare(three, **NEW, **spec)
    hours.follow()
    return three, hours


async def test_roll_waits_for_the_window_and_says_so() -> None:
    three, hours = await rolling(maintenance=SATURDAYS)
    await three.look()
    assert three.start_pods() == []
    assert three.blocked == [(b, "OutsideMaintenanceWindow", OPENS) for b in range(3)]
    shown = hours.conditions()
    assert shown["Blocked"].message.startswith(f"Restart of broker 0 waits until {OPENS}.")
    window = shown["MaintenanceWindow"]
    assert (window.status, window.reason) == ("False", "Closed")
    assert window.message == (
        "No maintenance window is open: restarts, moves and other voluntary work wait until "
        f"{OPENS}."
    )
    hours.at(SATURDAY)
    await three.look()
    assert three.start_pods() == [0], "the first of the revision"
    assert hours.conditions()["MaintenanceWindow"].message == (
        "A maintenance window is open until 2026-11-28T06:00:00Z."
    )


async def test_roll_stops_between_brokers_when_window_closes() -> None:
    three, hours = await rolling(maintenance=SATURDAYS)
    hours.at(SATURDAY)
    await three.look()
    assert three.start_pods() == [0]
    hours.at(milliseconds("2026-11-28T06:00:00Z"))
    three.take_part(0)
    await three.tick()
    await three.look()
    assert not three.image.grants, "what had begun has ended"
    assert three.start_pods() == []
    assert [(broker, reason) for broker, reason, _ in three.blocked] == [
        (b, "OutsideMaintenanceWindow") for b in (1, 2)
    ]


async def test_log_broker_tells_what_it_waits_for() -> None:
    three, _ = await rolling(maintenance=SATURDAYS)
    await three.look()
    found = logbroker_status.waits_of(three.scene.term, 1)
    assert found == f"Restart of broker 1 waits until {OPENS}."


async def test_paused_cluster_rolls_nothing_and_says_so() -> None:
    three, hours = await rolling(paused=True)
    await three.look()
    assert three.start_pods() == []
    assert three.blocked == [(b, "ClusterPaused", "spec.paused is false") for b in range(3)]
    paused = hours.conditions()["Paused"]
    assert (paused.status, paused.reason) == ("True", "SpecPaused")
    declare(three, **NEW)
    hours.follow()
    await three.look()
    assert three.start_pods() == [0]
    assert "Paused" not in hours.conditions()


async def test_window_that_never_opens_is_stalled() -> None:
    bad = {"windows": [{"schedule": "0 2 * * 6", "duration": "4h", "timeZone": "Nowhere"}]}
    three, hours = await rolling(maintenance=bad)
    await three.look()
    stalled = hours.conditions()["Stalled"]
    assert stalled.reason == "InvalidMaintenanceWindow"
    assert stalled.message == (
        "spec.maintenance.windows[0] never opens. The schedule's timeZone Nowhere does not exist."
    )
    assert three.start_pods() == []


@pytest.fixture
def draining() -> tuple[Draining, Hours]:
    scene = Draining()
    return scene, Hours(scene, scene.controller)


async def edit(scene: Draining, hours: Hours, **spec: Any) -> None:
    """As its owner edits the LogCluster, and the edit settles."""
    scene.declare(**spec)
    hours.follow()
    await scene.look()
    scene.ms += 10_000
    await scene.look()


async def test_broker_that_serves_leaves_within_the_window(draining: Any) -> None:
    scene, hours = draining
    less = {"count": 3, "excludedIds": [1]}
    await edit(scene, hours, brokers=less, maintenance=SATURDAYS)
    assert scene.image.leaving == ()
    (row,) = scene.term.shown.blocked["Members"]
    assert (row.action, row.broker, row.until) == ("Drain", 1, OPENS)
    hours.at(SATURDAY)
    await scene.look()
    assert scene.image.leaving == (1,)
    await scene.until_gone(1)


async def test_drained_broker_stays_member_outside_the_window(draining: Any) -> None:
    scene, hours = draining
    less = {"count": 3, "excludedIds": [1]}
    hours.at(SATURDAY)
    await edit(scene, hours, brokers=less, maintenance=SATURDAYS)
    for _ in range(10):
        scene.copy()
        hours.at(SATURDAY if scene.image.hosted.get(1) else FRIDAY)
        if hours.now_ms == FRIDAY:
            break
        await scene.look()
    await scene.look()
    assert 1 in scene.image.members
    assert not scene.image.hosted.get(1)
    (row,) = scene.term.shown.blocked["Members"]
    assert (row.broker, row.reason) == (1, "OutsideMaintenanceWindow")
    hours.at(SATURDAY)
    await scene.look()
    assert 1 not in scene.image.members


async def test_dead_broker_is_replaced_outside_the_window(draining: Any) -> None:
    scene, hours = draining
    await scene.kill(3)
    await edit(scene, hours, brokers={"count": 3}, maintenance=SATURDAYS)
    assert scene.image.leaving == (3,)
    await scene.until_gone(3)


async def test_paused_cluster_takes_no_new_broker(draining: Any) -> None:
    scene, hours = draining
    await edit(scene, hours, brokers={"count": 5}, paused=True)
    assert scene.image.members == (0, 1, 2, 3)
    (row,) = scene.term.shown.blocked["Members"]
    assert (row.action, row.broker, row.reason) == ("Start", 4, "ClusterPaused")
    await edit(scene, hours, brokers={"count": 5})
    assert scene.image.members == (0, 1, 2, 3, 4)

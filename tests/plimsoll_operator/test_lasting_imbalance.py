"""A LogCluster has a Rebalance made when brokers have been loaded unevenly for long."""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import an_image, finalised, with_topic
from tests.plimsoll_operator.test_members_handler import Growing

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.cluster.record_versions import LOAD_SINCE, NEWEST
from plimsoll_operator.kube.resources import REBALANCES
from plimsoll_operator.reconcile.cluster.lasting_imbalance import LOOK_MS

ROWS = ((0,), (0,), (0,), (0,), (1,), (2,))


def scene_of(mode: str | None, version: int = NEWEST, **wish: Any) -> Growing:
    """Brokers 0 to 2 with a partition of 10 MiB each but for broker 0, which has four."""
    image = with_topic(finalised(an_image(), version), ROWS, holder=None)
    movement = {} if mode is None else {"evenLoad": {"mode": mode, "forSeconds": 600, **wish}}
    made = Growing(image, movement=movement)
    made.more = {"movement": movement}
    made.term.monotonic_ms = lambda: made.ms
    (topic_id,) = image.topics
    for index in range(len(ROWS)):
        made.controller.soft.sizes[PartitionKey(topic_id, index)] = 10 * 2**20
    return made


async def pass_minutes(scene: Growing, minutes: int) -> None:
    for _ in range(minutes):
        await scene.look(after_ms=LOOK_MS)


def even(scene: Growing) -> dict[str, Any] | None:
    return next(
        (
            body["spec"]
            for (plural, _, name), body in scene.kube.objects.items()
            if plural == "rebalances" and name == "main-even"
        ),
        None,
    )


async def test_uneven_load_is_rebalanced_only_when_it_lasts() -> None:
    scene = scene_of("Propose")
    await scene.look()
    await pass_minutes(scene, 9)
    assert even(scene) is None
    await pass_minutes(scene, 1)
    spec = even(scene)
    assert spec is not None
    assert (spec["mode"], spec["approval"]) == ("Load", "Manual")
    assert spec["goals"] == {"diskPercent": 25, "bytesInPercent": 25, "bytesOutPercent": 25}


async def test_load_that_becomes_even_begins_anew() -> None:
    scene = scene_of("Automatic")
    await scene.look()
    await pass_minutes(scene, 8)
    sizes = dict(scene.controller.soft.sizes)
    scene.controller.soft.sizes.clear()
    await pass_minutes(scene, 1)
    scene.controller.soft.sizes.update(sizes)
    await pass_minutes(scene, 9)
    assert even(scene) is None
    await pass_minutes(scene, 2)
    spec = even(scene)
    assert spec is not None
    assert spec["approval"] == "Automatic"


@pytest.mark.parametrize(
    ("mode", "version"), [(None, NEWEST), ("Off", NEWEST), ("Automatic", LOAD_SINCE - 1)]
)
async def test_rebalance_is_not_made_unless_asked(mode: str | None, version: int) -> None:
    scene = scene_of(mode, version)
    await scene.look()
    await pass_minutes(scene, 20)
    assert even(scene) is None


async def test_away_broker_suspends_the_time() -> None:
    scene = scene_of("Automatic")
    await scene.look()
    await pass_minutes(scene, 9)
    await scene.stopped(2)
    await pass_minutes(scene, 5)
    assert even(scene) is None


async def test_open_even_rebalance_is_not_made_twice() -> None:
    scene = scene_of("Propose")
    await scene.look()
    await pass_minutes(scene, 11)
    first = scene.kube.find(REBALANCES, "kafka", "main-even")["metadata"]["uid"]
    scene.show("main-even", "AwaitingApproval")
    await pass_minutes(scene, 30)
    assert scene.kube.find(REBALANCES, "kafka", "main-even")["metadata"]["uid"] == first
    scene.show("main-even", "Completed")
    await pass_minutes(scene, 3)
    assert scene.kube.find(REBALANCES, "kafka", "main-even")["metadata"]["uid"] != first

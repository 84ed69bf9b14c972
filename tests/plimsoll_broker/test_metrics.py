"""What a broker tells by itself while no controller decides: nothing of it needs an operator."""

import pytest
from tests.plimsoll_broker.metric_values import told
from tests.plimsoll_broker.test_replication import Make, Three, until
from tests.plimsoll_broker.trio import Controller, a_batch

from plimsoll_broker.control.controller_client import NoController
from plimsoll_broker.node import broker_metrics
from plimsoll_core.messages.requests import Answer


async def test_leader_that_is_gone_while_nobody_can_elect_counts_as_none_at_its_followers(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata still name it."""
    monkeypatch.setattr(broker_metrics, "LEADER_SILENT_MS", 1)
    controller.create("t", (0, 1, 2), (1, 0, 2))
    client = await three[0].client()
    assert (await client.produce("t", a_batch(1)))[0] == 0
    assert told(three[2].manager)["leaderless_partitions"] == 0
    await three[0].stop()
    await until(lambda: told(three[2].manager)["leaderless_partitions"] == 1)
    assert controller.partition("t").leader == 0
    await three[0].start()
    await until(lambda: told(three[2].manager)["leaderless_partitions"] == 0)


async def test_leader_whose_followers_fell_behind_is_under_min_isr_before_a_controller_commits_it(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await broker(0).start(**{"replica.lag.time.max.ms": "2000"})
    others = [await broker(1).start(), await broker(2).start()]
    controller.create("t", (0, 1, 2))
    client = await leader.client()
    assert (await client.produce("t", a_batch(1)))[0] == 0
    assert told(leader.manager)["under_min_isr_partitions"] == 0

    async def no_controller(request: object, timeout_ms: int = 0) -> Answer:
        raise NoController("away")

    monkeypatch.setattr(leader.link, "command", no_controller)
    for other in others:
        await other.stop()
    assert (await client.produce("t", a_batch(1), acks=1))[0] == 0
    await until(lambda: told(leader.manager)["under_min_isr_partitions"] == 1)
    assert len(controller.partition("t").isr) == 3


async def test_silence_of_the_controller_is_told_in_seconds(
    controller: Controller, three: Three
) -> None:
    assert told(three[0].manager, controller_silent_ms=1_500)["controller_silence_seconds"] == 1.5

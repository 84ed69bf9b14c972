"""Pools roll one after another: each once the earlier ones run their revision and are in sync."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.plimsoll_core import rebalances
from tests.plimsoll_core.controller.test_restart_grants import Rolls

from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import (
    RequestRestart,
    RestartAnswer,
    RolledPool,
    RollStage,
    SetLeaving,
    Waits,
)

FIRST = RolledPool(name="canary", revision="C1", broker_ids=(BrokerId(0), BrokerId(1)))
PAUSE = Waits(reason="RolloutPause", until="T")


@pytest.fixture
def rolls(new_world: Callable[..., Any]) -> Rolls:
    """Brokers 0 and 1 are the pool canary; each topic has a replica on another broker, too."""
    world = new_world(4)
    rebalances.topic(world, ((2, 0), (3, 1)), min_isr=1)
    return Rolls(world)


def ask(rolls: Rolls, broker: int, hold: Waits | None = None, **stage: Any) -> RestartAnswer:
    wanted = RollStage(earlier=(FIRST,), hold=hold, **stage)
    request = RequestRestart(
        broker_id=BrokerId(broker), pod_uid=rolls.pod(broker), revision="M1", stage=wanted
    )
    answer = rolls.world.ask(request)
    assert isinstance(answer, RestartAnswer)
    return answer


def untils(answer: RestartAnswer) -> list[tuple[str, str]]:
    return [(wait.reason, wait.until) for wait in answer.waits]


def test_later_pool_waits_until_earlier_has_rolled(rolls: Rolls) -> None:
    both = "brokers 0 and 1 of pool canary run revision C1 and are in sync everywhere"
    assert untils(ask(rolls, 2)) == [("EarlierPool", both)]
    rolls.restart(0, "C1")
    one = "broker 1 of pool canary runs revision C1 and is in sync everywhere"
    assert untils(ask(rolls, 2)) == [("EarlierPool", one)]
    rolls.restart(1, "C1")
    assert ask(rolls, 2).granted


def test_later_pool_waits_while_earlier_lags(rolls: Rolls) -> None:
    rolls.restart(0, "C1")
    rolls.restart(1, "C1")
    rolls.world.propose([2], 0)
    (wait,) = ask(rolls, 3).waits
    assert wait.until == "broker 0 of pool canary runs revision C1 and is in sync everywhere"
    rolls.catch_up()
    assert ask(rolls, 3).granted


def test_pause_and_approval_come_after_earlier_pools(rolls: Rolls) -> None:
    assert ask(rolls, 2, PAUSE).waits[0].reason == "EarlierPool"
    rolls.restart(0, "C1")
    rolls.restart(1, "C1")
    assert untils(ask(rolls, 2, PAUSE)) == [("RolloutPause", "T")]
    assert ask(rolls, 2).granted


def test_broker_that_cannot_start_waits_for_no_pool(rolls: Rolls) -> None:
    assert not ask(rolls, 2, cannot_start=True).granted, "it serves"
    rolls.world.kill(2)
    assert not ask(rolls, 2).granted, "its pod may come back by itself"
    assert ask(rolls, 2, cannot_start=True).granted


def test_begun_restart_gets_another_revision_at_once(rolls: Rolls) -> None:
    assert rolls.ask(2, "M0").granted
    assert ask(rolls, 2, PAUSE).granted


def test_broker_that_leaves_holds_no_pool_back(rolls: Rolls) -> None:
    rolls.restart(0, "C1")
    rolls.world.ask(SetLeaving(broker_ids=(BrokerId(1),)))
    assert ask(rolls, 2).granted

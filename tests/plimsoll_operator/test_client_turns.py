"""What clients change does not hold up the brokers' requests, nor one client another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.plimsoll_operator.test_group_commit import MemoryLog, a_controller, a_registration
from tests.plimsoll_operator.test_runtime_terms import take_part

from plimsoll_core.cluster.records import BrokerRegistered, TopicCreated
from plimsoll_core.messages.requests import Answer, CreateTopics, NewTopic, Refused
from plimsoll_core.messages.security import OnBehalf
from plimsoll_operator.controller import client_turns
from plimsoll_operator.controller.controller_term import Controller

WAIT_S = 30


@pytest.fixture
async def slow() -> AsyncIterator[tuple[Controller, MemoryLog]]:
    """A controller of one broker. Its log takes its time from now on."""
    log = MemoryLog()
    controller = a_controller(log)
    task = asyncio.create_task(controller.run())
    async with asyncio.timeout(WAIT_S):
        await controller.wait_active()
        await take_part(controller, 1)
        log.gate.clear()
        yield controller, log
        log.gate.set()
        await controller.stop()
        await task


def made(controller: Controller, *names: str) -> list[asyncio.Future[Answer]]:
    """One request for each topic; the client is the first letter of the name."""
    return [
        controller.submit(
            CreateTopics(
                topics=(NewTopic(name=name, partitions=1, replication_factor=1),),
                behalf=OnBehalf(principal=f"User:{name[0]}", host="10.0.0.1"),
            )
        )
        for name in names
    ]


def told(log: MemoryLog) -> list[str]:
    """The topics that were created, and the broker that came."""
    return [
        one.name if isinstance(one, TopicCreated) else "broker"
        for one in log.records()
        if isinstance(one, TopicCreated)
        or (isinstance(one, BrokerRegistered) and one.broker_id == 2)
    ]


async def test_broker_overtakes_clients_who_take_turns(
    slow: tuple[Controller, MemoryLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client's 96 slices of a megabyte stood before every ISR change and election."""
    monkeypatch.setattr(client_turns, "OPEN_BYTES_MAX", 1)
    controller, log = slow
    answers = made(controller, "m0", "m1", "m2", "m3", "a0")
    broker = controller.submit(a_registration(2))
    await asyncio.sleep(0)
    assert controller.clients_waiting == 4
    log.gate.set()
    for one in (*answers, broker):
        assert not isinstance(await one, Refused)
    assert controller.clients_waiting == 0
    assert told(log) == ["m0", "broker", "m1", "a0", "m2", "m3"]


async def test_small_changes_of_clients_share_one_append(
    slow: tuple[Controller, MemoryLog],
) -> None:
    controller, log = slow
    before = len(log.batches)
    answers = made(controller, *(f"m{n}" for n in range(20)))
    log.gate.set()
    await asyncio.gather(*answers)
    assert len(log.batches) - before <= 2


async def test_clients_out_of_turn_hear_of_the_end(
    slow: tuple[Controller, MemoryLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_turns, "OPEN_BYTES_MAX", 1)
    controller, log = slow
    answers = made(controller, "m0", "m1", "m2", "a0")
    answers[1].cancel()
    stopping = asyncio.create_task(controller.stop())
    log.gate.set()
    await stopping
    for one in (*answers[:1], *answers[2:]):
        await one
    assert "m1" not in told(log)

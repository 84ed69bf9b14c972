"""A bug of ours: what it costs whom, and that nothing swallows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.plimsoll_broker.described import Harness as Described
from tests.plimsoll_broker.metric_values import told
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import WAIT_S, Broker, Controller, a_batch

from plimsoll_broker import handler_failures
from plimsoll_broker.handler_failures import CommitPathFailed, HandlerFailures, surface
from plimsoll_broker.replication.peer_connection import PeerLost
from plimsoll_core.messages.requests import Refused
from plimsoll_core.replica.replica import Replica
from plimsoll_wire.api_versions import SUPPORTED, ApiKey

Make = Callable[[int], Broker]


async def ended_with(provoke: Callable[[], object]) -> BaseException:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[BaseException] = loop.create_future()
    surface(loop, ended.set_result)
    try:
        provoke()
        async with asyncio.timeout(WAIT_S):
            return await ended
    finally:
        loop.set_exception_handler(None)


def a_bug(*_: object) -> None:
    raise AssertionError("a bug")


async def test_bug_in_a_callback_ends_the_process() -> None:
    loop = asyncio.get_running_loop()
    assert str(await ended_with(lambda: loop.call_soon(a_bug))) == "a bug"


async def test_bug_in_a_timer_ends_the_process() -> None:
    loop = asyncio.get_running_loop()
    assert str(await ended_with(lambda: loop.call_later(0.001, a_bug))) == "a bug"


async def test_bug_in_partition_step_ends_the_process(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was only logged: the later partitions lost their turn, and no client got an answer."""
    one = await broker(0).start()
    controller.create("orders", (0,), (0,))
    await until(lambda: len(one.manager) == 2)
    monkeypatch.setattr(Replica, "take_ready", a_bug)
    hosted = next(iter(one.manager))
    assert str(await ended_with(lambda: one.manager.touch(hosted))) == "a bug"
    monkeypatch.undo()


async def test_bug_during_batch_write_ends_the_process(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    controller.create("orders", (0,))
    await until(lambda: len(one.manager) == 1)
    client = await one.client()
    hosted = next(iter(one.manager))
    monkeypatch.setattr(type(hosted.log), "append", a_bug)
    producing = asyncio.ensure_future(client.produce("orders", a_batch()))
    with pytest.raises(CommitPathFailed):
        async with asyncio.timeout(WAIT_S):
            await one.server.failure()
    producing.cancel()
    await asyncio.gather(producing, return_exceptions=True)
    monkeypatch.undo()
    with pytest.raises(CommitPathFailed):
        await one.stop()


async def test_bug_in_parked_fetch_spares_its_producer(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step that commits a batch also answers whoever waited to read it."""
    one = await broker(0).start()
    controller.create("orders", (0,))
    await until(lambda: len(one.manager) == 1)
    reader, producer = await one.client(), await one.client()
    waiting = asyncio.ensure_future(reader.fetch("orders", 0, wait_ms=30_000))
    hosted = next(iter(one.manager))
    await until(lambda: bool(hosted.replica.parked))
    monkeypatch.setattr("plimsoll_broker.handlers.fetch_poll.Poll.reply", a_bug)
    assert await producer.produce("orders", a_batch()) == (0, 0)
    with pytest.raises(PeerLost):
        await waiting
    assert one.server.stats.handler_failures.counts == {"FETCH": 1}
    assert one.server.stats.closed_for["handler-failed"] == 1


async def test_repeated_bug_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # For longer than all of this takes on a busy machine.
    monkeypatch.setattr(handler_failures, "TRACEBACK_EVERY_S", 3_600.0)
    failures = HandlerFailures()
    for _ in range(1_000):
        failures.met(ApiKey.METADATA, AssertionError("a bug"))
    assert failures.counts == {"METADATA": 1_000}
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None


def test_failure_counters_exist_before_first_failure() -> None:
    values = told(handler_failures={"FETCH": 3})
    for key in ApiKey:
        assert values[f"handler_failures_total{key.name}"] == (3 if key is ApiKey.FETCH else 0)


# --- requests that once ended a broker ------------------------------------------------------------

NAME = "n" * 32_760


@pytest.mark.parametrize("version", range(1, SUPPORTED[ApiKey.DESCRIBE_CONFIGS].last + 1))
@pytest.mark.parametrize("kind", [2, 4])
async def test_configs_of_overlong_resource_names_are_refused(version: int, kind: int) -> None:
    resource = {"resource_type": kind, "resource_name": NAME, "configuration_keys": None}
    values = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    reply = await Described().ask(ApiKey.DESCRIBE_CONFIGS, version, values)
    assert reply.results[0].error_code != 0
    assert len(reply.results[0].error_message) < 400


@pytest.mark.parametrize("version", range(2, SUPPORTED[ApiKey.CREATE_TOPICS].last + 1))
@pytest.mark.parametrize("value", [None, "1"])
async def test_overlong_topic_config_name_is_refused(version: int, value: str | None) -> None:
    topic = {
        "name": "t",
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": NAME, "value": value}],
    }
    values = {"topics": [topic], "timeout": 1_000, "validate_only": False}
    described = Described()
    text = f"There is no topic config {NAME}; known are retention.ms and others."
    described.answer = Refused(code=40, reason="InvalidConfig", message=text)
    reply = described.ask(ApiKey.CREATE_TOPICS, version, values)
    if asyncio.iscoroutine(reply):
        reply = await reply
    assert reply.topics[0].error_code != 0
    assert len(reply.topics[0].error_message) <= 1_000

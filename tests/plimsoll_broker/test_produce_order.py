"""The order of a connection's long produces, and what they come to when it has gone."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.handlers import produce
from plimsoll_broker.handlers.long_work import ConnectionLines
from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.server.connection_state import CloseConnection
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_wire.api_versions import ApiKey


async def left_to_the_loop(error: Exception, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the event loop's handler hears of a produce that fails so, whose client was gone in the
    very turn in which it came."""
    met: list[str] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_exception_handler", lambda c: met.append(str(c["exception"])))
    served = asyncio.Event()

    async def serve() -> None:
        served.set()
        raise error

    context = RequestContext(ApiKey.PRODUCE, 9, 1, memoryview(b""))
    asyncio.ensure_future(ConnectionLines().add(context, serve)).cancel()
    await served.wait()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()
    return met


async def test_refused_produce_of_gone_client_is_no_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended the process: found by frames that were spoilt."""
    assert await left_to_the_loop(CloseConnection("produce-failed"), monkeypatch) == []


async def test_bug_in_produce_of_gone_client_surfaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await left_to_the_loop(RuntimeError("a bug"), monkeypatch) == ["a bug"]


async def test_appends_of_one_produce_are_sliced_by_time(
    controller: Controller, broker: Callable[[int], Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may make files: a hundred held the event loop for seconds on a slow disk. Later requests
    of the connection wait, so that none overtakes."""
    one = await broker(0).start()
    controller.create("t", *((0,) for _ in range(5)))
    client = await one.client()
    for index in range(5):
        await client.produce("t", a_batch(1), index=index)
    turn = 0

    def count() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    loop = asyncio.get_running_loop()
    count()
    appended: list[tuple[int, int]] = []
    append = one.manager.driver.append_produced

    def noted(hosted: Hosted, *rest: object) -> bool:
        appended.append((hosted.key.index, turn))
        return append(hosted, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(one.manager.driver, "append_produced", noted)
    monkeypatch.setattr(produce, "SLICE_S", 0)
    batches = [{"index": index, "records": a_batch(1)} for index in range(5)]
    request = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 30_000,
        "topic_data": [{"name": "t", "partition_data": batches}],
    }
    reply = await client.ask(ApiKey.PRODUCE, 9, request)
    (topic,) = reply.responses  # type: ignore[attr-defined]
    assert [(one.index, one.error_code) for one in topic.partition_responses] == [
        (index, 0) for index in range(5)
    ]
    assert [index for index, _ in appended] == [0, 1, 2, 3, 4]
    assert appended[0][1] < appended[1][1], "the others follow in a later turn"

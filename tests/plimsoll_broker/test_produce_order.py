"""What a connection's long produces come to when it has gone."""

from __future__ import annotations

import asyncio
import gc

import pytest

from plimsoll_broker.handlers.long_work import ConnectionLines
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

"""Garbage, half requests and bugs: one client cannot disturb another."""

import asyncio
import struct

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.plimsoll_broker.listening import WAIT_S, Handlers, Harness, serving

from plimsoll_broker.handler_failures import CommitPathFailed
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def harness():
    async with serving() as made:
        yield made


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2**31 - 1, 2**31 - 1024, 101 * 1024 * 1024])
async def test_frame_of_two_gibibytes_closes_just_this_connection(harness, length):
    client = await harness.connect()
    client.writer.write(struct.pack(">i", length) + b"some of it")
    assert await client.closed() == b""
    assert harness.server.stats.closed_for == {"frame-too-large": 1}
    await harness.still_serves()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "frame-too-large"),
        (struct.pack(">i", -1), "frame-too-large"),
        (struct.pack(">i", 0), "malformed"),
        (struct.pack(">i", 5) + b"12345", "malformed"),
        (struct.pack(">ihhi", 8, 9999, 0, 1), "unsupported-version"),
        (struct.pack(">ihhi", 8, ApiKey.METADATA, 99, 1), "unsupported-version"),
        (struct.pack(">ihhi", 8, ApiKey.METADATA, -1, 1), "unsupported-version"),
        (struct.pack(">ihhi", 8, ApiKey.PRODUCE, 2, 1), "malformed"),
        (struct.pack(">ihhih", 10, ApiKey.PRODUCE, 2, 1, -1), "unsupported-version"),
        (struct.pack(">ihhih", 10, ApiKey.METADATA, 0, 1, 500), "malformed"),
        (struct.pack(">ihhih", 10, ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 1, 0), "unsupported-version"),
    ],
)
async def test_garbage_closes_just_this_connection_and_is_counted(harness, data, reason):
    bystander = await harness.connect()
    bystander.send(ApiKey.LIST_OFFSETS, 5)
    await harness.handlers.until_seen(1)
    client = await harness.connect()
    client.writer.write(data)
    assert await client.closed() == b""
    assert harness.server.stats.closed_for == {reason: 1}
    harness.handlers.parked[0].set_result(b"undisturbed")
    assert await bystander.reply() == (5, b"undisturbed")


async def test_disconnect_in_mid_frame_is_nothing_special(harness):
    client = await harness.connect()
    client.writer.write(request_frame(ApiKey.METADATA, 0, 1, "test", b"x" * 100_000)[:-7])
    await client.writer.drain()
    client.writer.transport.abort()
    await harness.still_serves()
    assert harness.server.stats.closed_for == {}


async def test_request_that_comes_byte_by_byte_is_answered(harness):
    client = await harness.connect()
    for byte in request_frame(ApiKey.METADATA, 0, 3, "test", b"slowly"):
        client.writer.write(bytes([byte]))
        await client.writer.drain()
    assert await client.reply() == (3, b"at once slowly")


@pytest.mark.parametrize(
    ("body", "reason"), [(b"malformed", "malformed"), (b"refused", "not-today")]
)
async def test_handler_can_refuse_a_client(harness, body, reason):
    client = await harness.connect()
    client.send(ApiKey.FETCH, 1, body)
    assert await client.closed() == b""
    assert harness.server.stats.closed_for == {reason: 1}
    await harness.still_serves()


async def test_coroutine_can_refuse_a_client_too(harness):
    client = await harness.connect()
    client.send(ApiKey.CREATE_TOPICS, 1, b"malformed")
    assert await client.closed() == b""
    assert harness.server.stats.closed_for == {"malformed": 1}


async def test_bug_in_handler_closes_its_clients_connection(harness, caplog):
    client, bystander = await harness.connect(), await harness.connect()
    bystander.send(ApiKey.LIST_OFFSETS, 7)
    await harness.handlers.until_seen(1)
    client.send(ApiKey.FETCH, 1, b"anything")
    assert await client.closed() == b""
    assert harness.server.stats.closed_for == {"handler-failed": 1}
    assert harness.server.stats.handler_failures.counts == {"FETCH": 1}
    assert "AssertionError: a bug" in caplog.text
    harness.handlers.parked[0].set_result(b"later")
    assert await bystander.reply() == (7, b"later")
    await harness.still_serves()


async def test_bug_in_coroutine_closes_its_clients_connection(harness, caplog):
    client = await harness.connect()
    client.send(ApiKey.LIST_OFFSETS, 1)
    await harness.handlers.until_seen(1)
    harness.handlers.parked[0].set_exception(AssertionError("a bug"))
    assert await client.closed() == b""
    assert harness.server.stats.closed_for == {"handler-failed": 1}
    assert harness.server.stats.handler_failures.counts == {"LIST_OFFSETS": 1}
    assert "AssertionError: a bug" in caplog.text
    await harness.still_serves()


async def test_bug_on_the_commit_path_ends_the_process(harness):
    client = await harness.connect()
    client.send(ApiKey.LIST_OFFSETS, 1)
    await harness.handlers.until_seen(1)
    harness.handlers.parked[0].set_exception(CommitPathFailed("orders-0"))
    with pytest.raises(CommitPathFailed):
        async with asyncio.timeout(WAIT_S):
            await harness.server.failure()
    assert await client.closed() == b""


@given(data=st.binary(min_size=1, max_size=300))
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_arbitrary_bytes_do_not_disturb_the_server(data):
    async def scenario():
        handlers = Handlers()
        server = BrokerListener(Dispatch({ApiKey.METADATA: handlers.at_once}))
        await server.start("127.0.0.1", 0)
        harness = Harness(server, handlers)
        client = await harness.connect()
        client.writer.write(data)
        client.writer.write_eof()
        await client.closed()
        await harness.still_serves()
        for one in harness.clients:
            one.writer.close()
        await server.stop()

    uvloop.run(scenario())

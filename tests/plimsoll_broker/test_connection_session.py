"""Every client gets its replies in order, and only so much of our memory."""

import asyncio
import gc
import struct
import weakref

import pytest
import uvloop
from tests.plimsoll_broker.listening import WAIT_S, serving
from tests.plimsoll_broker.tls_listening import until

from plimsoll_broker.server import listener as servers
from plimsoll_broker.server.client_memory import Budgets, ClientMemory
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.connection_session import Session
from plimsoll_broker.server.dispatch import Dispatch, RequestContext
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_response, encode_request

IN_FLIGHT_MAX = ListenerLimits().in_flight_max


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def harness():
    async with serving() as made:
        yield made


# --- order ----------------------------------------------------------------------------------------


async def test_parked_request_delays_replies_not_handling(harness):
    client = await harness.connect()
    client.send(ApiKey.METADATA, 1)
    client.send(ApiKey.LIST_OFFSETS, 2)
    client.send(ApiKey.METADATA, 3)
    client.send(ApiKey.LIST_OFFSETS, 4)
    client.send(ApiKey.METADATA, 5)
    await harness.handlers.until_seen(5)
    assert harness.handlers.seen == [1, 2, 3, 4, 5]
    first, second = harness.handlers.parked
    second.set_result(b"second")
    first.set_result(b"first")
    assert [await client.reply() for _ in range(5)] == [
        (1, b"at once "),
        (2, b"first"),
        (3, b"at once "),
        (4, b"second"),
        (5, b"at once "),
    ]


async def test_handler_without_reply_leaves_no_gap(harness):
    client = await harness.connect()
    client.send(ApiKey.PRODUCE, 1)
    client.send(ApiKey.METADATA, 2)
    client.send(ApiKey.LIST_OFFSETS, 3)
    client.send(ApiKey.METADATA, 4)
    await harness.handlers.until_seen(4)
    harness.handlers.parked[0].set_result(None)
    assert [await client.reply() for _ in range(2)] == [(2, b"at once "), (4, b"at once ")]


async def test_replies_in_pieces_and_from_coroutines(harness):
    client = await harness.connect()
    client.send(ApiKey.DESCRIBE_CONFIGS, 1)
    client.send(ApiKey.CREATE_TOPICS, 2)
    assert await client.reply() == (1, b"one two three")
    assert await client.reply() == (2, b"from a coroutine")


async def test_parked_request_does_not_delay_another_connection(harness):
    patient = await harness.connect()
    patient.send(ApiKey.LIST_OFFSETS, 1)
    await harness.handlers.until_seen(1)
    await harness.still_serves()


async def test_parked_request_is_cancelled_on_reset(harness):
    client = await harness.connect()
    client.send(ApiKey.LIST_OFFSETS, 1)
    await harness.handlers.until_seen(1)
    client.reset()
    (future,) = harness.handlers.parked
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(WAIT_S):
            await future
    await harness.still_serves()


async def test_session_of_lost_connection_is_freed_without_gc(harness):
    """Thousands that went at once kept 150 MiB until the collector's oldest generation was due."""
    client = await harness.connect()
    client.send(ApiKey.METADATA, 1)
    await client.reply()
    client.send(ApiKey.LIST_OFFSETS, 2)
    await harness.handlers.until_seen(2)
    session = weakref.ref(next(iter(harness.server._open.clients)))
    gc.disable()
    try:
        client.reset()
        harness.handlers.parked.clear()
        await harness.still_serves()
        async with asyncio.timeout(WAIT_S):
            while session() is not None:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
    finally:
        gc.enable()


async def test_connections_are_checked_in_portions(harness, monkeypatch):
    monkeypatch.setattr(servers, "_SWEPT_MIN", 2)
    looked = []
    conduct = Session.conduct
    monkeypatch.setattr(
        Session,
        "conduct",
        lambda self, now, **wanted: looked.append(self) or conduct(self, now, **wanted),
    )
    for _ in range(5):
        await harness.connect()
    await harness.still_serves()
    harness.server._sweeper.cancel()
    harness.server._sweep()
    assert len(looked) == 2
    async with asyncio.timeout(WAIT_S):
        while len(looked) < 6:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    assert len(set(looked)) == 6


async def test_large_requests_and_large_replies(harness):
    client = await harness.connect()
    body = bytes(range(256)) * 12_000
    for number in (1, 2):  # the second begins like the first
        client.send(ApiKey.METADATA, number, body)
        correlation_id, reply = await client.reply()
        assert (correlation_id, reply) == (number, b"at once " + body)


# --- bounds ---------------------------------------------------------------------------------------


async def test_requests_in_flight_are_bounded_and_resume(harness):
    client = await harness.connect()
    count = IN_FLIGHT_MAX + 30
    for correlation_id in range(count):
        client.send(ApiKey.LIST_OFFSETS, correlation_id)
    await harness.handlers.until_seen(IN_FLIGHT_MAX)
    await harness.still_serves()
    assert len(harness.handlers.parked) == IN_FLIGHT_MAX
    answered = 0
    while answered < count:
        await harness.handlers.until_seen(min(answered + IN_FLIGHT_MAX, count) + 1)
        harness.handlers.parked[answered].set_result(b"")
        assert (await client.reply())[0] == answered
        answered += 1


async def test_client_that_does_not_read_stops_being_served(harness):
    client = await harness.connect()
    client.reader._transport.pause_reading()
    body = bytes(1024 * 1024)

    async def send_all():
        for correlation_id in range(64):
            client.send(ApiKey.METADATA, correlation_id, body)
            await client.writer.drain()

    sending = asyncio.ensure_future(send_all())
    done, _ = await asyncio.wait([sending], timeout=3)
    assert not done, "the server stopped reading, so that this client cannot go on"
    sending.cancel()
    assert len(harness.handlers.seen) < 64
    await harness.still_serves()
    client.reader._transport.resume_reading()
    for expected in range(len(harness.handlers.seen) - 1):
        assert (await client.reply())[0] == expected


# --- negotiation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_advertises_exactly_the_apis_with_handlers(harness, version):
    client = await harness.connect()
    body = encode_request(
        ApiKey.API_VERSIONS,
        version,
        {"client_software_name": "test", "client_software_version": "1"},
    )
    client.send(ApiKey.API_VERSIONS, 1, body, version)
    _, reply = await client.reply()
    decoded = decode_response(ApiKey.API_VERSIONS, version, reply)
    ranges = {item.api_key: (item.min_version, item.max_version) for item in decoded.api_keys}
    assert set(ranges) == {*harness.handlers.table(), ApiKey.API_VERSIONS}
    assert ranges[ApiKey.PRODUCE] == (0, 10), "older librdkafka looks for Produce 0 to 2"
    assert ranges[ApiKey.FETCH] == (4, 17)
    assert decoded.error_code == 0


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "software"),
    [("", "1"), ("test", ""), ("-test", "1"), ("te st", "1"), ("test", "1." * 4_000 + "0")],
)
async def test_client_with_illegal_software_name_gets_error(harness, version, name, software):
    client = await harness.connect()
    values = {"client_software_name": name, "client_software_version": software}
    body = encode_request(ApiKey.API_VERSIONS, version, values)
    client.send(ApiKey.API_VERSIONS, 1, body, version)
    decoded = decode_response(ApiKey.API_VERSIONS, version, (await client.reply())[1])
    assert (decoded.error_code, decoded.api_keys) == (42, ())


@pytest.mark.parametrize("version", [5, 17, 32767])
async def test_newer_api_versions_is_answered_in_version_0(harness, version):
    client = await harness.connect()
    head = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 7, -1)
    client.writer.write(struct.pack(">i", len(head) + 5) + head + b"junk!")
    correlation_id, reply = await client.reply()
    decoded = decode_response(ApiKey.API_VERSIONS, 0, reply)
    assert (correlation_id, decoded.error_code) == (7, 35)
    ranges = {item.api_key: item.max_version for item in decoded.api_keys}
    assert ranges[ApiKey.API_VERSIONS] == 4
    client.send(ApiKey.METADATA, 8)
    assert await client.reply() == (8, b"at once ")


async def test_client_waits_for_memory_while_nothing_else_does() -> None:
    """In the middle of a large frame it was refused memory once while its replies could not be
    sent; memory was not asked for again meanwhile, and it was closed for want of it."""
    mib = 2**20
    memory = ClientMemory(Budgets(replies=64 * mib, requests=8 * mib, frame=8 * mib))
    pending: list[asyncio.Future[None]] = []

    def waits(_: RequestContext) -> asyncio.Future[None]:
        pending.append(asyncio.get_running_loop().create_future())
        return pending[-1]

    limits = ListenerLimits(in_flight_max=2, frame_bytes_max=8 * mib)
    server = BrokerListener(Dispatch({ApiKey.PRODUCE: waits}), limits=limits, memory=memory)
    _, writer = await asyncio.open_connection(
        "127.0.0.1", await server.start("127.0.0.1", 0), limit=mib
    )
    head = struct.pack(">hhih", ApiKey.PRODUCE, 7, 1, -1)
    try:
        writer.write(struct.pack(">i", len(head)) + head)
        await until(lambda: len(pending) == 1)
        writer.write(struct.pack(">i", 6 * mib) + head + bytes(400_000))
        (session,) = server._open
        await until(lambda: session._receiver.came > 300_000)
        session.pause_writing()
        others = 8 * mib - memory.requests.used
        memory.requests.shares.take("User:other", others)
        writer.write(bytes(2 * mib))
        await until(lambda: session._receiver.starved)
        memory.requests.give_back("User:other", others)
        await until(lambda: session.activity.starved_s is None)
        assert session.conduct(asyncio.get_running_loop().time() + 60).starved is None
    finally:
        writer.close()
        for one in pending:
            one.cancel()
        await server.stop()

"""One client cannot disturb another, and every client gets its replies in order."""

import asyncio
import struct

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll_broker import session as sessions
from plimsoll_broker.dispatch import CloseConnection, Dispatch
from plimsoll_broker.server import Server
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request
from plimsoll_wire.primitives import MalformedMessage
from plimsoll_wire.versions import SUPPORTED, ApiKey

WAIT_S = 20


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


class Handlers:
    """Metadata answers at once; ListOffsets when the test says so; Produce never replies."""

    def __init__(self):
        self.parked = []
        self.seen = []
        self.arrived = asyncio.Event()

    def table(self):
        return {
            ApiKey.METADATA: self.at_once,
            ApiKey.LIST_OFFSETS: self.later,
            ApiKey.PRODUCE: self.silent,
            ApiKey.FETCH: self.broken,
            ApiKey.DESCRIBE_CONFIGS: self.in_pieces,
            ApiKey.CREATE_TOPICS: self.coroutine,
        }

    def note(self, context):
        self.seen.append(context.correlation_id)
        self.arrived.set()
        self.arrived = asyncio.Event()

    def at_once(self, context):
        self.note(context)
        return b"at once " + bytes(context.body)

    def later(self, context):
        self.note(context)
        future = asyncio.get_running_loop().create_future()
        self.parked.append(future)
        return future

    def silent(self, context):
        self.note(context)

    def broken(self, context):
        self.note(context)
        if context.body == b"malformed":
            raise MalformedMessage("no")
        if context.body == b"refused":
            raise CloseConnection("not-today")
        raise AssertionError("a bug")

    def in_pieces(self, context):
        return [b"one ", memoryview(b"two "), bytearray(b"three")]

    async def coroutine(self, context):
        self.note(context)
        await asyncio.sleep(0)
        if context.body == b"malformed":
            raise MalformedMessage("no")
        return b"from a coroutine"

    async def until_seen(self, count):
        async with asyncio.timeout(WAIT_S):
            while len(self.seen) < count:
                await self.arrived.wait()


class Client:
    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    def send(self, key, correlation_id, body=b"", version=None):
        version = SUPPORTED[key].first if version is None else version
        self.writer.write(request_frame(key, version, correlation_id, "test", body))

    async def reply(self):
        async with asyncio.timeout(WAIT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            data = await self.reader.readexactly(size)
        return struct.unpack_from(">i", data)[0], data[4:]

    async def closed(self):
        """The rest of what comes until the server closes."""
        async with asyncio.timeout(WAIT_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


class Harness:
    def __init__(self, server, handlers):
        self.server = server
        self.handlers = handlers
        self.clients = []

    async def connect(self):
        client = Client(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self.clients.append(client)
        return client

    async def still_serves(self):
        client = await self.connect()
        client.send(ApiKey.METADATA, 1, b"hello")
        assert await client.reply() == (1, b"at once hello")


@pytest.fixture
async def harness():
    handlers = Handlers()
    server = Server(Dispatch(handlers.table()), connections_max=20)
    await server.start("127.0.0.1", 0)
    made = Harness(server, handlers)
    yield made
    for client in made.clients:
        client.writer.close()
    await server.stop()


# --- order ----------------------------------------------------------------------------------------


async def test_a_parked_request_delays_the_replies_behind_it_and_not_their_handling(harness):
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


async def test_a_handler_without_reply_leaves_no_gap(harness):
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


async def test_one_parked_client_does_not_delay_another(harness):
    patient = await harness.connect()
    patient.send(ApiKey.LIST_OFFSETS, 1)
    await harness.handlers.until_seen(1)
    await harness.still_serves()


async def test_what_a_client_waited_for_is_cancelled_when_it_goes(harness):
    client = await harness.connect()
    client.send(ApiKey.LIST_OFFSETS, 1)
    await harness.handlers.until_seen(1)
    client.writer.transport.abort()
    (future,) = harness.handlers.parked
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(WAIT_S):
            await future
    await harness.still_serves()


async def test_a_large_request_and_a_large_reply(harness):
    client = await harness.connect()
    body = bytes(range(256)) * 20_000
    client.send(ApiKey.METADATA, 1, body)
    correlation_id, reply = await client.reply()
    assert (correlation_id, reply) == (1, b"at once " + body)


# --- bounds ---------------------------------------------------------------------------------------


async def test_requests_in_flight_are_bounded_and_go_on_afterwards(harness):
    client = await harness.connect()
    count = sessions.IN_FLIGHT_MAX + 30
    for correlation_id in range(count):
        client.send(ApiKey.LIST_OFFSETS, correlation_id)
    await harness.handlers.until_seen(sessions.IN_FLIGHT_MAX)
    await harness.still_serves()
    assert len(harness.handlers.parked) == sessions.IN_FLIGHT_MAX
    answered = 0
    while answered < count:
        await harness.handlers.until_seen(min(answered + sessions.IN_FLIGHT_MAX, count) + 1)
        harness.handlers.parked[answered].set_result(b"")
        assert (await client.reply())[0] == answered
        answered += 1


async def test_a_client_that_does_not_read_stops_being_served(harness):
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


async def test_too_many_connections_are_turned_away(harness):
    clients = [await harness.connect() for _ in range(20)]
    clients[-1].send(ApiKey.METADATA, 1)
    await clients[-1].reply()
    assert await (await harness.connect()).closed() == b""
    assert harness.server.stats.turned_away == 1
    clients[0].send(ApiKey.METADATA, 1)
    assert await clients[0].reply() == (1, b"at once ")


async def test_an_idle_half_request_is_closed_and_a_waiting_one_is_not():
    handlers = Handlers()
    server = Server(Dispatch(handlers.table()), idle_ms_max=200)
    await server.start("127.0.0.1", 0)
    harness = Harness(server, handlers)
    half = await harness.connect()
    half.writer.write(b"\x00\x00\x01\x00\x00\x03")
    waiting = await harness.connect()
    waiting.send(ApiKey.LIST_OFFSETS, 9)
    assert await half.closed() == b""
    assert server.stats.closed_for["idle"] == 1
    handlers.parked[0].set_result(b"still here")
    assert await waiting.reply() == (9, b"still here")
    for client in harness.clients:
        client.writer.close()
    await server.stop()


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2**31 - 1, 2**31 - 1024, 101 * 1024 * 1024])
async def test_a_frame_of_two_gibibytes_closes_just_this_connection(harness, length):
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


async def test_a_disconnect_in_mid_frame_is_nothing_special(harness):
    client = await harness.connect()
    client.writer.write(request_frame(ApiKey.METADATA, 0, 1, "test", b"x" * 100_000)[:-7])
    await client.writer.drain()
    client.writer.transport.abort()
    await harness.still_serves()
    assert harness.server.stats.closed_for == {}


async def test_a_request_that_comes_byte_by_byte_is_answered(harness):
    client = await harness.connect()
    for byte in request_frame(ApiKey.METADATA, 0, 3, "test", b"slowly"):
        client.writer.write(bytes([byte]))
        await client.writer.drain()
    assert await client.reply() == (3, b"at once slowly")


@pytest.mark.parametrize(
    ("body", "reason"), [(b"malformed", "malformed"), (b"refused", "not-today")]
)
async def test_a_handler_can_refuse_a_client(harness, body, reason):
    client = await harness.connect()
    client.send(ApiKey.FETCH, 1, body)
    assert await client.closed() == b""
    assert harness.server.stats.closed_for == {reason: 1}
    await harness.still_serves()


async def test_a_coroutine_can_refuse_a_client_too(harness):
    client = await harness.connect()
    client.send(ApiKey.CREATE_TOPICS, 1, b"malformed")
    assert await client.closed() == b""
    assert harness.server.stats.closed_for == {"malformed": 1}


async def test_a_bug_in_a_handler_surfaces(harness):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    client = await harness.connect()
    client.send(ApiKey.FETCH, 1, b"anything")
    with pytest.raises(AssertionError, match="a bug"):
        async with asyncio.timeout(WAIT_S):
            await harness.server.failure()
    await client.closed()


@given(data=st.binary(min_size=1, max_size=300))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_bytes_disturb_the_server(data):
    async def scenario():
        handlers = Handlers()
        server = Server(Dispatch({ApiKey.METADATA: handlers.at_once}))
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


# --- negotiation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
async def test_what_has_a_handler_is_advertised_and_nothing_else(harness, version):
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


@pytest.mark.parametrize("version", [5, 17, 32767])
async def test_api_versions_from_the_future_is_answered_in_version_0(harness, version):
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

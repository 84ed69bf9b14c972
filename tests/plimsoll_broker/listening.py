"""A server with handlers that answer at once, later, never or badly; and a raw client."""

import asyncio
import socket
import struct
from contextlib import asynccontextmanager

from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.connection_state import CloseConnection
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.primitives import MalformedMessage

WAIT_S = 30


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

    def reset(self):
        """End the connection so that the server's kernel hears of it: no half-close."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

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


@asynccontextmanager
async def serving():
    """A server of these handlers on loopback, with room for twenty connections."""
    handlers = Handlers()
    server = BrokerListener(Dispatch(handlers.table()), ListenerLimits(connections_max=20))
    await server.start("127.0.0.1", 0)
    made = Harness(server, handlers)
    yield made
    for client in made.clients:
        client.writer.close()
    await server.stop()

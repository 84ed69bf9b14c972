"""Slow, silent and many: what clients may hold together, and that brokers are not shut out."""

import asyncio
import socket
import struct
import time
from dataclasses import replace

import pytest
import uvloop
from tests.plimsoll_broker.listening import WAIT_S, Handlers, Harness

from plimsoll_broker.server.client_memory import MIB, Budgets, ClientMemory
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame

BUDGETS = Budgets(replies=8 * MIB, requests=4 * MIB, frame=4 * MIB)
NEVER = 1_000_000


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


class Listening:
    """A server with limits and a budget."""

    def __init__(self, handlers, **limits):
        self.memory = ClientMemory(BUDGETS)
        limits = ListenerLimits(frame_bytes_max=BUDGETS.frame, **limits)
        self.server = BrokerListener(Dispatch(handlers.table()), limits, self.memory)
        self.stats = self.server.stats
        self.harness = Harness(self.server, handlers)

    async def __aenter__(self):
        await self.server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        for client in self.harness.clients:
            client.writer.close()
        await self.server.stop()
        await until(lambda: self.memory.replies.used == self.memory.requests.used == 0)

    async def connect(self):
        return await self.harness.connect()

    async def introduced(self):
        """A client that has made a request."""
        client = await self.connect()
        client.send(ApiKey.METADATA, 1)
        await client.reply()
        return client


async def until(condition):
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


class Brokerly(Handlers):
    """ListOffsets makes a connection a broker's, as a registered follower's fetch does."""

    def later(self, context):
        context.connection.belongs_to_broker()
        return super().at_once(context)


class Verbose(Handlers):
    """DescribeConfigs has a lot to say."""

    def in_pieces(self, context):
        return [bytes(3 * MIB)]


# --- connections ----------------------------------------------------------------------------------


async def test_full_listener_closes_longest_silent_client():
    async with Listening(Handlers(), connections_max=3) as it:
        first, second, third = [await it.introduced() for _ in range(3)]
        first.send(ApiKey.METADATA, 2)
        await first.reply()
        newcomer = await it.introduced()
        assert await second.closed() == b""
        assert it.stats.closed_for == {"made-room": 1}
        for client in (first, third, newcomer):
            client.send(ApiKey.METADATA, 3, b"still here")
            assert await client.reply() == (3, b"at once still here")


async def test_full_listener_closes_connections_without_requests_first():
    async with Listening(Handlers(), connections_max=3) as it:
        client = await it.introduced()
        strangers = [await it.connect() for _ in range(8)]
        assert [await one.closed() for one in strangers[:6]] == [b""] * 6
        client.send(ApiKey.METADATA, 2, b"still here")
        assert await client.reply() == (2, b"at once still here")


async def test_follower_is_admitted_through_idle_strangers():
    async with Listening(Brokerly(), connections_max=3) as it:
        for _ in range(3):
            await it.introduced()
        follower = await it.connect()
        follower.send(ApiKey.LIST_OFFSETS, 1, b"I replicate")
        assert await follower.reply() == (1, b"at once I replicate")
        for _ in range(5):
            await it.introduced()
        follower.send(ApiKey.LIST_OFFSETS, 2, b"still here")
        assert await follower.reply() == (2, b"at once still here")


async def test_listener_full_of_brokers_rejects_a_new_connection():
    async with Listening(Brokerly(), connections_max=2) as it:
        for _ in range(2):
            client = await it.connect()
            client.send(ApiKey.LIST_OFFSETS, 1)
            await client.reply()
        assert await (await it.connect()).closed() == b""
        assert it.stats.turned_away == 1


async def test_listener_that_makes_no_room_turns_newcomers_away():
    async with Listening(Handlers(), connections_max=1, makes_room=False) as it:
        client = await it.introduced()
        assert await (await it.connect()).closed() == b""
        assert it.stats.turned_away == 1
        client.send(ApiKey.METADATA, 2)
        assert await client.reply() == (2, b"at once ")


async def test_stranger_that_says_nothing_is_closed():
    async with Listening(Handlers()) as it:
        client = await it.introduced()
        # From now on: on a busy machine the client would have been silent for so long itself.
        it.server.limits = replace(it.server.limits, silent_ms_max=100)
        it.server._sweeper.cancel()
        it.server._schedule_sweep()
        assert await (await it.connect()).closed() == b""
        assert it.stats.closed_for == {"silent": 1}
        client.send(ApiKey.METADATA, 2)
        assert await client.reply() == (2, b"at once ")


# --- requests -------------------------------------------------------------------------------------


async def test_dripping_half_request_is_closed():
    async with Listening(Handlers(), request_ms_max=200) as it:
        client = await it.introduced()
        frame = request_frame(ApiKey.METADATA, 0, 2, "test", bytes(1000))

        async def drip():
            for byte in frame:
                client.writer.write(bytes([byte]))
                await asyncio.sleep(0.01)

        dripping = asyncio.ensure_future(drip())
        assert await client.closed() == b""
        dripping.cancel()
        assert it.stats.closed_for == {"half-request": 1}


async def test_request_received_during_stall_is_served():
    """A stop interrupts the wait for sockets, and timers come first then: a client that had sent
    half a request was closed, though nobody had listened."""
    loop = asyncio.get_running_loop()
    async with Listening(Handlers(), request_ms_max=400) as it:
        frame = request_frame(ApiKey.METADATA, 0, 2, "test", b"whole")
        with socket.create_connection(("127.0.0.1", it.server.port)) as client:
            client.setblocking(False)
            client.send(frame[:10])
            await until(lambda: any(each.activity.owing_s for each in it.server._open))
            client.send(frame[10:])
            it.server._sweeper.cancel()
            time.sleep(0.6)  # noqa: ASYNC251 - nothing of it runs
            it.server._sweep()
            reply = await asyncio.wait_for(loop.sock_recv(client, 1_000), WAIT_S)
            assert reply.endswith(b"at once whole")
        assert not it.stats.closed_for["half-request"]


@pytest.mark.parametrize("length", [65_537, BUDGETS.frame])
async def test_large_frame_without_request_is_refused(length):
    async with Listening(Handlers()) as it:
        client = await it.connect()
        client.writer.write(struct.pack(">ihhi", length, 9999, 0, 1))
        assert await client.closed() == b""
        assert it.stats.closed_for == {"frame-too-large": 1}


async def test_announced_length_takes_no_memory():
    async with Listening(Handlers()) as it:
        head = struct.pack(">ihhi", BUDGETS.frame, ApiKey.PRODUCE, 7, 1)
        for _ in range(100):
            (await it.connect()).writer.write(head + bytes(1000))
        await until(lambda: it.stats.bytes_in == 100 * (len(head) + 1000))
        assert it.memory.requests.used == 100 * 16 * 1024, "sixteen times what has come"
        await it.harness.still_serves()


async def test_received_bytes_are_bounded_and_small_requests_pass():
    async with Listening(Handlers(), starved_ms_max=NEVER) as it:
        frame = request_frame(ApiKey.PRODUCE, 7, 1, "test", bytes(3 * MIB))
        senders = [await it.connect() for _ in range(8)]
        for one in senders:
            one.writer.write(frame[:-1])
        await until(lambda: it.memory.requests.short)
        assert it.memory.requests.used <= BUDGETS.requests + len(frame), "one goes ahead"
        await it.harness.still_serves()


async def test_large_request_continues_once_memory_is_free():
    async with Listening(Handlers(), starved_ms_max=NEVER) as it:
        frame = request_frame(ApiKey.METADATA, 0, 5, "test", bytes(3 * MIB))
        first, second = await it.connect(), await it.connect()
        first.writer.write(frame[:-1])
        await until(lambda: it.memory.requests.used == len(frame) - 4)
        second.writer.write(frame)
        await until(lambda: it.memory.requests.short)
        first.writer.write(frame[-1:])
        assert len((await first.reply())[1]) > 3 * MIB
        assert len((await second.reply())[1]) > 3 * MIB


async def test_requests_holding_all_memory_proceed_in_turn():
    async with Listening(Handlers(), starved_ms_max=NEVER) as it:
        size = BUDGETS.requests * 3 // 4
        frame = request_frame(ApiKey.METADATA, 0, 5, "test", bytes(size))
        half = BUDGETS.requests // 2
        senders = [await it.connect(), await it.connect()]
        for one in senders:
            one.writer.write(frame[:half])
        await until(lambda: it.memory.requests.short)
        for one in senders:
            one.writer.write(frame[half:])
        for one in senders:
            assert len((await one.reply())[1]) > size
        assert it.memory.requests.used == 0


async def test_request_without_memory_is_closed_later():
    async with Listening(Handlers(), starved_ms_max=200) as it:
        frame = request_frame(ApiKey.PRODUCE, 7, 1, "test", bytes(3 * MIB))
        senders = [await it.connect() for _ in range(4)]
        for one in senders:
            one.writer.write(frame[:-1])
        await until(lambda: it.stats.closed_for["no-memory-for-request"] >= 1)
        await it.harness.still_serves()


async def test_parked_request_counts_while_handler_keeps_bytes():
    kept = []

    class Keeping(Handlers):
        def later(self, context):
            kept.append(context.body)
            return super().later(context)

    handlers = Keeping()
    async with Listening(handlers) as it:
        client = await it.connect()
        client.send(ApiKey.LIST_OFFSETS, 1, bytes(MIB))
        await handlers.until_seen(1)
        parsed = it.memory.requests.limit // 8
        assert MIB + parsed <= it.memory.requests.used <= MIB + parsed + 100
        kept.clear()
        handlers.parked[0].set_result(b"done")
        assert await client.reply() == (1, b"done")
        assert it.memory.requests.used == 0


async def test_parked_request_without_bytes_costs_its_objects():
    handlers = Handlers()
    async with Listening(handlers) as it:
        client = await it.connect()
        client.send(ApiKey.LIST_OFFSETS, 1, bytes(MIB))
        await handlers.until_seen(1)
        parsed = it.memory.requests.limit // 8
        await until(lambda: it.memory.requests.used == parsed)


# --- replies --------------------------------------------------------------------------------------


async def test_unread_replies_are_counted_then_closed():
    async with Listening(Handlers(), unread_ms_max=300) as it:
        client = await it.introduced()
        client.reader._transport.pause_reading()
        for correlation_id in range(8):
            client.send(ApiKey.METADATA, correlation_id, bytes(3 * MIB))
        await until(lambda: it.stats.closed_for["not-reading"] == 1)
        await until(lambda: it.memory.replies.used == 0)
        await it.harness.still_serves()


async def test_pipelined_replies_wait_for_the_reader():
    handlers = Handlers()
    async with Listening(handlers) as it:
        client = await it.introduced()
        client.reader._transport.pause_reading()
        for correlation_id in range(20):
            client.send(ApiKey.LIST_OFFSETS, correlation_id)
        await handlers.until_seen(21)
        for future in handlers.parked:
            future.set_result(bytes(3 * MIB))
        await until(lambda: it.memory.replies.used > 40 * MIB)
        (session,) = it.server._open.clients
        assert session._transport.get_write_buffer_size() < 4 * MIB
        client.reader._transport.resume_reading()
        for expected in range(20):
            assert (await client.reply())[0] == expected


async def test_replies_filling_memory_delay_others():
    async with Listening(Verbose()) as it:
        sleepers = [await it.introduced() for _ in range(8)]
        for one in sleepers:
            one.reader._transport.pause_reading()
            for correlation_id in range(10):
                one.send(ApiKey.DESCRIBE_CONFIGS, correlation_id)
        await until(lambda: it.memory.replies.short)
        assert it.memory.replies.used <= BUDGETS.replies + 3 * MIB + 100
        waiting = await it.connect()
        waiting.send(ApiKey.METADATA, 3, b"in turn")
        for one in sleepers:
            one.reset()
        assert await waiting.reply() == (3, b"at once in turn")


async def test_broker_s_replies_are_outside_the_budget():
    async with Listening(Brokerly()) as it:
        follower = await it.connect()
        follower.reader._transport.pause_reading()
        follower.send(ApiKey.LIST_OFFSETS, 1, bytes(3 * MIB))
        await until(lambda: it.stats.bytes_out > 3 * MIB)
        assert it.memory.replies.used == 0


# --- half-closed ----------------------------------------------------------------------------------


async def test_half_closed_client_gets_pending_answers():
    handlers = Handlers()
    async with Listening(handlers) as it:
        client = await it.connect()
        client.send(ApiKey.LIST_OFFSETS, 1)
        client.send(ApiKey.METADATA, 2)
        client.writer.write_eof()
        await handlers.until_seen(2)
        await until(lambda: next(iter(it.server._open.clients)).activity.half_closed_s is not None)
        handlers.parked[0].set_result(b"late")
        assert await client.reply() == (1, b"late")
        assert await client.reply() == (2, b"at once ")
        assert await client.closed() == b""


async def test_half_closed_client_does_not_wait_forever():
    async with Listening(Handlers(), half_closed_ms_max=100) as it:
        client = await it.connect()
        client.send(ApiKey.LIST_OFFSETS, 1)
        client.writer.write_eof()
        assert await client.closed() == b""
        assert it.stats.closed_for == {"half-closed": 1}


async def test_half_closed_idle_client_is_closed_at_once():
    async with Listening(Handlers()) as it:
        client = await it.introduced()
        client.writer.write_eof()
        assert await client.closed() == b""
        assert it.stats.closed_for == {}

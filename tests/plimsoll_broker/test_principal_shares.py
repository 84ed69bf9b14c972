"""What one principal may hold of a broker's pools, and that nobody else waits for it.

Principals are addresses here: the hostile one comes from 127.0.0.2."""

import asyncio
from types import SimpleNamespace

import pytest
import uvloop
from tests.plimsoll_broker.listening import WAIT_S, Client, Handlers
from tests.plimsoll_broker.metric_values import told
from tests.plimsoll_broker.tls_listening import until

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.group_measures import GroupStats
from plimsoll_broker.coordinator.internal_topics import InternalTopics
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.routes import group_handlers
from plimsoll_broker.server import client_memory
from plimsoll_broker.server.client_memory import MIB, Budgets, ClientMemory
from plimsoll_broker.server.connection_limits import ConnectionOrder, ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_core.groups.operations import FetchedOffset, OffsetsFetched
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

HOSTILE = "127.0.0.2"
BUDGETS = Budgets(replies=16 * MIB, requests=8 * MIB, frame=8 * MIB)
NEVER = 1_000_000


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


class AnyConnection:
    def __init__(self, holder):
        self.holder, self.is_broker = holder, holder == "broker"


class StoredOffsets:
    """Coordinators of groups that have committed 2 MiB each."""

    transactions = None

    def __init__(self, partitions=500):
        self.stats = GroupStats()
        self.topics = InternalTopics(self._never)
        rows = [FetchedOffset("t", index, 1, -1, "x" * 4096) for index in range(partitions)]
        self._answer = OffsetsFetched(tuple(rows))

    async def _never(self, *_):
        raise AssertionError("nothing is to be made")

    def ask(self, group_id, op):
        asker = Asker()
        asker.answer(self._answer)
        return asker


def offset_fetch(groups=1, partitions=500):
    topics = [{"name": "t", "partition_indexes": list(range(partitions))}]
    values = {
        "groups": [{"group_id": f"g{number}", "topics": topics} for number in range(groups)],
        "require_stable": False,
    }
    return encode_request(ApiKey.OFFSET_FETCH, 8, values)


class Broker:
    """A server of the groups' own handlers and of some that answer at once; its pool of replies
    remembers the most that it held."""

    def __init__(self, budgets=BUDGETS, partitions=500, **limits):
        self.memory = ClientMemory(budgets)
        self.handlers = Handlers()
        view = SimpleNamespace(image=None, aside=Aside())
        groups = group_handlers(view, StoredOffsets(partitions))
        table = self.handlers.table() | {
            ApiKey.OFFSET_FETCH: groups[ApiKey.OFFSET_FETCH],
            ApiKey.FETCH: self.handlers.later,
            ApiKey.PRODUCE: self.handlers.at_once,
        }
        limits = ListenerLimits(frame_bytes_max=budgets.frame, **limits)
        self.server = BrokerListener(Dispatch(table), limits, self.memory)
        self.stats = self.server.stats
        self._clients = []

    async def __aenter__(self):
        await self.server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        for client in self._clients:
            client.writer.transport.abort()
        await self.server.stop()

    async def connect(self, address="127.0.0.1"):
        opened = await asyncio.open_connection(
            "127.0.0.1", self.server.port, local_addr=(address, 0)
        )
        self._clients.append(client := Client(*opened))
        return client

    async def sleeper(self):
        """Reads nothing."""
        client = await self.connect(HOSTILE)
        client.reader._transport.pause_reading()
        return client

    async def answers(self, client, body=b"hello"):
        client.send(ApiKey.PRODUCE, 77, body)
        assert await client.reply() == (77, b"at once " + body)


# --- replies --------------------------------------------------------------------------------------


async def test_replies_are_admitted_before_they_are_made(monkeypatch):
    """60 pipelined OffsetFetches on connections that read nothing."""
    monkeypatch.setattr(client_memory, "ROOM_WAIT_S", NEVER, raising=False)
    async with Broker(unread_short_ms_max=NEVER, unread_ms_max=NEVER) as it:
        victim = await it.connect()
        sleepers = [await it.sleeper() for _ in range(8)]
        for one in sleepers:
            for number in range(60):
                one.send(ApiKey.OFFSET_FETCH, number, offset_fetch(), 8)
        await until(lambda: it.memory.replies.short)
        for _ in range(20):
            await it.answers(victim)
        assert it.memory.holdings.of(HOSTILE)["replies"] <= BUDGETS.replies // 2
        assert it.memory.replies.used <= BUDGETS.replies
        assert len(it.server._open) == 9, "nobody was closed for it"


async def test_connection_makes_one_long_reply_at_a_time():
    async with Broker(unread_ms_max=NEVER) as it:
        sleeper = await it.sleeper()
        for number in range(60):
            sleeper.send(ApiKey.OFFSET_FETCH, number, offset_fetch(), 8)
        await until(lambda: it.memory.replies.used > 0)
        await it.answers(await it.connect())
        assert it.memory.replies.used <= 5 * MIB, "one that is sent, and the next"


async def test_reply_beyond_a_principals_maximum_is_refused():
    async with Broker() as it:
        client = await it.connect(HOSTILE)
        client.send(ApiKey.OFFSET_FETCH, 1, offset_fetch(groups=6), 8)
        assert await client.closed() == b""
        assert it.stats.closed_for == {"reply-too-large": 1}
        assert it.memory.replies.used == 0


async def test_reader_is_judged_by_what_it_took_lately():
    """What the kernel's buffers took at first, megabytes, says nothing of a reader."""
    async with Broker(unread_short_ms_max=400, unread_ms_max=NEVER) as it:
        sleepers = [await it.sleeper() for _ in range(8)]
        for one in sleepers:
            for number in range(60):
                one.send(ApiKey.OFFSET_FETCH, number, offset_fetch(), 8)
        await until(lambda: it.stats.closed_for["not-reading"] >= 1)
        await it.answers(await it.connect())


async def test_small_reader_is_not_closed_for_another():
    async with Broker(unread_short_ms_max=100, unread_ms_max=NEVER) as it:
        slow = await it.connect()
        slow.reader._transport.pause_reading()
        for number in range(10):
            slow.send(ApiKey.OFFSET_FETCH, number, offset_fetch(), 8)
        await until(lambda: it.memory.holdings.of("127.0.0.1")["replies"] > 0)
        sleepers = [await it.sleeper() for _ in range(8)]
        for one in sleepers:
            for number in range(60):
                one.send(ApiKey.OFFSET_FETCH, number, offset_fetch(), 8)
        await until(lambda: it.stats.closed_for["not-reading"] >= 1)
        assert it.memory.holdings.of("127.0.0.1")["replies"] > 0
        slow.reader._transport.resume_reading()
        async with asyncio.timeout(WAIT_S):
            for number in range(10):
                assert (await slow.reply())[0] == number


# --- requests -------------------------------------------------------------------------------------


def frame_of(key, size, number=5):
    return request_frame(key, SUPPORTED[key].first, number, "test", bytes(size))


async def half_a_request(it, size, *, sent, address=HOSTILE):
    client = await it.connect(address)
    client.writer.write(frame_of(ApiKey.PRODUCE, size)[:sent])
    return client


async def test_half_requests_of_one_leave_room_for_others():
    """Two unfinished requests as large as they may be, and one large one of somebody else."""
    async with Broker(starved_ms_max=NEVER, request_ms_max=NEVER, request_short_ms_max=NEVER) as it:
        for _ in range(3):
            await half_a_request(it, 7 * MIB, sent=6 * MIB)
        await until(lambda: it.memory.requests.short)
        victim = await it.connect()
        for _ in range(20):
            await it.answers(victim, bytes(MIB))
        assert it.memory.holdings.of(HOSTILE)["requests"] <= BUDGETS.requests // 2
        assert it.memory.requests.used <= BUDGETS.requests // 2 + BUDGETS.frame


async def test_request_is_judged_by_what_came_lately():
    """Three megabytes that came at once are credit for three minutes, by the average."""
    async with Broker(request_ms_max=400) as it:
        hostile = await half_a_request(it, 4 * MIB, sent=3 * MIB)
        assert await hostile.closed() == b""
        assert it.stats.closed_for == {"half-request": 1}
        assert it.memory.requests.used == 0


async def test_slow_request_goes_first_when_principal_starves():
    async with Broker(starved_ms_max=NEVER, request_short_ms_max=300) as it:
        slow = [await half_a_request(it, 7 * MIB, sent=3 * MIB) for _ in range(2)]
        await until(lambda: it.memory.requests.short)
        quick = await it.connect(HOSTILE)
        await it.answers(quick, bytes(3 * MIB))
        assert it.stats.closed_for["half-request"] >= 1
        assert len(slow) == 2


async def test_parked_fetches_of_one_leave_room_for_others():
    """Each is 17 times as large while it waits as it was when it came."""
    async with Broker(starved_ms_max=NEVER, request_ms_max=NEVER) as it:
        for _ in range(12):
            hostile = await it.connect(HOSTILE)
            hostile.writer.write(frame_of(ApiKey.FETCH, 100_000))
        await until(lambda: it.memory.requests.short)
        victim = await it.connect()
        await it.answers(victim, bytes(MIB))
        victim.writer.write(frame_of(ApiKey.FETCH, 1_000, number=9))
        await it.handlers.until_seen(len(it.handlers.parked) + 1)
        assert it.memory.holdings.of(HOSTILE)["requests"] <= BUDGETS.requests // 2

        def answered():
            while it.handlers.parked:
                it.handlers.parked.pop().set_result(b"later")
            return len(it.handlers.seen) == 14

        await until(answered)


async def test_frame_beyond_a_share_goes_ahead_alone():
    async with Broker(starved_ms_max=NEVER) as it:
        clients = [await it.connect(f"127.0.0.{number}") for number in (2, 2, 3)]
        body = bytes(6 * MIB)
        await asyncio.gather(*(it.answers(client, body) for client in clients))
        await until(lambda: it.memory.requests.used == 0)
        assert not it.memory.requests.short


# --- connections ----------------------------------------------------------------------------------


async def test_full_listener_evicts_from_largest_principal():
    async with Broker(connections_max=16) as it:
        victim = await it.connect()
        await it.answers(victim)
        hostile = [await it.connect(HOSTILE) for _ in range(14)]
        for one in hostile:
            await it.answers(one)
        for _ in range(4):
            await it.answers(await it.connect(HOSTILE))
        await it.answers(victim, b"the oldest request of all")
        newcomer = await it.connect("127.0.0.3")
        for _ in range(2):
            await it.answers(await it.connect(HOSTILE))
        await it.answers(newcomer)
        assert it.stats.closed_for == {"made-room": 6}


async def test_strangers_of_one_address_are_evicted_first():
    async with Broker(connections_max=16) as it:
        newcomer = await it.connect()
        for _ in range(30):
            await it.connect(HOSTILE)
        await it.answers(newcomer)
        await until(lambda: it.stats.closed_for["made-room"] == 15)


def test_administrators_and_brokers_make_room_last():
    order = ConnectionOrder(8)
    names = ["User:admin"] * 4 + ["User:a"] * 3 + ["broker"]
    for one in map(AnyConnection, names):
        order.opened(one)
        order.requested(one)
    closed = []
    while (one := order.makes_room({"User:admin"})) is not None:
        order.closed(one)
        closed.append(one.holder)
    assert closed == ["User:a"] * 3 + ["User:admin"] * 4
    assert (len(order), order.shares.used) == (1, 0)


def test_client_that_becomes_a_broker_makes_no_room():
    order = ConnectionOrder(8)
    one = AnyConnection("User:a")
    order.opened(one)
    order.requested(one)
    one.is_broker = True
    order.requested(one)
    assert order.makes_room() is None
    assert (len(order), order.shares.used) == (1, 0)


# --- what is told ---------------------------------------------------------------------------------


async def test_pool_metrics_name_no_principal():
    async with Broker(unread_ms_max=NEVER) as it:
        sleeper = await it.sleeper()
        for number in range(60):
            sleeper.send(ApiKey.OFFSET_FETCH, number, offset_fetch(), 8)
        await until(lambda: it.memory.replies.used > 0)
        values = told(listeners={"clients": it.server})
        assert values["principal_pool_limitreplies"] == BUDGETS.replies
        assert values["principal_pool_largestreplies"] == values["principal_pool_heldreplies"] > 0
        assert values["principal_pool_principalsreplies"] == 1
        assert 0 < values["principal_pool_sharereplies"] < BUDGETS.replies // 2
        assert not any(HOSTILE in name for name in values)

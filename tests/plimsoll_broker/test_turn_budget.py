"""Requests that come at one instant on very many connections are served in several turns."""

import asyncio
import socket
import time
from types import SimpleNamespace

import pytest
import uvloop
from tests.plimsoll_broker.listening import WAIT_S, Client, Handlers

from plimsoll_broker import background
from plimsoll_broker.handlers.long_work import in_turns
from plimsoll_broker.server import turn_budget
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame

CONNECTIONS = 300
A_REQUEST_S = 0.001
A_TURN = round(turn_budget.BUDGET_S / A_REQUEST_S)
SLICES = 5


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


class Busy(Handlers):
    """Each request takes a millisecond, by a clock that only requests move, and by the loop's."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.now_s = 0.0
        monkeypatch.setattr(turn_budget, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def note(self, context):
        self.now_s += A_REQUEST_S
        time.sleep(A_REQUEST_S)
        super().note(context)

    async def coroutine(self, context):
        """A long request: `SLICES` slices, each of which is noted."""
        async for item in in_turns(range(SLICES * background.AT_ONCE)):
            if item % background.AT_ONCE == 0:
                self.note(context)
        return b"long"


class Turns:
    """Ends of turns: how many requests had been served by then."""

    def __init__(self, handlers):
        self.handlers = handlers
        self.served = [0]
        self.loop = asyncio.get_running_loop()
        self.loop.call_later(0, self.mark)

    def mark(self):
        """A timer: it runs once a turn, as heartbeats do."""
        self.served.append(len(self.handlers.seen))
        self.loop.call_later(0, self.mark)

    @property
    def most(self):
        return max(b - a for a, b in zip(self.served, self.served[1:], strict=False))


@pytest.fixture
async def server(monkeypatch):
    handlers = Busy(monkeypatch)
    made = BrokerListener(
        Dispatch(handlers.table()), ListenerLimits(connections_max=2 * CONNECTIONS)
    )
    await made.start("127.0.0.1", 0)
    yield made, handlers
    await made.stop()


async def connected(port, count, address="127.0.0.1"):
    loop = asyncio.get_running_loop()
    found = []
    for _ in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        sock.bind((address, 0))
        await loop.sock_connect(sock, ("127.0.0.1", port))
        found.append(sock)
    return found


async def test_simultaneous_requests_are_spread_over_turns(server):
    listener, handlers = server
    sockets = await connected(listener.port, CONNECTIONS)
    try:
        await served_in_turns(listener, handlers, sockets)
    finally:
        for sock in sockets:
            sock.close()


async def served_in_turns(listener, handlers, sockets):
    async with asyncio.timeout(WAIT_S):
        while listener.connections < CONNECTIONS:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    turns = Turns(handlers)
    for number, sock in enumerate(sockets):
        sock.send(request_frame(ApiKey.METADATA, 0, number, "test", b""))
    await handlers.until_seen(CONNECTIONS)
    # One budget where those that waited go on, and one for what has come meanwhile; and those that
    # waited may go on behind one mark and, a turn later, before the next.
    assert turns.most <= 3 * A_TURN + 2
    assert sorted(handlers.seen) == list(range(CONNECTIONS))
    loop = asyncio.get_running_loop()
    for number, sock in enumerate(sockets):
        reply = await loop.sock_recv(sock, 100)
        assert reply[4:8] == number.to_bytes(4)


async def test_pipelined_requests_share_turns_with_others(server):
    listener, handlers = server
    first = Client(*await asyncio.open_connection("127.0.0.1", listener.port))
    second = Client(*await asyncio.open_connection("127.0.0.1", listener.port))
    for number in range(60):
        first.send(ApiKey.METADATA, number)
    second.send(ApiKey.METADATA, 1_000)
    assert [(await first.reply())[0] for _ in range(60)] == list(range(60))
    assert (await second.reply())[0] == 1_000
    assert handlers.seen.index(1_000) < 60
    assert [n for n in handlers.seen if n < 1_000] == list(range(60))
    for client in (first, second):
        client.writer.close()


async def test_principal_waits_for_one_request_of_each_other(server):
    listener, handlers = server
    hostile = await connected(listener.port, CONNECTIONS, address="127.0.0.2")
    (other,) = await connected(listener.port, 1)
    async with asyncio.timeout(WAIT_S):
        while listener.connections <= CONNECTIONS:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    note = handlers.note

    def answer(context):
        note(context)
        if len(handlers.seen) == A_TURN:  # the others wait by now
            other.send(request_frame(ApiKey.METADATA, 0, 1_000, "test", b""))

    handlers.note = answer
    for number, sock in enumerate(hostile):
        sock.send(request_frame(ApiKey.METADATA, 0, number, "test", b""))
    await handlers.until_seen(CONNECTIONS + 1)
    # It is read in one of the next turns, and served in the one after that.
    assert handlers.seen.index(1_000) <= 5 * A_TURN
    for sock in (*hostile, other):
        sock.close()


async def test_long_requests_share_turns_with_other_principals(server, monkeypatch):
    monkeypatch.setattr(background, "SLICE_S", WAIT_S)  # slices end by their number of items
    listener, handlers = server
    hostile = await connected(listener.port, CONNECTIONS, address="127.0.0.2")
    (other,) = await connected(listener.port, 1)
    async with asyncio.timeout(WAIT_S):
        while listener.connections <= CONNECTIONS:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    note, asked_at = handlers.note, []

    def ask(context):
        note(context)
        if len(handlers.seen) % CONNECTIONS == 10:  # one slice of each would follow
            asked_at.append(len(handlers.seen))
            other.send(request_frame(ApiKey.METADATA, 0, 1_000, "test", b""))

    handlers.note = ask
    for number, sock in enumerate(hostile):
        sock.send(request_frame(ApiKey.CREATE_TOPICS, 2, number, "test", b""))
    await handlers.until_seen(CONNECTIONS * SLICES)
    loop = asyncio.get_running_loop()
    for sock in hostile:
        async with asyncio.timeout(WAIT_S):
            assert (await loop.sock_recv(sock, 100))[8:] == b"long"
    served_at = [index for index, number in enumerate(handlers.seen) if number == 1_000]
    assert len(served_at) == len(asked_at) > 1
    # Slices of the turn in which it arrives, and one a turn until it is read and served.
    waited = [served - asked for asked, served in zip(asked_at, served_at, strict=True)]
    assert max(waited) <= 2 * A_TURN
    for sock in (*hostile, other):
        sock.close()


async def test_cancelled_long_request_leaves_its_turn():
    slices, order = turn_budget.SliceTurns(), []

    async def asks(name, principal):
        await slices.wait(name, principal)
        order.append(name)

    names = (("gone", "mallory"), ("first", "mallory"), ("second", "mallory"), ("other", "alice"))
    gone, *tasks = [asyncio.ensure_future(asks(*each)) for each in names]
    await asyncio.sleep(0)
    assert slices.is_crowded("first")
    gone.cancel()
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*tasks)
    assert order == ["other", "first", "second"]
    assert not slices.is_crowded("first")


async def test_slices_rest_where_processors_are_short(monkeypatch):
    slices, rests = turn_budget.SliceTurns(), []
    loop = asyncio.get_running_loop()

    def rest(delay_s, *call):
        rests.append(delay_s)
        loop.call_soon(*call)

    # Before the first slice and after it; then when one is resumed and after it.
    waits = iter([700, 700, 700, 702, 702, 802, 802, 802, 802])
    slices.thread_waited_ms = lambda: next(waits)
    with monkeypatch.context() as patch:
        patch.setattr(turn_budget.asyncio, "get_running_loop", lambda: Resting(loop, rest))
        for _ in range(4):
            await slices.wait("connection", "mallory")
    assert rests == [turn_budget.RESTS * 0.002, turn_budget.REST_S_MAX]


class Resting:
    """An event loop with `rest` in place of its timers."""

    def __init__(self, loop, rest):
        self.create_future, self.call_soon, self.call_later = (
            loop.create_future,
            loop.call_soon,
            rest,
        )


async def test_half_closing_client_is_answered(server):
    listener, _ = server
    sockets = await connected(listener.port, 100)
    for number, sock in enumerate(sockets):
        sock.send(request_frame(ApiKey.METADATA, 0, number, "test", b""))
        sock.shutdown(socket.SHUT_WR)
    loop = asyncio.get_running_loop()
    for number, sock in enumerate(sockets):
        async with asyncio.timeout(WAIT_S):
            reply = await loop.sock_recv(sock, 100)
        assert reply[4:8] == number.to_bytes(4)
        sock.close()


async def test_requests_of_lost_connections_are_not_served(server):
    listener, handlers = server
    sockets = await connected(listener.port, 100)
    note = handlers.note

    def lose_the_others(context):
        note(context)
        if len(handlers.seen) == 3 * A_TURN:
            for session in list(listener._open):
                session.close("test")

    handlers.note = lose_the_others
    for number, sock in enumerate(sockets):
        sock.send(request_frame(ApiKey.METADATA, 0, number, "test", b""))
    for sock in sockets:
        async with asyncio.timeout(WAIT_S):
            await asyncio.get_running_loop().sock_recv(sock, 100)
        sock.close()
    client = Client(*await asyncio.open_connection("127.0.0.1", listener.port))
    client.send(ApiKey.METADATA, 1_000)
    assert (await client.reply())[0] == 1_000
    client.writer.close()
    assert len(handlers.seen) == 3 * A_TURN + 1
    assert not listener._owner.turns._waiting


class Tasks(Handlers):
    """Each request is served by a task of one step."""

    async def coroutine(self, context):
        self.note(context)
        return b"later"


async def test_first_steps_of_tasks_are_spread_over_turns():
    """Those of all requests of one turn ran in the next one."""
    handlers = Tasks()
    limits = ListenerLimits(connections_max=2 * CONNECTIONS)
    listener = BrokerListener(Dispatch(handlers.table()), limits)
    await listener.start("127.0.0.1", 0)
    sockets = await connected(listener.port, CONNECTIONS)
    async with asyncio.timeout(WAIT_S):
        while listener.connections < CONNECTIONS:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    turns = Turns(handlers)
    for number, sock in enumerate(sockets):
        sock.send(request_frame(ApiKey.CREATE_TOPICS, 2, number, "test", b""))
    await handlers.until_seen(CONNECTIONS)
    assert turns.most <= 3 * turn_budget.TASKS_AT_ONCE
    for sock in sockets:
        sock.close()
    await listener.stop()

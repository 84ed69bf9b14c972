"""Room for a reply is taken before it is made, of every API, and no less than it comes to."""

import asyncio
from collections.abc import Awaitable
from uuid import UUID

import msgspec
import pytest
from tests.plimsoll_broker.described import ORDERS, Harness, a_partition, an_image
from tests.plimsoll_broker.test_long_requests import NAMES, many, refused

from plimsoll_broker.handlers.reply_bounds import (
    BOUNDS,
    FREE_BYTES,
    HEAD,
    RequestLength,
    ToBeTold,
    bounded,
)
from plimsoll_broker.server import client_memory
from plimsoll_broker.server.client_memory import MIB, Budgets, ClientMemory, MemoryAccount
from plimsoll_broker.server.connection_state import CloseConnection, ConnectionState
from plimsoll_broker.server.dispatch import Handler, Reply, RequestContext
from plimsoll_broker.server.requests_and_replies import LONG_REPLIES, Granted
from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.messages import encode_request

TOPICS = [f"{number:04}".ljust(249, "x") for number in range(500)]
LONG = [name.ljust(249, "x") for name in NAMES]


def a_large_image() -> ClusterImage:
    """500 topics with the longest names, of three partitions each."""
    image = an_image()
    topics, names, partitions = image.topics, image.topic_ids, image.partitions
    for number, name in enumerate(TOPICS):
        one = msgspec.structs.replace(topics[ORDERS], id=UUID(int=1_000 + number), name=name)
        topics, names = topics.set(one.id, one), names.set(name, one.id)
        for index in range(3):
            partitions = partitions.set(PartitionKey(one.id, index), a_partition(one.id, index, 0))
    return msgspec.structs.replace(image, topics=topics, topic_ids=names, partitions=partitions)


THERE = ToBeTold(a_large_image(), 1_500)


def test_every_api_has_a_bound_or_a_reason() -> None:
    assert set(BOUNDS) == set(ApiKey)
    for key, bound in BOUNDS.items():
        if isinstance(bound, str):
            assert bound
        elif bound(RequestLength(0), THERE) > FREE_BYTES:
            assert int(key) in LONG_REPLIES, "a connection makes one of these at a time"


def test_api_without_a_bound_is_not_served() -> None:
    with pytest.raises(KeyError):
        bounded({99: lambda _: b""}, lambda: THERE)  # type: ignore[dict-item]


@pytest.mark.parametrize("key", many([]))
@pytest.mark.parametrize("names", [[], TOPICS[:1], TOPICS, LONG], ids=("all", "one", "500", "none"))
async def test_reply_is_within_its_bound(key: ApiKey, names: list[str]) -> None:
    harness = Harness(THERE.image)
    harness.answer = refused
    values = many(names)[key]
    if not names and key in (ApiKey.METADATA, ApiKey.LIST_PARTITION_REASSIGNMENTS):
        values = {**values, "topics": None}
    version = SUPPORTED[key].last
    for documented in (False, True):
        if key is ApiKey.DESCRIBE_CONFIGS:
            values |= {"include_documentation": documented, "include_synonyms": documented}
        body = bytearray(encode_request(key, version, values))
        context = RequestContext(key, version, 1, memoryview(body))
        reply = harness.handlers[key](context)
        made = await reply if isinstance(reply, Awaitable) else reply
        bound = BOUNDS[key]
        assert not isinstance(bound, str)
        assert isinstance(made, bytes)
        assert len(made) <= HEAD + bound(RequestLength(len(body)), THERE)


# --- one request ----------------------------------------------------------------------------------


class Client:
    """A connection to a broker whose pool of replies has 8 MiB."""

    def __init__(self, memory: ClientMemory, holder: str, handler: Handler) -> None:
        self.memory = memory
        account = MemoryAccount(memory.replies, MIB, holder)
        self.state = ConnectionState(account)
        self.begun = 0
        table: dict[ApiKey, Handler] = {ApiKey.METADATA: self._noted(handler)}
        self.handler = bounded(table, lambda: THERE)[ApiKey.METADATA]

    def _noted(self, handler: Handler) -> Handler:
        def handle(context: RequestContext) -> object:
            self.begun += 1
            return handler(context)

        return handle  # type: ignore[return-value]

    def ask(self) -> Reply | Awaitable[Reply | None] | None:
        body = memoryview(bytearray(10))
        return self.handler(RequestContext(ApiKey.METADATA, 12, 1, body, self.state))

    async def answered(self) -> object:
        reply = self.ask()
        return await reply if isinstance(reply, Awaitable) else reply

    @property
    def held(self) -> int:
        return self.memory.replies.shares.held(self.state.account.principal)


@pytest.fixture
def memory() -> ClientMemory:
    return ClientMemory(Budgets(replies=8 * MIB, requests=MIB, frame=MIB))


BOUND = HEAD + BOUNDS[ApiKey.METADATA](RequestLength(10), THERE)  # type: ignore[operator]


async def test_room_is_taken_before_a_reply_is_made(memory: ClientMemory) -> None:
    def handler(_: RequestContext) -> bytes:
        assert client.held == BOUND
        return bytes(100_000)

    client = Client(memory, "hostile", handler)
    reply = client.ask()
    assert isinstance(reply, Granted), "it takes its room with it"
    assert client.held == reply.granted == 100_000


async def test_room_is_held_while_reply_is_made(memory: ClientMemory) -> None:
    made: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    client = Client(memory, "hostile", lambda _: made)
    reply = client.ask()
    assert isinstance(reply, asyncio.Future)
    assert client.held == BOUND
    made.set_result(bytes(10))
    assert await reply == [bytes(10)]
    assert client.held == 10


async def test_reply_waits_for_room_and_nobody_else_does(memory: ClientMemory) -> None:
    hostile = Client(memory, "hostile", lambda _: bytes(10))
    before = memory.replies.limit // 2
    assert hostile.state.account.admit_now(before) == before
    waits = hostile.ask()
    assert isinstance(waits, Awaitable)
    waiting = asyncio.ensure_future(waits)
    victim = Client(memory, "victim", lambda _: bytes(10))
    assert victim.ask() == [bytes(10)]
    assert not hostile.begun
    hostile.state.account.give_back(before)
    assert await waiting == [bytes(10)]


async def test_reply_without_room_in_time_is_not_made(
    memory: ClientMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_memory, "ROOM_WAIT_S", 0)
    hostile = Client(memory, "hostile", lambda _: bytes(10))
    assert hostile.state.account.admit_now(memory.replies.limit // 2)
    reply = hostile.ask()
    assert isinstance(reply, Awaitable)
    with pytest.raises(CloseConnection, match="no-memory-for-reply"):
        await reply
    assert not hostile.begun


async def test_room_is_returned_without_a_reply(memory: ClientMemory) -> None:
    def broken(_: RequestContext) -> bytes:
        raise CloseConnection("not-today")

    async def breaks_later(_: RequestContext) -> bytes:
        raise CloseConnection("not-today")

    for handler in (broken, breaks_later):
        client = Client(memory, "hostile", handler)
        with pytest.raises(CloseConnection):
            await client.answered()
        assert client.held == 0

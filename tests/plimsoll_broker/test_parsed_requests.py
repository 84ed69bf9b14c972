"""Parsed requests, and what is gathered to answer them, are admitted before they are made: of every
API, with as many items as a request may have."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from tests.plimsoll_broker.described import Harness, an_image
from tests.plimsoll_broker.listening import Client, Handlers
from tests.plimsoll_broker.tls_listening import until
from tests.plimsoll_wire.many_items import OWN_DECODERS, Path, request_of, requests

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.coordinator.group_measures import GroupStats
from plimsoll_broker.handlers.delete_records import DeleteRecordsHandler
from plimsoll_broker.handlers.describe_log_dirs import describe_log_dirs
from plimsoll_broker.handlers.groups.group_api import ASKED_AT_ONCE
from plimsoll_broker.handlers.list_offsets import ListOffsetsHandler, OffsetForLeaderEpochHandler
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.producers import describe_producers
from plimsoll_broker.handlers.reply_bounds import ToBeTold, bounded
from plimsoll_broker.handlers.routes import group_handlers, transaction_handlers
from plimsoll_broker.server.client_memory import (
    MIB,
    Budgets,
    ClientMemory,
    Intake,
    MemoryAccount,
    RequestAccount,
)
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_broker.server.dispatch import Dispatch, Handler, RequestContext
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_broker.server.requests_and_replies import (
    PARSED_BYTES_MAX,
    PARSED_PER_BYTE_MAX,
    Granted,
    ReplySlot,
    RequestReceiver,
    parsed_most,
)
from plimsoll_core.cluster.listener_peers import Port
from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.groups.operations import (
    FetchedOffset,
    FetchOffsets,
    GroupsListed,
    ListedGroup,
    OffsetsFetched,
)
from plimsoll_core.messages.requests import Refused
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_wire import fetch, produce
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.decoding import ITEM_BYTES
from plimsoll_wire.headers import parse_request_header, request_frame
from plimsoll_wire.messages import encode_request

ITEMS = 2_000
FACTOR = 1.25
SLACK = 256 * 1024
"""What does not grow with the items: tasks, caches."""
LOGINS = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS}


class PeakPool(FairPool):
    __slots__ = ("peak",)

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.peak = 0

    def take(self, principal: str, size: int) -> None:
        super().take(principal, size)
        self.peak = max(self.peak, self.used)


class NoGroups:
    """Coordinators that have no group."""

    groups = members = 0
    transactions: Any = None

    def __init__(self) -> None:
        self.stats, self.topics = GroupStats(), SimpleNamespace(want=lambda _: None)

    def may_transact(self, group_id: str, producer: Any) -> bool:
        return True

    def ask(self, group_id: str, op: Any) -> Asker:
        asker = Asker()
        if isinstance(op, FetchOffsets):
            asker.answer(OffsetsFetched(tuple(FetchedOffset(*each) for each in op.partitions)))
        else:
            asker.answer(RefusedAsWhole(Code.GROUP_ID_NOT_FOUND))
        return asker

    def list_groups(self, op: Any) -> list[Asker]:
        return []


class NoTransactions:
    """Coordinators that have no transactional id."""

    def __init__(self) -> None:
        self.manager = SimpleNamespace(image=an_image())

    def ask(self, transactional_id: str, op: Any) -> Asker:
        asker = Asker()
        asker.answer(RefusedAsWhole(Code.NOT_COORDINATOR))
        return asker

    def shards(self) -> list[Any]:
        return []


def no_partitions() -> Any:
    """A replica manager that hosts nothing."""
    return SimpleNamespace(
        by_name=lambda *_: None,
        topic_id=lambda _: None,
        missing=lambda *_: Code.UNKNOWN_TOPIC_OR_PARTITION,
        hosts=list,
        now_ms=lambda: 0,
        store=SimpleNamespace(directory="/", disk=SimpleNamespace(room=lambda _: (0, 0))),
    )


def handlers() -> Mapping[ApiKey, Handler]:
    admin = Harness(an_image())
    admin.answer = lambda _: Refused(reason="", code=Code.INVALID_REQUEST, message="no")
    aside, manager = Aside(), no_partitions()
    view: Any = SimpleNamespace(image=an_image(), aside=aside)
    coordinators: Any = NoGroups()
    transactions: Any = NoTransactions()
    in_transactions: Any = NoGroups()
    in_transactions.transactions = transactions
    table = {
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(manager, Port.CLIENTS, aside),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(manager, aside),
        ApiKey.DELETE_RECORDS: DeleteRecordsHandler(manager, aside),
        ApiKey.DESCRIBE_PRODUCERS: describe_producers(manager, aside),
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs(manager, aside),
        **admin.handlers,
        **group_handlers(view, in_transactions),
        **group_handlers(view, coordinators),
        **transaction_handlers(transactions, aside),
    }
    return bounded(table, lambda: ToBeTold(an_image(), 0))


OF_BROKERS = {ApiKey.WRITE_TXN_MARKERS}
"""Served on the replication port alone, where requests are bounded by its limits."""
OLDER = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}
"""The last version of clients, where brokers have another form."""


def newest() -> list[tuple[ApiKey, int, Path]]:
    return [
        (key, version, path)
        for key, version, path in requests()
        if version in (SUPPORTED[key].last, OLDER.get(key)) and key not in LOGINS | OF_BROKERS
    ]


@pytest.mark.parametrize(("key", "version", "path"), newest())
async def test_request_holds_no_more_than_was_admitted(
    key: ApiKey, version: int, path: Path
) -> None:
    memory = ClientMemory(Budgets(replies=256 * MIB, requests=256 * MIB, frame=MIB))
    memory.replies.shares = peak = PeakPool(256 * MIB)
    connection = ConnectionState(MemoryAccount(memory.replies, MIB, "User:mallory"))
    connection.client = "127.0.0.1:9"
    handler = handlers()[key]

    async def asked(count: int) -> RequestContext:
        body = bytearray(request_of(key, version, path, count))
        context = RequestContext(key, version, 1, memoryview(body), connection)
        reply = handler(context)
        if isinstance(reply, Awaitable):
            reply = await reply
        assert reply is not None
        return context

    await asked(1)  # compiles codecs
    size = len(request_of(key, version, path, ITEMS))
    tracemalloc.start(1)
    try:
        before = tracemalloc.get_traced_memory()[0]
        context = await asked(ITEMS)
        held = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    frame = bytearray(4 + size)
    frame[:4] = int(key).to_bytes(2, "big") + version.to_bytes(2, "big")
    parsed = parsed_most(frame) if context.parsed is None else context.parsed
    admitted = size + parsed + peak.peak
    assert held <= admitted * FACTOR + SLACK


def produce_of(count: int) -> Any:
    rows = [{"index": number, "records": None} for number in range(1_000, 1_000 + count)]
    topics = [{"name": "t", "partition_data": rows}]
    values = {"transactional_id": None, "acks": -1, "timeout": 1_000, "topic_data": topics}
    return produce.decode_request, 9, encode_request(ApiKey.PRODUCE, 9, values)


def fetch_of(count: int) -> Any:
    row = {"current_leader_epoch": 0, "fetch_offset": 5_000, "last_fetched_epoch": -1}
    row |= {"log_start_offset": -1, "partition_max_bytes": 5_000}
    rows = [{"partition": number, **row} for number in range(1_000, 1_000 + count)]
    topics = [{"topic": "t", "partitions": rows}]
    values = {"replica_id": -1, "max_wait": 500, "min_bytes": 1, "max_bytes": 5_000}
    values |= {"isolation_level": 0, "session_id": 0, "session_epoch": -1, "topics": topics}
    values |= {"forgotten_topics_data": [], "rack_id": ""}
    return fetch.decode_request, 12, encode_request(ApiKey.FETCH, 12, values)


@pytest.mark.parametrize(
    ("key", "of"),
    [(ApiKey.PRODUCE, produce_of), (ApiKey.FETCH, fetch_of)],
    ids=("Produce", "Fetch"),
)
def test_own_decoders_make_no_more_than_is_counted(key: ApiKey, of: Any) -> None:
    decode, version, body = of(ITEMS)
    view = memoryview(body)
    tracemalloc.start(1)
    try:
        before = tracemalloc.get_traced_memory()[0]
        request = decode(view, version)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(request.topics[0].partitions) == ITEMS
    frame = bytearray(key.to_bytes(2, "big") + version.to_bytes(2, "big") + body)
    assert held <= parsed_most(frame)


@pytest.mark.slow
def test_no_request_is_counted_for_more_than_most() -> None:
    for key, versions in SUPPORTED.items():
        for version in range(versions.first, versions.last + 1):
            for size in (4, 10_000, 100_000):
                frame = bytearray(key.to_bytes(2, "big") + version.to_bytes(2, "big"))
                frame += bytes(size - 4)
                assert parsed_most(frame) <= min(size * PARSED_PER_BYTE_MAX, PARSED_BYTES_MAX)


def test_every_api_is_tried() -> None:
    tried = {key for key, *_ in newest()}
    assert {key for key, *_ in requests()} <= tried | LOGINS | OF_BROKERS
    without = {ApiKey.INIT_PRODUCER_ID, *LOGINS, *OF_BROKERS, *OWN_DECODERS}
    assert set(handlers()) | without == set(SUPPORTED)


# --- many connections -----------------------------------------------------------------------------


NAMES = [f"{number:05}" for number in range(19_000)]
HOSTILE = 40


async def test_requests_that_wait_parsed_leave_room_for_others() -> None:
    memory = ClientMemory(Budgets(replies=16 * MIB, requests=16 * MIB, frame=4 * MIB))
    handling = Handlers()
    table = {ApiKey.DESCRIBE_GROUPS: handling.later, ApiKey.METADATA: handling.at_once}
    server = BrokerListener(Dispatch(table), ListenerLimits(frame_bytes_max=4 * MIB), memory)
    await server.start("127.0.0.1", 0)
    named = {"groups": NAMES, "include_authorized_operations": False}
    body = encode_request(ApiKey.DESCRIBE_GROUPS, 5, named)
    clients = []

    async def client(address: str) -> Client:
        opened = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0))
        clients.append(Client(*opened))
        return clients[-1]

    try:
        hostile = [await client("127.0.0.2") for _ in range(HOSTILE)]
        for number, one in enumerate(hostile):
            one.send(ApiKey.DESCRIBE_GROUPS, number, body, 5)
        await until(lambda: memory.requests.short)
        victim = await client("127.0.0.1")
        victim.send(ApiKey.METADATA, 77, b"hello")
        assert await victim.reply() == (77, b"at once hello")
        begun = len(handling.parked)
        assert begun * 2 * MIB <= 8 * MIB, "no more than half of the pool is one principal's"
        answered = 0
        while answered < HOSTILE:  # all are served, one after another
            await handling.until_seen(answered + 2)  # with the victim's
            handling.parked[answered].set_result(b"")
            answered += 1
        for one in hostile:
            await one.reply()
        assert memory.requests.used == 0
    finally:
        for one in clients:
            one.writer.transport.abort()
        await server.stop()


async def test_parsed_request_is_counted_for_what_it_takes() -> None:
    intake = Intake(64 * MIB, lambda: None)
    account = RequestAccount(intake, "User:mallory")
    receiver = RequestReceiver(ListenerLimits(), lambda *_: True, account)
    values = {"groups": NAMES[:1_000], "include_authorized_operations": False}
    whole = request_frame(
        ApiKey.DESCRIBE_GROUPS, 5, 1, "c", encode_request(ApiKey.DESCRIBE_GROUPS, 5, values)
    )
    receiver.receive(whole)
    received = receiver.next_request(NeverWoken())
    assert received is not None
    frame, charged = received
    header = parse_request_header(frame)
    slot = ReplySlot(header, 0)
    body = memoryview(frame)[header.body_at :]
    context = RequestContext(ApiKey.DESCRIBE_GROUPS, 5, 1, body)
    receiver.keeps(slot, frame, charged, context)
    assert account.held == len(frame) + parsed_most(frame), "the most, before it is parsed"
    context.decoded()
    context.settled()
    assert account.held == len(frame) + 1_000 * ITEM_BYTES
    receiver.let_go(slot)
    context.settled()
    assert intake.used == 0


class NeverWoken:
    def wake(self) -> None:
        raise AssertionError("there is room")


# --- answers of coordinators ----------------------------------------------------------------------


class Groups(NoGroups):
    """Coordinators with many groups; `asked`: how often they were."""

    groups = members = 10_000

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def ask(self, group_id: str, op: Any) -> Asker:
        self.asked += 1
        return super().ask(group_id, op)

    def list_groups(self, op: Any) -> Iterator[Asker]:  # type: ignore[override]
        for _ in range(20):
            self.asked += 1
            asker = Asker()
            asker.answer(GroupsListed((ListedGroup("g", "consumer", "Stable", "classic"),) * 500))
            yield asker


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []}),
        (ApiKey.DESCRIBE_GROUPS, {"groups": NAMES, "include_authorized_operations": False}),
    ],
    ids=("ListGroups", "DescribeGroups"),
)
async def test_room_is_taken_before_coordinators_are_asked(
    key: ApiKey, values: dict[str, Any]
) -> None:
    memory = ClientMemory(Budgets(replies=64 * MIB, requests=64 * MIB, frame=MIB))
    coordinators = Groups()
    view: Any = SimpleNamespace(image=an_image(), aside=Aside())
    handler = group_handlers(view, coordinators)[key]  # type: ignore[arg-type]
    account = MemoryAccount(memory.replies, MIB, "User:mallory")
    body = memoryview(bytearray(encode_request(key, 5, values)))
    reply = handler(RequestContext(key, 5, 1, body, ConnectionState(account)))
    assert isinstance(reply, asyncio.Future)
    held = memory.replies.limit // 2
    other = MemoryAccount(memory.replies, MIB, "User:mallory")
    other.hold(held)
    first = coordinators.asked
    await until(lambda: memory.replies.short)
    assert coordinators.asked == first <= ASKED_AT_ONCE, "no other before there is room"
    other.give_back(held)
    made = await reply
    assert isinstance(made, Granted)
    assert memory.replies.used == made.granted
    assert coordinators.asked > first

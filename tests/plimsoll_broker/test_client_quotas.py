"""Quotas on a broker's sessions: what a client that uses too much is told, for how long it is not
read, and who is never kept waiting."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.plimsoll_broker.listening import Client as RawClient
from tests.plimsoll_broker.listening import Handlers
from tests.plimsoll_broker.security.secured import OPEN, Secured, connected
from tests.plimsoll_broker.tls_listening import tls_serving, until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.dispatch import ConnectionState, Dispatch
from plimsoll_broker.server.listener import Server
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import Refused
from plimsoll_core.messages.security import AlterQuotas, QuotaChanged, QuotasAltered
from plimsoll_core.quotas.connections import TOO_FAST, TOO_MANY, AddressConnections
from plimsoll_core.quotas.state import (
    DEFAULT,
    Quota,
    QuotaEntity,
    QuotaRow,
    QuotaValues,
    quotas_of,
)
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.messages import encode_request, throttle_time_at

EVERYBODY = QuotaEntity(user=DEFAULT)
LENT_S = 10
"""Seconds' worth that a window lends."""
MUTED_S = 0.3
A_BATCH = a_batch(1, filler=1_000)


def limiting(entity: QuotaEntity = EVERYBODY, **values: float) -> QuotaRow:
    return QuotaRow(entity=entity, values=QuotaValues(**values))


def commit(quotas: Quotas, image: ClusterImage, *rows: QuotaRow) -> None:
    new = replace(image, quotas=quotas_of(rows))
    quotas.update(image, new)


def rate_for(size: int) -> float:
    """By which so many bytes at once are not followed by more for `MUTED_S`."""
    return size / (LENT_S + MUTED_S)


class Alone:
    """A broker that alone holds topic `t`."""

    def __init__(self, broker: Broker, controller: Controller) -> None:
        self.broker, self.controller = broker, controller

    def limit(self, *rows: QuotaRow) -> None:
        commit(self.broker.quotas, self.controller.image, *rows)

    @property
    def throttled(self) -> dict[Quota, int]:
        stats = self.broker.quotas.stats.throttled
        return {quota: sum(times.counts) for quota, times in stats.items() if sum(times.counts)}


@pytest.fixture
async def alone(broker: Callable[[int], Broker], controller: Controller) -> Alone:
    one = await broker(0).start()
    controller.create("t", (0,))
    return Alone(one, controller)


async def produced(client: Client, size: int = 1_000, acks: int = -1, version: int = 9) -> int:
    """Throttle time, in milliseconds."""
    partition = {"index": 0, "records": a_batch(1, filler=size)}
    values = {
        "transactional_id": None,
        "acks": acks,
        "timeout": 5_000,
        "topic_data": [{"name": "t", "partition_data": [partition]}],
    }
    reply: Any = await client.ask(ApiKey.PRODUCE, version, values)
    assert reply.responses[0].partition_responses[0].error_code == 0
    return int(reply.throttle_time / timedelta(milliseconds=1))


async def fetched(client: Client, offset: int = 0, version: int = 12) -> tuple[int, int]:
    """Throttle time, and how many bytes of records."""
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 2**20,
    }
    values = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 2**20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    reply: Any = await client.ask(ApiKey.FETCH, version, values)
    records = [one.records or b"" for topic in reply.responses for one in topic.partitions]
    return int(reply.throttle_time / timedelta(milliseconds=1)), sum(map(len, records))


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("version", [3, 8, 9, 10])
async def test_producer_over_its_rate_is_told_for_how_long_and_is_not_read_meanwhile(
    alone: Alone, acks: int, version: int
) -> None:
    alone.limit(limiting(producer_byte_rate=rate_for(10_000)))
    client = await alone.broker.client()
    began = time.monotonic()
    told_ms = await produced(client, 10_000, acks, version)
    assert 0.5 * MUTED_S * 1000 < told_ms < 2 * MUTED_S * 1000
    await fetched(client)
    assert time.monotonic() - began >= told_ms / 1000 * 0.9
    assert alone.throttled == {Quota.PRODUCER_BYTE_RATE: 1}


async def test_quota_of_a_user_is_shared_by_its_connections_and_other_quotas_are_not_touched(
    alone: Alone,
) -> None:
    alone.limit(limiting(producer_byte_rate=rate_for(10_000)))
    first, second = await alone.broker.client(), await alone.broker.client()
    assert await produced(first, 10_000)
    assert await fetched(second) == (0, len(a_batch(1, filler=10_000)))
    assert await produced(second, 1)


async def test_quota_that_is_taken_away_holds_no_more(alone: Alone) -> None:
    alone.limit(limiting(producer_byte_rate=rate_for(10_000)))
    client = await alone.broker.client()
    assert await produced(client, 10_000)
    alone.limit()
    assert await produced(client, 10_000) == 0


async def test_first_fetch_is_told_whatever_the_rate_and_the_next_one_nothing(
    alone: Alone,
) -> None:
    client = await alone.broker.client()
    for _ in range(3):
        await produced(client, 1_000)
    alone.limit(limiting(consumer_byte_rate=rate_for(len(A_BATCH))))
    told_ms, size = await fetched(client)
    assert size == len(A_BATCH), "one batch: no more is read than the quota of a window"
    assert told_ms
    told_ms, size = await fetched(client, 1)
    assert (bool(told_ms), size) == (True, 0)
    assert alone.throttled == {Quota.CONSUMER_BYTE_RATE: 2}


async def test_fetch_that_is_held_back_gives_its_memory_back(alone: Alone) -> None:
    client = await alone.broker.client()
    await produced(client, 1_000)
    alone.limit(limiting(consumer_byte_rate=rate_for(len(A_BATCH))))
    await fetched(client)
    await fetched(client)
    memory = alone.broker.memory
    if memory is not None:
        await until(lambda: memory.replies.used == 0)


async def test_time_of_the_event_loop_is_limited_too(alone: Alone) -> None:
    alone.limit(limiting(request_percentage=0.0001))
    client = await alone.broker.client()
    assert await produced(client)
    assert (await fetched(client))[0]
    assert set(alone.throttled) == {Quota.REQUEST_PERCENTAGE}


async def test_followers_are_never_throttled(
    controller: Controller, three: tuple[Broker, Broker, Broker]
) -> None:
    everything = limiting(producer_byte_rate=1.0, consumer_byte_rate=1.0, request_percentage=0.0001)
    for one in three:
        commit(one.quotas, controller.image, everything)
    controller.create("t", (0, 1, 2))
    for _ in range(3):
        client = await three[0].client()  # each is muted after its request
        assert (await client.produce("t", a_batch(1)))[0] == Code.NONE
    for one in three:
        assert one.hosted("t").log.log_end_offset == 3
    stats = three[1].quotas.stats.throttled.values()
    assert not any(sum(times.counts) for times in stats)


async def test_connection_that_is_lost_while_it_is_muted_is_freed(alone: Alone) -> None:
    alone.limit(limiting(producer_byte_rate=1.0))
    client = await alone.broker.client()
    assert await produced(client)
    (session,) = alone.broker.server._open
    lost = weakref.ref(session)
    session.close("test")
    del session
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()
    assert lost() is None


# --- what is answered by coroutines ---------------------------------------------------------------


def topics(*names: str, partitions: int = 1) -> dict[str, Any]:
    made = [
        {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for name in names
    ]
    return {"topics": made, "timeout": 100, "validate_only": False}


async def test_topics_beyond_the_mutation_rate_are_refused_by_a_code_that_clients_repeat() -> None:
    secured = Secured(Mode.OFF)
    secured.answer = Refused(reason="PolicyViolation", code=Code.POLICY_VIOLATION, message="no")
    mutations = limiting(controller_mutation_rate=1.0)
    commit(secured.quotas, secured.watch.image, mutations)
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(ApiKey.CREATE_TOPICS, 6, topics("a", "b", partitions=11))
        assert [int(topic.error_code) for topic in found.topics] == [Code.POLICY_VIOLATION] * 2
        assert found.throttle_time > timedelta(seconds=10)
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(ApiKey.CREATE_TOPICS, 6, topics("c"))
        assert int(found.topics[0].error_code) == Code.THROTTLING_QUOTA_EXCEEDED
        assert found.throttle_time > timedelta(seconds=9)
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(ApiKey.CREATE_TOPICS, 5, topics("c"))
        assert int(found.topics[0].error_code) == Code.POLICY_VIOLATION, "older clients wait"
    assert len(secured.commands) == 2


async def test_coroutines_are_charged_for_the_steps_in_which_they_hold_the_loop() -> None:
    secured = Secured(Mode.OFF)
    commit(secured.quotas, secured.watch.image, limiting(request_percentage=0.001))
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}
        )
        assert timedelta(0) < found.throttle_time <= timedelta(seconds=1)


async def test_heartbeats_and_logins_are_charged_nothing(alone: Alone) -> None:
    alone.limit(limiting(request_percentage=0.0001))
    quotas = alone.broker.quotas
    state = ConnectionState()
    assert quotas.charges(state, ApiKey.HEARTBEAT, "c") is None
    assert quotas.charges(state, ApiKey.SASL_AUTHENTICATE, "c") is None
    assert quotas.charges(state, ApiKey.METADATA, "c") is not None
    state.belongs_to_broker()
    assert quotas.charges(state, ApiKey.FETCH, "c") is None


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_throttle_time_is_found_in_every_response_that_has_one_at_its_beginning(
    key: ApiKey,
) -> None:
    without = {ApiKey.PRODUCE, ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    found = throttle_time_at(key, SUPPORTED[key].last)
    assert found == (None if key in without else 2 if key is ApiKey.OFFSET_DELETE else 0)


# --- Kafka's API ------------------------------------------------------------------------------


def an_entry(entity: dict[str, str | None], **values: float | None) -> dict[str, Any]:
    ops = [
        {"key": key, "value": value or 0.0, "remove": value is None}
        for key, value in values.items()
    ]
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    return {"entity": parts, "ops": ops}


async def altered(secured: Secured, *entries: dict[str, Any]) -> list[tuple[int, str | None]]:
    async with secured.served(OPEN) as server, connected(server) as client:
        request = {"entries": list(entries), "validate_only": False}
        told = await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
        return [(int(one.error_code), one.error_message) for one in told.entries]


async def test_changes_that_have_a_form_are_decided_by_the_controller_and_told_in_order() -> None:
    secured = Secured(Mode.OFF)
    alice = QuotaEntity(user="alice", client_id=DEFAULT)
    secured.answer = QuotasAltered(
        entities=(QuotaChanged(entity=alice, code=Code.POLICY_VIOLATION, message="an object's"),),
    )
    told = await altered(
        secured,
        an_entry({}, producer_byte_rate=1.0),
        an_entry({"user": "alice", "client-id": None}, producer_byte_rate=5.0),
        an_entry({"group": "g"}, producer_byte_rate=1.0),
        an_entry({"user": "bob"}, no_such_rate=1.0),
        an_entry({"user": "bob"}, producer_byte_rate=0.25),
        an_entry({"user": ""}, producer_byte_rate=1.0),
        an_entry({"ip": "10.0.0.1", "user": "bob"}, producer_byte_rate=1.0),
        an_entry({"ip": "10.0.0.1"}, producer_byte_rate=1.0),
    )
    wrong = Code.INVALID_REQUEST
    assert [code for code, _ in told] == [wrong, Code.POLICY_VIOLATION, *[wrong] * 6]
    assert told[1][1] == "an object's"
    (command,) = secured.commands
    assert isinstance(command, AlterQuotas)
    assert [change.entity for change in command.changes] == [alice]


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, ["alice", "alice+app", "default", "address"]),
        ([("user", 0, "alice")], False, ["alice", "alice+app"]),
        ([("user", 0, "alice")], True, ["alice"]),
        ([("user", 1, None)], True, ["default"]),
        ([("user", 2, None)], False, ["alice", "alice+app", "default"]),
        ([("client-id", 2, None)], False, ["alice+app"]),
        ([("user", 0, "alice"), ("client-id", 0, "app")], True, ["alice+app"]),
        ([("ip", 2, None)], True, ["address"]),
        ([("ip", 0, "10.0.0.2")], True, []),
    ],
)
async def test_filter_finds_what_kafkas_would(
    components: list[tuple[str, int, str | None]], strict: bool, found: list[str]
) -> None:
    secured = Secured(Mode.OFF)
    rows = {
        "alice": limiting(QuotaEntity(user="alice"), producer_byte_rate=1.0),
        "alice+app": limiting(QuotaEntity(user="alice", client_id="app"), request_percentage=2.0),
        "default": limiting(consumer_byte_rate=3.0),
        "address": limiting(QuotaEntity(ip="10.0.0.1"), connection_creation_rate=4.0),
    }
    quotas = quotas_of(rows.values())
    image = replace(secured.watch.image, quotas=quotas)
    secured.watch.update(secured.watch.image, image)
    asked = [
        {"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components
    ]
    async with secured.served(OPEN) as server, connected(server) as client:
        told = await client.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": asked, "strict": strict}
        )
    shown = {tuple((p.entity_type, p.entity_name) for p in one.entity) for one in told.entries}
    assert shown == {tuple(rows[name].entity.parts.items()) for name in found}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("group", 2)], Code.UNSUPPORTED_VERSION),
        ([("user", 2), ("user", 1)], Code.INVALID_REQUEST),
        ([("user", 2), ("ip", 2)], Code.INVALID_REQUEST),
        ([("user", 7)], Code.INVALID_REQUEST),
        ([("user", 0)], Code.INVALID_REQUEST),
    ],
)
async def test_filter_that_says_nothing_is_refused(
    components: list[tuple[str, int]], code: Code
) -> None:
    asked = [{"entity_type": kind, "match_type": how, "match": None} for kind, how in components]
    async with Secured(Mode.OFF).served(OPEN) as server, connected(server) as client:
        told = await client.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": asked, "strict": False}
        )
    assert int(told.error_code) == code


async def test_hostile_names_and_counts_are_answered_or_closed_and_hold_nobody_up() -> None:
    secured = Secured(Mode.OFF)
    long = "x" * 30_000
    told = await altered(
        secured,
        an_entry({"user": long}, producer_byte_rate=1.0),
        an_entry({"ip": long}, connection_creation_rate=1.0),
        an_entry({long: "a"}, producer_byte_rate=1.0),
        an_entry({"user": "a"}, **{long: 1.0}),
    )
    assert {code for code, _ in told} == {Code.INVALID_REQUEST}
    assert max(len(text or "") for _, text in told) < 500
    many = [an_entry({"user": f"u{number}"}) for number in range(30_000)]
    body = encode_request(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": many, "validate_only": False})
    async with secured.served(OPEN) as server:
        async with connected(server) as client:
            client.send(ApiKey.ALTER_CLIENT_QUOTAS, 1, body)
            await client.closed()
        assert server.stats.closed_for["malformed"] == 1
    assert not secured.commands


# --- connections of an address --------------------------------------------------------------------


class Dialled:
    """A server and connections to it; all are closed at the end."""

    def __init__(self, quotas: Quotas) -> None:
        self.server = Server(Dispatch(Handlers().table()), quotas=quotas)
        self._clients: list[RawClient] = []

    async def __aenter__(self) -> Dialled:
        await self.server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()
        for client in self._clients:
            client.writer.transport.abort()

    async def connect(self) -> RawClient:
        client = RawClient(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self._clients.append(client)
        return client

    async def is_served(self) -> bool:
        """Whether another connection is answered; else it is closed without an answer."""
        client = await self.connect()
        client.send(ApiKey.METADATA, 1, b"hello")
        try:
            return await client.reply() == (1, b"at once hello")
        except (asyncio.IncompleteReadError, ConnectionError):
            return False


async def test_address_has_so_many_connections_and_one_more_when_one_is_over() -> None:
    quotas = Quotas(AddressConnections(2))
    async with Dialled(quotas) as dialled:
        server = dialled.server
        first = await dialled.connect()
        assert await dialled.is_served()
        assert not await dialled.is_served()
        assert server.stats.closed_for[TOO_MANY] == 1
        first.writer.close()
        await until(lambda: server.connections == 1)
        assert await dialled.is_served()
    await until(lambda: quotas.addresses.addresses == 0)


async def test_connections_that_come_too_fast_are_closed_after_a_while() -> None:
    quotas = Quotas()
    image = Secured(Mode.OFF).watch.image
    commit(quotas, image, limiting(QuotaEntity(ip=DEFAULT), connection_creation_rate=1.0))
    async with Dialled(quotas) as dialled:
        for _ in range(LENT_S):
            assert await dialled.is_served()
        began = time.monotonic()
        assert not await dialled.is_served()
        assert time.monotonic() - began > 0.5
        stats = dialled.server.stats
        assert stats.closed_for[TOO_FAST] == 1
        await dialled.connect()
        await until(lambda: stats.closed_for[TOO_FAST] == 2)
        # It waits to be closed, and is when the server stops.


async def test_connections_with_tls_are_refused_before_their_handshake(tmp_path: Any) -> None:
    async with tls_serving(tmp_path) as harness:
        harness.quotas.addresses._per_ip_max = 1
        first = await harness.connect()
        with pytest.raises(OSError):  # noqa: PT011 - closed, in whatever way
            await harness.connect()
        assert harness.server.stats.closed_for[TOO_MANY] == 1
        first.writer.close()
        await until(lambda: harness.quotas.addresses.addresses == 0)
        await harness.connect()


async def test_connection_whose_handshake_fails_is_counted_no_more(tmp_path: Any) -> None:
    async with tls_serving(tmp_path) as harness:
        _, writer = await asyncio.open_connection("127.0.0.1", harness.server.port)
        await until(lambda: harness.quotas.addresses.addresses == 1)
        writer.write(b"no handshake")
        await until(lambda: harness.quotas.addresses.addresses == 0)
        writer.close()

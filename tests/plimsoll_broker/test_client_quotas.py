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
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.fetch_values import fetch_values
from tests.plimsoll_broker.security.secured import OPEN, Secured, connected
from tests.plimsoll_broker.tls_listening import until
from tests.plimsoll_broker.trio import Broker, Client, Controller, a_batch

from plimsoll_broker.server import client_quotas
from plimsoll_broker.server.client_quotas import Quotas
from plimsoll_broker.server.connection_flow import MUTED
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import TopicCreated
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import Refused, TopicAnswer, TopicsAnswer
from plimsoll_core.messages.topics import TopicChanged, TopicsChanged
from plimsoll_core.quotas.held_limits import HeldRate
from plimsoll_core.quotas.state import (
    DEFAULT,
    Quota,
    QuotaEntity,
    QuotaRow,
    QuotaValues,
    quotas_of,
)
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request, throttle_time_at

EVERYBODY = QuotaEntity(user=DEFAULT)
OWN_WINDOW = int(client_quotas.OWN_MUTATION_RATE * 11)
"""Partitions that a client without a quota of its own may make at once."""
LENT_S = 10
"""Seconds' worth that a window lends."""
MUTED_S = 0.3
A_BATCH = a_batch(1, filler=1_000)


def limiting(entity: QuotaEntity = EVERYBODY, **values: float) -> QuotaRow:
    return QuotaRow(entity=entity, values=QuotaValues(**values))


def commit(quotas: Quotas, image: ClusterImage, *rows: QuotaRow) -> None:
    new = replace(image, quotas=quotas_of(rows))
    quotas.update(image, new)


def rate_for(size: int, muted_s: float = MUTED_S) -> float:
    """By which so many bytes at once are not followed by more for so long."""
    return size / (LENT_S + muted_s)


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


def produce_values(size: int, acks: int) -> dict[str, Any]:
    partition = {"index": 0, "records": a_batch(1, filler=size)}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 5_000,
        "topic_data": [{"name": "t", "partition_data": [partition]}],
    }


async def produced(client: Client, size: int = 1_000, acks: int = -1, version: int = 9) -> int:
    """Throttle time, in milliseconds."""
    reply: Any = await client.ask(ApiKey.PRODUCE, version, produce_values(size, acks))
    assert reply.responses[0].partition_responses[0].error_code == 0
    return int(reply.throttle_time / timedelta(milliseconds=1))


async def fetched(client: Client, offset: int = 0, version: int = 12) -> tuple[int, int]:
    """Throttle time, and how many bytes of records."""
    reply: Any = await client.ask(ApiKey.FETCH, version, fetch_values(offset=offset))
    records = [one.records or b"" for topic in reply.responses for one in topic.partitions]
    return int(reply.throttle_time / timedelta(milliseconds=1)), sum(map(len, records))


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("version", [3, 8, 9, 10])
async def test_producer_over_its_rate_is_throttled_and_muted(
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


async def test_user_quota_is_shared_by_its_connections(
    alone: Alone,
) -> None:
    # For longer than all of this takes on a busy machine; nobody waits for it.
    alone.limit(limiting(producer_byte_rate=rate_for(10_000, muted_s=40)))
    first, second = await alone.broker.client(), await alone.broker.client()
    assert await produced(first, 10_000)
    assert await fetched(second) == (0, len(a_batch(1, filler=10_000)))
    assert await produced(second, 1)


@pytest.mark.parametrize("acks", [-1, 1])
async def test_allowed_writes_count_like_charged_ones(
    alone: Alone, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    charged: list[int] = []
    by_itself = HeldRate.produced

    def produced_bytes(limit: HeldRate, size: int, now_ms: int) -> int:
        charged.append(size)
        return by_itself(limit, size, now_ms)

    monkeypatch.setattr(HeldRate, "produced", produced_bytes)
    row = limiting(producer_byte_rate=1e6, request_percentage=1e6)
    alone.limit(row)
    client = await alone.broker.client()
    began = time.monotonic()
    for _ in range(20):
        assert await produced(client, 1_000, acks) == 0
    samples = time.monotonic() - began + 2
    limit = quotas_of([row]).limit(Quota.PRODUCER_BYTE_RATE, "ANONYMOUS", "test")
    held = alone.broker.quotas.usage.rate(limit)
    assert held is not None
    assert held.rate.amount(time.monotonic_ns() // 1_000_000) == 20 * charged[0]
    assert len(charged) <= samples, "one each second"


async def test_quota_that_is_taken_away_holds_no_more(alone: Alone) -> None:
    alone.limit(limiting(producer_byte_rate=rate_for(10_000)))
    client = await alone.broker.client()
    assert await produced(client, 10_000)
    alone.limit()
    assert await produced(client, 10_000) == 0


async def test_first_fetch_passes_and_next_is_throttled(
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


async def test_throttled_fetch_returns_its_memory(alone: Alone) -> None:
    client = await alone.broker.client()
    await produced(client, 1_000)
    alone.limit(limiting(consumer_byte_rate=rate_for(len(A_BATCH))))
    await fetched(client)
    await fetched(client)
    memory = alone.broker.memory
    if memory is not None:
        await until(lambda: memory.replies.used == 0)


async def test_time_of_the_event_loop_is_limited_too(alone: Alone) -> None:
    alone.limit(limiting(request_percentage=1e-7))
    client = await alone.broker.client()
    assert await produced(client)
    assert (await fetched(client))[0]
    assert set(alone.throttled) == {Quota.REQUEST_PERCENTAGE}


async def test_followers_are_never_throttled(
    controller: Controller, three: tuple[Broker, Broker, Broker]
) -> None:
    everything = limiting(producer_byte_rate=1.0, consumer_byte_rate=1.0, request_percentage=1e-7)
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


async def test_connection_lost_while_muted_is_freed(alone: Alone) -> None:
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


async def test_partial_request_is_served_though_muted(
    alone: Alone,
) -> None:
    """A Fetch waits on it; the reply is what mutes it, for a minute, and a Produce has begun."""
    alone.limit(limiting(consumer_byte_rate=rate_for(len(A_BATCH), muted_s=60)))
    other = await alone.broker.client()
    reader, writer = await asyncio.open_connection("127.0.0.1", alone.broker.server.port)
    body = encode_request(ApiKey.FETCH, 12, fetch_values(max_wait=20_000))
    writer.write(request_frame(ApiKey.FETCH, 12, 1, "test", body))
    body = encode_request(ApiKey.PRODUCE, 9, produce_values(500_000, acks=-1))
    large = request_frame(ApiKey.PRODUCE, 9, 2, "test", body)
    writer.write(large[:300_000])
    sessions = alone.broker.server._open
    await until(lambda: any(one._receiver.came > 250_000 for one in sessions))
    (session,) = (one for one in sessions if one._flow.waiting)
    assert await produced(other, 1_000) == 0
    assert await correlation_id(reader) == 1
    assert session._receiver.came > 0
    writer.write(large[300_000:])
    writer.write(request_frame(ApiKey.PRODUCE, 9, 3, "test", body))
    assert await correlation_id(reader) == 2
    # The next one is not read.
    await until(lambda: not session._flow.reading)
    assert session._flow.held & MUTED
    assert session._receiver.came == 0
    writer.transport.abort()


async def correlation_id(reader: asyncio.StreamReader) -> int:
    """Of the next reply; long before the muting is over."""
    async with asyncio.timeout(30):
        size = int.from_bytes(await reader.readexactly(4), "big")
        return int.from_bytes((await reader.readexactly(size))[:4], "big")


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


def made(*names: str, partitions: int = 1) -> TopicsAnswer:
    return TopicsAnswer(
        topics=tuple(TopicAnswer(name=name, partitions=partitions) for name in names)
    )


NO = Refused(reason="PolicyViolation", code=Code.POLICY_VIOLATION, message="no")
UNKNOWN = Refused(reason="", code=Code.REQUEST_TIMED_OUT, message="look whether it happened")


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is given back, however long a busy machine takes for what is asked."""
    monkeypatch.setattr(client_quotas, "_now_ms", lambda: 10**9)


@pytest.mark.usefixtures("still_clock")
async def test_topics_over_mutation_rate_get_retriable_error() -> None:
    secured = Secured(Mode.OFF)
    secured.answer = made("a", "b", partitions=11)
    mutations = limiting(controller_mutation_rate=1.0)
    commit(secured.quotas, secured.watch.image, mutations)
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(ApiKey.CREATE_TOPICS, 6, topics("a", "b", partitions=11))
        assert [int(topic.error_code) for topic in found.topics] == [0, 0]
        assert found.throttle_time > timedelta(seconds=9)
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(ApiKey.CREATE_TOPICS, 6, topics("c"))
        assert int(found.topics[0].error_code) == Code.THROTTLING_QUOTA_EXCEEDED
        assert found.throttle_time > timedelta(seconds=8)
    secured.answer = NO
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(ApiKey.CREATE_TOPICS, 5, topics("c"))
        assert int(found.topics[0].error_code) == Code.POLICY_VIOLATION, "older clients wait"
    assert len(secured.commands) == 2


@pytest.mark.usefixtures("still_clock")
@pytest.mark.parametrize("partitions", [2**31 - 1, 5, -5_000])
async def test_mutations_that_are_refused_cost_nothing(partitions: int) -> None:
    secured = Secured(Mode.OFF)
    secured.answer = NO
    commit(secured.quotas, secured.watch.image, limiting(controller_mutation_rate=1.0))
    async with secured.served(OPEN) as server, connected(server) as client:
        for version in (5, 6):
            asked = topics("a", "b", partitions=partitions)
            found = await client.ask(ApiKey.CREATE_TOPICS, version, asked)
            assert found.throttle_time == timedelta(0)
    secured.answer = made("c", partitions=11)
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(ApiKey.CREATE_TOPICS, 6, topics("c", partitions=11))
        assert int(found.topics[0].error_code) == 0
        assert found.throttle_time == timedelta(0), "all of the window was left"
        secured.answer = made("d", partitions=9)
        found = await client.ask(ApiKey.CREATE_TOPICS, 6, topics("d", partitions=9))
        assert timedelta(seconds=5) < found.throttle_time <= timedelta(seconds=9)


@pytest.mark.usefixtures("still_clock")
async def test_client_without_quota_has_a_partition_burst() -> None:
    """10,000 in 2.5 s: nobody had to state a quota for it to be bounded."""
    secured = Secured(Mode.OFF)
    async with secured.served(OPEN) as server, connected(server) as client:
        secured.answer = made("a", "b", partitions=OWN_WINDOW // 2)
        found = await client.ask(
            ApiKey.CREATE_TOPICS, 6, topics("a", "b", partitions=OWN_WINDOW // 2)
        )
        assert [int(topic.error_code) for topic in found.topics] == [0, 0]
        assert found.throttle_time == timedelta(0), "many topics in one go are fine"
        secured.answer = made("c", partitions=1_000)
        found = await client.ask(ApiKey.CREATE_TOPICS, 6, topics("c", partitions=1_000))
        assert timedelta(seconds=1) < found.throttle_time <= timedelta(seconds=2)
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(ApiKey.CREATE_TOPICS, 6, topics("d"))
        assert int(found.topics[0].error_code) == Code.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.usefixtures("still_clock")
@pytest.mark.parametrize("stated", [False, True])
async def test_super_user_and_stated_quota_bypass_default(stated: bool) -> None:
    secured = Secured(Mode.OFF)
    image = secured.watch.image
    if stated:
        commit(secured.quotas, image, limiting(controller_mutation_rate=1e6))
    else:
        authorization = replace(image.security.authorization, super_users=(ANONYMOUS,))
        security = replace(image.security, authorization=authorization)
        secured.quotas.update(image, replace(image, security=security))
    async with secured.served(OPEN) as server, connected(server) as client:
        for name in ("a", "b"):
            secured.answer = made(name, partitions=2 * OWN_WINDOW)
            asked = topics(name, partitions=2 * OWN_WINDOW)
            found = await client.ask(ApiKey.CREATE_TOPICS, 6, asked)
            assert int(found.topics[0].error_code) == 0
            assert found.throttle_time == timedelta(0)


@pytest.mark.usefixtures("still_clock")
@pytest.mark.parametrize("version", [5, 6])
async def test_validated_topics_are_charged_as_created_ones(version: int) -> None:
    """Else a client has the controller place as many partitions as it likes."""
    secured = Secured(Mode.OFF)
    secured.answer = made("a", partitions=15)
    commit(secured.quotas, secured.watch.image, limiting(controller_mutation_rate=1.0))
    asked = {**topics("a", partitions=15), "validate_only": True}
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(ApiKey.CREATE_TOPICS, version, asked)
        assert int(found.topics[0].error_code) == 0
        assert found.throttle_time > timedelta(seconds=3)
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(ApiKey.CREATE_TOPICS, 6, asked)
        assert int(found.topics[0].error_code) == Code.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.usefixtures("still_clock")
async def test_config_changes_over_mutation_rate_are_refused() -> None:
    """A client that toggled a config of its 1,000 topics filled the metadata log."""
    secured = Secured(Mode.OFF)
    names = ("a", "b")
    for number, name in enumerate(names):
        topic = TopicCreated(
            cause="t",
            topic_id=UUID(int=number),
            name=name,
            replication_factor=1,
            min_isr=1,
            configs={},
        )
        secured.change(topic)
    secured.answer = TopicsChanged(topics=tuple(TopicChanged(topic=name) for name in names))
    commit(secured.quotas, secured.watch.image, limiting(controller_mutation_rate=0.1))
    config = {"name": "retention.ms", "config_operation": 0, "value": "1"}
    rows = [{"resource_type": 2, "resource_name": name, "configs": [config]} for name in names]
    asked = {"resources": rows, "validate_only": False}
    for version, code in ((0, 0), (1, Code.THROTTLING_QUOTA_EXCEEDED)):
        async with secured.served(OPEN) as server, connected(server) as client:
            found = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, asked)
            assert [int(row.error_code) for row in found.responses] == [code, code]
            assert found.throttle_time > timedelta(seconds=8)
    assert len(secured.commands) == 1


async def test_mutations_with_unknown_outcome_are_charged() -> None:
    secured = Secured(Mode.OFF)
    secured.answer = UNKNOWN
    commit(secured.quotas, secured.watch.image, limiting(controller_mutation_rate=1.0))
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(ApiKey.CREATE_TOPICS, 6, topics("a", partitions=100))
        assert int(found.topics[0].error_code) == Code.REQUEST_TIMED_OUT
        assert found.throttle_time > timedelta(0)


async def test_coroutines_are_charged_for_loop_steps() -> None:
    secured = Secured(Mode.OFF)
    commit(secured.quotas, secured.watch.image, limiting(request_percentage=1e-7))
    async with secured.served(OPEN) as server, connected(server) as client:
        found = await client.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}
        )
        assert timedelta(0) < found.throttle_time <= timedelta(seconds=1)


async def test_heartbeats_and_logins_are_charged_nothing(alone: Alone) -> None:
    alone.limit(limiting(request_percentage=1e-7))
    quotas = alone.broker.quotas
    state = ConnectionState()
    assert quotas.charges(state, ApiKey.HEARTBEAT, "c", 0) is None
    assert quotas.charges(state, ApiKey.SASL_AUTHENTICATE, "c", 0) is None
    assert quotas.charges(state, ApiKey.METADATA, "c", 0) is not None
    state.belongs_to_broker()
    assert quotas.charges(state, ApiKey.FETCH, "c", 0) is None


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_throttle_time_is_found_in_every_response(
    key: ApiKey,
) -> None:
    without = {ApiKey.PRODUCE, ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    without.add(ApiKey.WRITE_TXN_MARKERS)  # between brokers
    found = throttle_time_at(key, SUPPORTED[key].last)
    assert found == (None if key in without else 2 if key is ApiKey.OFFSET_DELETE else 0)

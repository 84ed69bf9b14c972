"""What a request does in turns of the event loop of its own, after the one in which it came, is
charged, too."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.plimsoll_broker import described
from tests.plimsoll_broker.group_harness import Harness
from tests.plimsoll_broker.security.secured import Secured, a_rule
from tests.plimsoll_broker.test_client_quotas import (
    LENT_S,
    MUTED_S,
    Alone,
    alone,  # noqa: F401 - a fixture
    limiting,
    produce_values,
    produced,
)
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Client, a_batch

from plimsoll_broker.handlers import fetch_poll, metadata
from plimsoll_broker.handlers.batch_checks import RECORDS_AT_ONCE
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.produce import ProduceHandler
from plimsoll_broker.handlers.producers import InitProducerIdHandler, ProducerIds
from plimsoll_broker.handlers.security.gate import guarded
from plimsoll_broker.server.client_quotas import measured
from plimsoll_broker.server.connection_state import ConnectionState
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_broker.server.requests_and_replies import LATER
from plimsoll_core.ids import BrokerEpoch, BrokerId, BrokerLifetime
from plimsoll_core.messages.requests import ProducerIdBlock
from plimsoll_core.quotas.state import Quota, quotas_of
from plimsoll_core.security.acl import AclOperation
from plimsoll_core.security.state import Mode
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_response, encode_request, encode_response

HELD_S = 0.2


@pytest.fixture
def slow_writes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, each write holds the event loop for `HELD_S`."""
    write = ProduceHandler._partition

    def held_up(handler: ProduceHandler, *rest: Any) -> None:
        time.sleep(HELD_S)
        write(handler, *rest)

    return lambda: monkeypatch.setattr(ProduceHandler, "_partition", held_up)


async def produced_long(client: Client) -> timedelta:
    """A batch that is checked in a thread, and then written; its throttle time."""
    values = produce_values(10, acks=-1)
    batch = a_batch(RECORDS_AT_ONCE + 1)
    values["topic_data"][0]["partition_data"] = [{"index": 0, "records": batch}]
    reply: Any = await client.ask(ApiKey.PRODUCE, 9, values)
    assert reply.responses[0].partition_responses[0].error_code == 0
    told: timedelta = reply.throttle_time
    return told


@pytest.mark.parametrize("ahead", [False, True])
async def test_long_produce_with_allowance_is_charged_per_turn(
    alone: Alone,  # noqa: F811
    slow_writes: Callable[[], None],
    *,
    ahead: bool,
) -> None:
    """It was charged for the turn in which it came alone: its writes cost nothing."""
    row = limiting(request_percentage=1e6)
    client = await alone.broker.client()
    await produced(client)
    alone.limit(row)
    if ahead:
        await produced(client)
    slow_writes()
    assert await produced_long(client) == timedelta(0)
    limit = quotas_of([row]).limit(Quota.REQUEST_PERCENTAGE, "ANONYMOUS", "test")
    held = alone.broker.quotas.usage.rate(limit)
    assert held is not None
    assert held.rate.amount(time.monotonic_ns() // 1_000_000) >= HELD_S * 1e9


async def test_long_produce_over_quota_is_throttled(
    alone: Alone,  # noqa: F811
    slow_writes: Callable[[], None],
) -> None:
    client = await alone.broker.client()
    await produced(client)
    alone.limit(limiting(request_percentage=HELD_S * 100 / (LENT_S + MUTED_S)))
    slow_writes()
    assert await produced_long(client) > timedelta(0)
    assert set(alone.throttled) == {Quota.REQUEST_PERCENTAGE}


class CountedSteps:
    """Charges that count how often somebody held the loop."""

    def __init__(self) -> None:
        self.steps = 0
        self.elsewhere_ns = 0

    def resumes(self) -> None:
        """It is counted at its end."""

    def took(self) -> None:
        self.steps += 1

    def used(self, ns: int) -> None:
        self.elsewhere_ns += ns


async def test_deferred_group_request_is_charged_per_step() -> None:
    harness = Harness()
    names = [f"g{number}" for number in range(600)]
    body = encode_request(ApiKey.DELETE_GROUPS, 2, {"groups_names": names})
    context = RequestContext(ApiKey.DELETE_GROUPS, 2, 7, memoryview(bytearray(body)))
    context.charges = charges = CountedSteps()
    reply: Any = harness.handlers[ApiKey.DELETE_GROUPS](context)
    assert charges.steps == 0, "of the call itself the session knows"
    assert len(decode_response(ApiKey.DELETE_GROUPS, 2, await reply).results) == 600
    in_line, answered = 1, 1
    assert charges.steps > in_line + answered, "in slices"


async def test_answer_filtered_by_rights_is_charged_per_step() -> None:
    secured = Secured(Mode.ENFORCE, a_rule(AclOperation.DELETE))
    connection = ConnectionState()
    connection.principal, connection.host = "User:alice", "10.0.0.1"
    topics = [{"name": name, "partitions": []} for name in ("orders", "others")]
    body = encode_request(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 1_000})
    context = RequestContext(ApiKey.DELETE_RECORDS, 2, 7, memoryview(bytearray(body)), connection)
    context.charges = charges = CountedSteps()

    async def handled(_: RequestContext) -> bytes:
        return encode_response(ApiKey.DELETE_RECORDS, 2, {"topics": []})

    handler = guarded({ApiKey.DELETE_RECORDS: handled}, secured.authority, Aside())
    await handler[ApiKey.DELETE_RECORDS](context)  # type: ignore[misc]  # it is answered later
    assert charges.steps > 0


async def test_fetch_that_waited_is_charged_for_its_answer(
    alone: Alone,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it read when it came was charged alone, and not what it read when it was answered."""
    consumer, producer = await alone.broker.client(), await alone.broker.client()
    alone.limit(limiting(request_percentage=1e6))
    waits = asyncio.create_task(consumer.fetch("t", 0, wait_ms=60_000))
    await until(lambda: bool(alone.broker.hosted("t").replica.parked._for_commit))
    real = fetch_poll.read

    def slow(*rest: Any, **named: Any) -> Any:
        time.sleep(HELD_S)
        return real(*rest, **named)

    monkeypatch.setattr(fetch_poll, "read", slow)
    await produced(producer)
    assert (await waits).records
    limit = quotas_of([limiting(request_percentage=1e6)]).limit(
        Quota.REQUEST_PERCENTAGE, "ANONYMOUS", "test"
    )
    held = alone.broker.quotas.usage.rate(limit)
    assert held is not None
    assert held.rate.amount(time.monotonic_ns() // 1_000_000) >= HELD_S * 1e9


def burn() -> None:
    until_s = time.thread_time() + HELD_S
    while time.thread_time() < until_s:
        pass


async def test_thread_work_is_charged_to_its_request() -> None:
    """Long Metadata and batches that are recompressed took a processor, and cost nothing."""
    aside, mine, others = Aside(), CountedSteps(), CountedSteps()

    async def both() -> None:
        await aside.do(burn)
        await asyncio.sleep(0)

    async def nothing() -> None:
        for _ in range(20):
            await asyncio.sleep(0.001)

    await asyncio.gather(
        measured(mine, both()),  # type: ignore[arg-type]  # as much of one as is used
        measured(others, nothing()),  # type: ignore[arg-type]
        aside.do(burn),
    )
    assert HELD_S <= mine.elsewhere_ns / 1e9 < 2 * HELD_S
    assert others.elsewhere_ns == 0


class Spent:
    """What somebody's charges are told, in turn."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def resumes(self) -> None:
        self.told.append("resumes")

    def took(self) -> None:
        self.told.append("took")


async def test_nested_steps_are_charged_once() -> None:
    """What came before the inner ones, in the same turn, cost nothing."""
    spent, others = Spent(), Spent()

    async def inner() -> int:
        await asyncio.sleep(0)
        return 7

    async def outer() -> int:
        found = await measured(spent, inner())  # type: ignore[arg-type]
        return found + await measured(others, inner())  # type: ignore[arg-type]

    assert await measured(spent, outer()) == 14  # type: ignore[arg-type]
    assert spent.told == ["resumes", "took"] * 3
    assert others.told == ["resumes", "took"] * 2


@pytest.mark.filterwarnings("error")
async def test_request_cancelled_before_first_step_is_closed() -> None:
    async def never() -> None:
        raise AssertionError("it did not begin")

    work = never()
    task = asyncio.ensure_future(measured(Spent(), work))  # type: ignore[arg-type]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def test_measured_failure_and_cancellation_pass_through() -> None:
    spent, cancelled = Spent(), []

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("its own")

    async def waits() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(True)
        return "went on"

    with pytest.raises(ValueError, match="its own"):
        await asyncio.ensure_future(measured(spent, fails()))  # type: ignore[arg-type]
    task = asyncio.ensure_future(measured(spent, waits()))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "went on"
    assert cancelled == [True]
    assert spent.told == ["resumes", "took"] * 4


async def test_shared_metadata_answer_is_charged_to_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "THINGS_AT_ONCE", 0)
    handler = described.Harness().handlers[ApiKey.METADATA]
    body = encode_request(ApiKey.METADATA, 1, {"topics": None})
    charged = [CountedSteps(), CountedSteps()]
    replies = []
    for charges in charged:
        context = RequestContext(ApiKey.METADATA, 1, 7, memoryview(bytearray(body)))
        context.charges = charges
        replies.append(handler(context))
    assert await replies[0] == await replies[1]  # type: ignore[misc]  # both come later
    assert charged[0].steps > 0
    assert charged[0].elsewhere_ns > 0
    assert charged[1].steps == 0, "it only heard what was made"


async def test_fetched_producer_id_is_charged_per_step() -> None:
    class Controllers:
        async def command(self, *_: Any) -> ProducerIdBlock:
            return ProducerIdBlock(first=0, length=1_000)

    ids = ProducerIds(Controllers(), BrokerLifetime(BrokerId(0), BrokerEpoch(1)))
    body = encode_request(
        ApiKey.INIT_PRODUCER_ID, 1, {"transactional_id": None, "transaction_timeout": 0}
    )
    context = RequestContext(ApiKey.INIT_PRODUCER_ID, 1, 7, memoryview(bytearray(body)))
    reply: Any = InitProducerIdHandler(ids)(context)
    assert not isinstance(reply, LATER), "what the session measures"
    assert decode_response(ApiKey.INIT_PRODUCER_ID, 1, await reply).error_code == 0

"""What walks along a long request about transactions, or along long answers, runs in a thread."""

import threading
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.plimsoll_broker.described import an_image

from plimsoll_broker.coordinator.answers import Asker
from plimsoll_broker.handlers.long_work import THINGS_AT_ONCE, Aside
from plimsoll_broker.handlers.routes import transaction_handlers
from plimsoll_broker.handlers.transactions import producing, transaction_api
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.ids import TopicPartition
from plimsoll_core.transactions.records import Status, TransactionStored
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_response, encode_request

MANY = 10 * THINGS_AT_ONCE
STORED = TransactionStored(
    transactional_id="a",
    producer_id=1,
    producer_epoch=0,
    timeout_ms=1_000,
    status=Status.ONGOING,
    partitions=tuple(TopicPartition("t", index) for index in range(MANY)),
    update_ms=0,
)


class Coordinators:
    """Coordinators that answer each question at once, with one long transaction."""

    manager = SimpleNamespace(image=an_image())

    def ask(self, transactional_id: str, op: Any) -> Asker:
        asker = Asker()
        asker.answer(STORED)
        return asker


async def told(key: ApiKey, version: int, values: dict[str, Any]) -> Any:
    coordinators: Any = Coordinators()
    body = memoryview(bytearray(encode_request(key, version, values)))
    reply = transaction_handlers(coordinators, Aside())[key](RequestContext(key, version, 1, body))
    found: Any = await reply if isinstance(reply, Awaitable) else reply
    return decode_response(key, version, found)


def threads_of(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> set[int]:
    """The threads that call a function from now on."""
    real, seen = getattr(module, name), set()

    def noted(*arguments: Any) -> Any:
        seen.add(threading.get_ident())
        return real(*arguments)

    monkeypatch.setattr(module, name, noted)
    return seen


async def test_partitions_of_long_addition_are_checked_in_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = threads_of(monkeypatch, producing, "_partitions")
    values = {
        "v3_and_below_transactional_id": "a",
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": "t", "partitions": list(range(MANY))}],
    }
    (topic,) = (await told(ApiKey.ADD_PARTITIONS_TO_TXN, 3, values)).results_by_topic_v3_and_below
    assert len(topic.results_by_partition) == MANY
    assert threads
    assert threading.get_ident() not in threads


async def test_long_transaction_is_described_in_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = threads_of(monkeypatch, transaction_api, "encode_response")
    found = await told(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["a"]})
    assert len(found.transaction_states[0].topics[0].partitions) == MANY
    assert threads
    assert threading.get_ident() not in threads

"""A request that names thousands, or whose answer does, is read and written in a thread, and gone
through in slices: no other request waits for it."""

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from immutables import Map
from tests.plimsoll_broker.described import MISSING, ORDERS, Harness, a_partition, an_image
from tests.plimsoll_broker.trio import Broker, Controller

from plimsoll_broker.background import AT_ONCE
from plimsoll_broker.handlers import configs as configs_module
from plimsoll_broker.handlers import metadata
from plimsoll_broker.handlers.long_work import THINGS_AT_ONCE
from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import TopicAnswer, TopicsAnswer
from plimsoll_wire import messages
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.primitives import MalformedMessage

Make = Callable[[int], Broker]
NAMES = [f"unknown-{number:04}" for number in range(1_000)]
FLAGS = {
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
}


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[tuple[str, str]]]:
    """How often requests were decoded and responses encoded, and where."""
    seen: Counter[tuple[str, str]] = Counter()
    loop = threading.get_ident()

    def noted(what: str, real: Callable) -> Callable:
        def make(key: int, version: int) -> Callable:
            work = real(key, version)

            def run(*arguments: object) -> object:
                seen[what, "loop" if threading.get_ident() == loop else "thread"] += 1
                return work(*arguments)

            return run

        return make

    with monkeypatch.context() as patch:
        for what in ("_request_decoder", "_response_encoder"):
            patch.setattr(messages, what, noted(what.split("_")[2], getattr(messages, what)))
        yield seen


IN_THREADS = {("decoder", "thread"): 1, ("encoder", "thread"): 1}
HERE = {("decoder", "loop"): 1, ("encoder", "loop"): 1}


def many(names: list[str]) -> dict[ApiKey, dict]:
    """Requests that name them, as the newest versions do."""
    unknown = [{"name": name, "topic_id": None} for name in names]
    creatable = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    resources = [
        {"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in names
    ]
    return {
        ApiKey.METADATA: {"topics": unknown, **FLAGS},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {
            "topics": [{"name": name} for name in names],
            "response_partition_limit": 10,
            "cursor": None,
        },
        ApiKey.DESCRIBE_CONFIGS: {
            "resources": resources,
            "include_synonyms": False,
            "include_documentation": False,
        },
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {
            "timeout": 1000,
            "topics": [{"name": name, "partition_indexes": [0]} for name in names],
        },
        ApiKey.CREATE_TOPICS: {
            "topics": [{"name": name, **creatable} for name in names],
            "timeout": 1000,
            "validate_only": True,
        },
        ApiKey.DELETE_TOPICS: {"topics": unknown, "timeout": 1000},
    }


def refused(request: object) -> TopicsAnswer:
    topics = getattr(request, "topics", None)
    names = request.names if topics is None else [topic.name for topic in topics]
    return TopicsAnswer(topics=tuple(TopicAnswer(name=name, code=3) for name in names))


@pytest.mark.parametrize("key", many([]))
async def test_request_naming_a_thousand_uses_a_thread(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness()
    harness.answer = refused
    with watched(monkeypatch) as seen:
        reply = await harness.ask(key, SUPPORTED[key].last, many(NAMES)[key])
    assert seen == IN_THREADS
    assert reply is not None


@pytest.mark.parametrize("key", many([]))
async def test_short_request_is_answered_at_once(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread costs more than that."""
    harness = Harness()
    harness.answer = refused
    with watched(monkeypatch) as seen:
        reply = harness.ask(key, SUPPORTED[key].last, many(["a", "b"])[key])
        if asyncio.iscoroutine(reply):
            await reply
    assert seen == HERE


def with_partitions(count: int):
    image = an_image()
    topics = image.topics.set(
        ORDERS, msgspec.structs.replace(image.topics[ORDERS], partitions=count)
    )
    orders = {PartitionKey(ORDERS, index): a_partition(ORDERS, index, 0) for index in range(count)}
    return msgspec.structs.replace(image, topics=topics, partitions=Map(orders))


@pytest.mark.parametrize("topics", [None, [{"name": "orders", "topic_id": None}]])
async def test_metadata_of_many_partitions_uses_a_thread(
    topics: list[dict] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(with_partitions(THINGS_AT_ONCE + 1))
    with watched(monkeypatch) as seen:
        reply = await harness.ask(ApiKey.METADATA, 12, {"topics": topics, **FLAGS})
    assert len(reply.topics[0].partitions) == THINGS_AT_ONCE + 1
    assert seen == {("decoder", "loop"): 1, ("encoder", "thread"): 1}


async def test_concurrent_metadata_requests_share_one_encoded_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an event every client asks for all topics."""
    harness = Harness(with_partitions(THINGS_AT_ONCE + 1))
    asked = {"topics": None, **FLAGS}
    with watched(monkeypatch) as seen:
        first = [harness.ask(ApiKey.METADATA, 12, asked) for _ in range(5)]
        replies = await asyncio.gather(*first)
        replies.append(harness.ask(ApiKey.METADATA, 12, asked))
    assert seen["encoder", "thread"] == 1
    assert all(reply == replies[0] for reply in replies)


async def test_long_metadata_share_one_remembered_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With rights, a request for all topics names those that its client sees."""
    harness = Harness(an_image())
    names = ["orders", *(f"nothing-{number:040}" for number in range(THINGS_AT_ONCE))]
    asked = {"topics": [{"name": name, "topic_id": None} for name in names], **FLAGS}
    with watched(monkeypatch) as seen:
        first = [harness.ask(ApiKey.METADATA, 12, asked) for _ in range(5)]
        replies = await asyncio.gather(*first)
        replies.append(harness.ask(ApiKey.METADATA, 12, asked))
    assert seen == {("decoder", "thread"): 1, ("encoder", "thread"): 1}
    assert all(reply == replies[0] for reply in replies)
    harness.watch.update(harness.watch.image, an_image(topics=("payments",)))
    (orders, *_) = (await harness.ask(ApiKey.METADATA, 12, asked)).topics
    assert orders.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


async def test_malformed_request_of_gone_client_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """asyncio reports a task's exception that nobody looked at, and that ends the process."""
    malformed = asyncio.Event()

    async def cannot_be_read(*_: object) -> bytes:
        await malformed.wait()
        raise MalformedMessage("a string that is not UTF-8")

    reported: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    monkeypatch.setattr(metadata.MetadataHandler, "_read_aside", cannot_be_read)
    harness = Harness(an_image())
    long = many(NAMES)[ApiKey.METADATA]
    stays, goes = (harness.ask(ApiKey.METADATA, version, long) for version in (12, 13))
    (making,) = [
        making.task
        for question, making in harness.handlers[ApiKey.METADATA]._making.items()
        if question.version == 13
    ]
    waits = asyncio.ensure_future(stays)
    leaves = asyncio.ensure_future(goes)
    await asyncio.sleep(0)
    leaves.cancel()
    malformed.set()
    with pytest.raises(MalformedMessage):
        await waits
    await asyncio.wait([making])
    del making
    gc.collect()
    await asyncio.sleep(0)
    assert harness.handlers[ApiKey.METADATA]._making == {}
    assert reported == []


async def test_answers_that_are_remembered_are_few_and_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "REMEMBERED_BYTES_MAX", 1_000)
    harness = Harness(an_image())
    for number in range(100):
        asked = {"topics": [{"name": f"nothing-{number}", "topic_id": None}], **FLAGS}
        harness.ask(ApiKey.METADATA, 12, asked)
    handler = harness.handlers[ApiKey.METADATA]
    kept = sum(len(asked.body) + len(answer) for asked, answer in handler._answers.items())
    assert 0 < kept <= 1_000
    assert kept == handler._remembered


async def test_metadata_answer_of_older_image_is_not_remembered() -> None:
    harness = Harness(with_partitions(THINGS_AT_ONCE + 1))
    asked = {"topics": None, **FLAGS}
    before = harness.ask(ApiKey.METADATA, 12, asked)
    newer = with_partitions(THINGS_AT_ONCE + 2)
    harness.watch.update(harness.watch.image, newer)
    after = harness.ask(ApiKey.METADATA, 12, asked)
    await before
    assert len((await after).topics[0].partitions) == THINGS_AT_ONCE + 2
    again = harness.ask(ApiKey.METADATA, 12, asked)
    assert len(again.topics[0].partitions) == THINGS_AT_ONCE + 2


def test_metadata_lists_a_repeated_topic_once() -> None:
    """One small request could be answered with megabytes."""
    by_name, by_id = {"name": "orders", "topic_id": None}, {"name": None, "topic_id": ORDERS}
    unknown = {"name": "gone", "topic_id": None}, {"name": None, "topic_id": MISSING}
    topics = [by_name, by_id, *unknown, by_name, *unknown]
    reply = Harness().ask(ApiKey.METADATA, 12, {"topics": topics, **FLAGS})
    assert [(topic.name, topic.error_code) for topic in reply.topics] == [
        ("orders", 0),
        ("gone", 3),
        (None, 100),
    ]


def configs(*names: str) -> dict:
    return many(list(names))[ApiKey.DESCRIBE_CONFIGS]


def test_configs_list_a_repeated_resource_once() -> None:
    reply = Harness().ask(ApiKey.DESCRIBE_CONFIGS, 4, configs("orders", "payments", "orders"))
    assert [result.resource_name for result in reply.results] == ["orders", "payments"]


def test_configs_beyond_one_answer_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(configs_module, "CONFIGS_MAX", 1)
    first, second = Harness().ask(ApiKey.DESCRIBE_CONFIGS, 4, configs("orders", "payments")).results
    assert (first.error_code, second.error_code) == (0, 42)
    assert second.error_message == (
        "The request asks for more than 1 configs; ask for fewer resources at a time."
    )
    assert first.configs
    assert not second.configs


def asked_of_all(count: int) -> dict[ApiKey, tuple[int, dict]]:
    """A version that names topics, and a request for so many partitions."""

    def fields(name: str, **more: int) -> list[dict]:
        return [{name: index, **more} for index in range(count)]

    offsets = fields("partition_index", current_leader_epoch=-1, timestamp=-1)
    epochs = fields("partition", current_leader_epoch=-1, leader_epoch=0)
    deletions = fields("partition_index", offset=0)
    return {
        ApiKey.LIST_OFFSETS: (
            7,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": "t", "partitions": offsets}],
            },
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (
            4,
            {"replica_id": -1, "topics": [{"topic": "t", "partitions": epochs}]},
        ),
        ApiKey.DELETE_RECORDS: (
            2,
            {"topics": [{"name": "t", "partitions": deletions}], "timeout": 1000},
        ),
    }


@pytest.mark.parametrize("key", asked_of_all(0))
async def test_queries_of_many_partitions_use_threads_and_slices(
    key: ApiKey, controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), (0,), (0,))
    await asyncio.sleep(0)
    client = await one.client()
    loop, turn, over = asyncio.get_running_loop(), 0, False
    looked_up: Counter[int] = Counter()
    real = one.manager.by_name

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if not over:
            loop.call_soon(next_turn)

    def by_name(name: str, index: int) -> object:
        looked_up[turn] += 1
        return real(name, index)

    monkeypatch.setattr(one.manager, "by_name", by_name)
    version, values = asked_of_all(1_500)[key]
    next_turn()
    with watched(monkeypatch) as seen:
        reply = await client.ask(key, version, values)
    over = True
    codes = [partition.error_code for topic in reply.topics for partition in topic.partitions]
    assert codes == [Code.NONE] * 3 + [Code.UNKNOWN_TOPIC_OR_PARTITION] * 1_497
    assert seen == IN_THREADS
    assert sum(looked_up.values()) == 1_500
    assert max(looked_up.values()) <= AT_ONCE

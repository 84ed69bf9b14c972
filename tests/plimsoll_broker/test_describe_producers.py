"""A partition tells which idempotent producers it knows, as many as an answer may hold."""

import pytest
from tests.plimsoll_broker.test_replication import Three, until
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.handlers import producers
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_response, encode_request

KEY = ApiKey.DESCRIBE_PRODUCERS


async def described(broker: Broker, *partitions: tuple[str, int]) -> list[tuple[int, list]]:
    """Of each partition its code and its producers."""
    topics = [{"name": name, "partition_indexes": [index]} for name, index in partitions]
    body = memoryview(bytearray(encode_request(KEY, 0, {"topics": topics})))
    handler = producers.describe_producers(broker.manager, Aside())
    reply = await handler(RequestContext(KEY, 0, 1, body))
    answer = decode_response(KEY, 0, reply)
    assert [topic.name for topic in answer.topics] == [name for name, _ in partitions]
    told = [topic.partitions[0] for topic in answer.topics]
    assert [one.partition_index for one in told] == [index for _, index in partitions]
    return [(int(one.error_code), list(one.active_producers)) for one in told]


async def test_producers_are_described_with_last_batch(
    controller: Controller, three: Three
) -> None:
    controller.create("t", (0, 1, 2))
    client = await three[0].client()
    for producer, time in (((9, 2, 0), 1_000), ((7, 0, 0), 2_000), ((7, 0, 3), 3_000)):
        batch = a_batch(3, producer=producer, timestamp=time)
        assert (await client.produce("t", batch))[0] == Code.NONE
    assert (await client.produce("t", a_batch(1)))[0] == Code.NONE
    await until(lambda: three[1].hosted("t").log.log_end_offset == 10)
    for broker in three[:2]:
        ((code, told),) = await described(broker, ("t", 0))
        assert code == Code.NONE
        found = [
            (one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp)
            for one in told
        ]
        assert found == [(7, 0, 5, 3_000), (9, 2, 2, 1_000)]
        assert {(one.coordinator_epoch, one.current_txn_start_offset) for one in told} == {(-1, -1)}


async def test_partition_that_is_not_here_has_a_code(controller: Controller, three: Three) -> None:
    controller.create("t", (0, 1), (1, 2))
    await until(lambda: len(three[0].manager) == 1)
    names = ("t", 0), ("t", 1), ("t", 5), ("gone", 0), ("a b", 0)
    told = await described(three[0], *names)
    missing = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert told == [
        (Code.NONE, []),
        (Code.NOT_LEADER_OR_FOLLOWER, []),
        (missing, []),
        (missing, []),
        (Code.INVALID_TOPIC_EXCEPTION, []),
    ]
    three[0].hosted("t").replica.fail()
    assert await described(three[0], ("t", 0)) == [(Code.KAFKA_STORAGE_ERROR, [])]


async def test_producer_description_is_bounded_to_newest(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 3)
    controller.create("t", (0, 1, 2))
    controller.create("u", (0, 1, 2))
    client = await three[0].client()
    for topic in ("t", "u"):
        for producer_id in (4, 1, 2, 3)[: 4 if topic == "u" else 1]:
            batch = a_batch(1, producer=(producer_id, 0, 0))
            assert (await client.produce(topic, batch))[0] == Code.NONE
    told = await described(three[0], ("t", 0), ("u", 0))
    assert [[one.producer_id for one in producers] for _, producers in told] == [[4], [2, 3]]

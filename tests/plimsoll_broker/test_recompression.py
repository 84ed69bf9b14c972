"""A topic that asks for a codec keeps every batch in it; all else of a batch is as it was sent."""

import asyncio
import threading

import pytest
from aiokafka.record.memory_records import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from tests.plimsoll_broker.test_batch_checks import Pipe, produced
from tests.plimsoll_broker.test_replication import Make, until
from tests.plimsoll_broker.trio import Broker, Client, Controller

from plimsoll_broker.handlers import batch_checks
from plimsoll_broker.handlers.batch_checks import recompressed
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.controller.topics.config_changes import COMPRESSED_SINCE
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    check_crc,
    iter_headers,
    parse_header,
    seal,
)
from plimsoll_wire.compression import CODECS, NAMES, NONE, opened, packed

TYPES = list(CODECS)
VALUES = [b"x" * 5_000, None, b"", b"plain" * 7]
RECORDS = [(1_000 + n, b"key-%d" % n, value) for n, value in enumerate(VALUES)]
PRODUCER = (7, 3)


def batch_in(codec: int, first_sequence: int = 0) -> bytes:
    """By a client's library, but for the compression, of which it has not all codecs."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, *PRODUCER, first_sequence, 2**20)
    for offset, (time, key, value) in enumerate(RECORDS):
        builder.append(offset, time, key, value, [("header", b"h")])
    plain = bytes(builder.build())
    header = parse_header(plain)._replace(attributes=codec)
    return seal(header, packed(codec, plain[HEADER_SIZE:]))


def read(batch: bytes) -> list[tuple[int, int, bytes, bytes | None]]:
    """By a client's library; offset, time, key and value of each record."""
    memory = MemoryRecords(bytes(batch))
    found = []
    while (one := memory.next_batch()) is not None:
        assert one.validate_crc()
        found += [(each.offset, each.timestamp, each.key, each.value) for each in one]
    return found


def headers_of(broker: Broker, topic: str) -> list[BatchHeader]:
    return list(iter_headers(broker.bytes_of(topic)))


@pytest.fixture
async def one(broker: Make, controller: Controller) -> Broker:
    finalized = MetadataVersionFinalized(cause="test", metadata_version=COMPRESSED_SINCE)
    controller.image = apply(controller.image, finalized)
    started = await broker(0).start()
    for kind in TYPES:
        controller.create(kind, (0,), **{"compression.type": kind})
    controller.create("producer", (0,))
    controller.create("small", (0,), **{"compression.type": "zstd", "max.message.bytes": "1000"})
    await until(lambda: len(started.manager) == len(TYPES) + 2)
    await until(lambda: started.store.begin_new() is None)
    return started


@pytest.fixture
async def client(one: Broker) -> Client:
    return await one.client()


@pytest.mark.parametrize("kind", TYPES)
async def test_batch_is_recompressed_with_all_else_kept(
    one: Broker, client: Client, kind: str
) -> None:
    expected, sequence = [], 0
    for codec in range(len(NAMES)):
        sent = batch_in(codec, sequence)
        base, sequence = sequence, sequence + len(RECORDS)
        assert (await client.produce(kind, sent)) == (Code.NONE, base)
        expected += [(base + n, *record) for n, record in enumerate(RECORDS)]
        kept, before = headers_of(one, kind)[-1], parse_header(sent)
        assert kept.codec == CODECS[kind]
        same = {"base_offset": 0, "leader_epoch": 0, "length": 0, "crc": 0, "attributes": 0}
        assert kept._replace(**same) == before._replace(**same)
        if codec == CODECS[kind]:
            assert one.bytes_of(kind)[-before.length :][HEADER_SIZE:] == sent[HEADER_SIZE:]
    assert read(one.bytes_of(kind)) == expected


@pytest.mark.parametrize("kind", ["producer", "gzip", "zstd"])
@pytest.mark.parametrize("version", [3, 6, 7])
async def test_zstd_is_refused_below_version_7(
    one: Broker, client: Client, kind: str, version: int
) -> None:
    """As Apache Kafka 4.1 answers; other codecs are taken at each version."""
    codes = []
    for codec in (CODECS["gzip"], CODECS["zstd"]):
        sent = batch_in(codec, len(RECORDS) * len(codes))
        reply = await client.ask(ApiKey.PRODUCE, version, produced(sent, topic=kind))
        codes.append(reply.responses[0].partition_responses[0].error_code)
    refused = Code.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else Code.NONE
    assert codes == [Code.NONE, refused]
    assert len(headers_of(one, kind)) == 1 + (version == 7)


async def test_topic_with_producer_codec_keeps_the_bytes(one: Broker, client: Client) -> None:
    for codec in range(len(NAMES)):
        await client.produce("producer", batch_in(codec, codec * len(RECORDS)))
    assert [header.codec for header in headers_of(one, "producer")] == list(range(len(NAMES)))


async def test_brokers_config_holds_where_a_topic_states_none(
    broker: Make, controller: Controller
) -> None:
    one = await broker(0).start(**{"compression.type": "lz4"})
    controller.create("plain", (0,))
    controller.create("own", (0,), **{"compression.type": "producer"})
    await until(lambda: len(one.manager) == 2)
    client = await one.client()
    for topic in ("plain", "own"):
        assert (await client.produce(topic, batch_in(CODECS["gzip"]))) == (Code.NONE, 0)
    found = [headers_of(one, topic)[0].codec for topic in ("plain", "own")]
    assert found == [CODECS["lz4"], CODECS["gzip"]]


async def test_log_append_time_is_stamped_on_recompressed_batch(
    one: Broker, client: Client, controller: Controller
) -> None:
    configs = {"compression.type": "snappy", "message.timestamp.type": "LogAppendTime"}
    controller.create("stamped", (0,), **configs)
    await until(lambda: "stamped" in {each.name for each in one.manager})
    assert (await client.produce("stamped", batch_in(NONE))) == (Code.NONE, 0)
    (header,) = headers_of(one, "stamped")
    assert header.attributes == LOG_APPEND_TIME | CODECS["snappy"]
    assert {time for _, time, _, _ in read(one.bytes_of("stamped"))} == {header.max_timestamp}


async def test_repeated_batch_returns_its_first_offset(one: Broker, client: Client) -> None:
    for _ in range(2):
        assert (await client.produce("zstd", batch_in(CODECS["lz4"]))) == (Code.NONE, 0)
    assert len(headers_of(one, "zstd")) == 1


async def test_batch_respects_limit_before_and_after_recompression(
    one: Broker, client: Client, controller: Controller
) -> None:
    """Kafka refuses both."""
    short = batch_in(CODECS["zstd"])
    assert len(short) < 1_000
    assert (await client.produce("small", batch_in(NONE)))[0] == Code.MESSAGE_TOO_LARGE
    configs = {"compression.type": "uncompressed", "max.message.bytes": "1000"}
    controller.create("opened", (0,), **configs)
    await until(lambda: "opened" in {each.name for each in one.manager})
    reply = await client.ask(ApiKey.PRODUCE, 9, produced(short, topic="opened"))
    refused = reply.responses[0].partition_responses[0]
    assert int(refused.error_code) == Code.MESSAGE_TOO_LARGE
    assert (
        "bytes when compressed as none, more than the topic's max.message.bytes allows (1000)"
        in refused.error_message
    )
    assert one.hosted("opened").log.log_end_offset == 0


async def test_only_other_codecs_are_recompressed_off_loop(
    one: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    real = batch_checks.packed

    def watched(codec: int, data: bytes) -> bytes:
        threads.append(threading.get_ident())
        return real(codec, data)

    monkeypatch.setattr(batch_checks, "packed", watched)
    assert (await client.produce("gzip", batch_in(CODECS["gzip"]))) == (Code.NONE, 0)
    assert threads == []
    assert (await client.produce("gzip", batch_in(NONE, 4))) == (Code.NONE, 4)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_matching_batch_waits_behind_one_being_recompressed(
    one: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def held(*args):
        begun.set()
        assert go_on.wait(30)
        return recompressed(*args)

    monkeypatch.setattr(batch_checks, "recompressed", held)
    pipe = await Pipe.to(one)
    for codec, sequence in (("lz4", 0), ("zstd", 4), ("lz4", 8)):
        pipe.send(batch_in(CODECS[codec], sequence), topic="zstd")
    await asyncio.to_thread(begun.wait, 30)
    assert one.hosted("zstd").log.log_end_offset == 0
    go_on.set()
    assert [await pipe.answer() for _ in range(3)] == [(1, 0, 0), (2, 0, 4), (3, 0, 8)]
    await pipe.leave()
    assert [header.base_sequence for header in headers_of(one, "zstd")] == [0, 4, 8]


async def test_codec_change_applies_to_later_batches(
    one: Broker, client: Client, controller: Controller
) -> None:
    assert (await client.produce("lz4", batch_in(NONE))) == (Code.NONE, 0)
    controller.create("lz4", (0,), **{"compression.type": "gzip"})
    await until(lambda: one.hosted("lz4").demand.codec == CODECS["gzip"])
    assert (await client.produce("lz4", batch_in(NONE, 4))) == (Code.NONE, 4)
    assert [NAMES[each.codec] for each in headers_of(one, "lz4")] == ["lz4", "gzip"]


@pytest.mark.parametrize("kind", TYPES)
def test_recompressed_batch_has_right_crc_and_records(kind: str) -> None:
    sent = batch_in(CODECS["snappy"])
    before = parse_header(sent)
    made = recompressed(before, memoryview(sent), CODECS[kind], 2**20)
    header = parse_header(made.records)
    assert header == made.header
    assert check_crc(made.records, 0, header.length)
    plain = opened(header.codec, made.records[HEADER_SIZE:], 2**20)
    assert plain == opened(before.codec, memoryview(sent)[HEADER_SIZE:], 2**20)

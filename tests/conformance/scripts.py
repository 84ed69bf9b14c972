"""What an unmodified client does to a cluster: one function per client, the same for any cluster.

Each writes `records` to one topic and reads them back, and returns what it read as
{partition: [values in offset order]}.  Nothing here knows whose cluster it talks to.
"""

import asyncio
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import kafka.admin
from confluent_kafka.admin import AdminClient
from tests.conformance.kafka_jars import KafkaJars
from tests.kafka_python import left_sockets

Read = dict[int, list[bytes]]
TIMEOUT_S = 30


def sent(partitions: int, each: int) -> Read:
    """The records a script writes: numbered per partition, of differing sizes."""
    return {
        p: [b"%d-%d-" % (p, n) + b"x" * (n % 97) for n in range(each)] for p in range(partitions)
    }


def with_confluent(bootstrap: str, topic: str, records: Mapping[int, list[bytes]]) -> Read:
    """librdkafka, idempotent, acks=all, lz4."""
    failed: list[str] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "delivery.timeout.ms": TIMEOUT_S * 1000,
        }
    )
    for partition, values in records.items():
        for value in values:
            producer.produce(
                topic,
                value,
                partition=partition,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
            producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed, failed[:3]
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in records])
    found: Read = {partition: [] for partition in records}
    wanted = sum(map(len, records.values()))
    while wanted:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{wanted} records still missing"
        assert not message.error(), message.error()
        found[message.partition()].append(message.value())
        wanted -= 1
    consumer.close()
    return found


@left_sockets()
def with_kafka_python(bootstrap: str, topic: str, records: Mapping[int, list[bytes]]) -> Read:
    """kafka-python with its own defaults (idempotent since 3.0), gzip."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", compression_type="gzip", linger_ms=5
    )
    futures = [
        producer.send(topic, value, partition=partition)
        for partition, values in records.items()
        for value in values
    ]
    for future in futures:
        future.get(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, consumer_timeout_ms=TIMEOUT_S * 1000
    )
    partitions = [kafka.TopicPartition(topic, p) for p in records]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    found: Read = {partition: [] for partition in records}
    wanted = sum(map(len, records.values()))
    for message in consumer:
        found[message.partition].append(message.value)
        wanted -= 1
        if not wanted:
            break
    consumer.close()
    return found


def with_aiokafka(bootstrap: str, topic: str, records: Mapping[int, list[bytes]]) -> Read:
    """aiokafka, idempotent, uncompressed."""
    return asyncio.run(_with_aiokafka(bootstrap, topic, records))


async def _with_aiokafka(bootstrap: str, topic: str, records: Mapping[int, list[bytes]]) -> Read:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()
    try:
        pending = [
            await producer.send(topic, value, partition=partition)
            for partition, values in records.items()
            for value in values
        ]
        await asyncio.wait_for(asyncio.gather(*pending), TIMEOUT_S)
    finally:
        await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None
    )
    await consumer.start()
    found: Read = {partition: [] for partition in records}
    try:
        partitions = [aiokafka.TopicPartition(topic, p) for p in records]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        for _ in range(sum(map(len, records.values()))):
            message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            found[message.partition].append(message.value)
    finally:
        await consumer.stop()
    return found


def with_kcat(bootstrap: str, topic: str, records: Mapping[int, list[bytes]]) -> Read:
    """kcat: lines in, lines out, one partition at a time."""
    found: Read = {}
    for partition, values in records.items():
        where = ["-b", bootstrap, "-t", topic, "-p", str(partition)]
        subprocess.run(
            ["kcat", "-P", "-z", "snappy", "-X", "acks=all", *where],
            input=b"\n".join(values) + b"\n",
            check=True,
            timeout=TIMEOUT_S,
        )
        out = subprocess.run(
            ["kcat", "-C", "-o", "beginning", "-e", "-q", *where],
            check=True,
            capture_output=True,
            timeout=TIMEOUT_S,
        ).stdout
        found[partition] = out.splitlines()
    return found


def with_java_console(
    bootstrap: str, topic: str, records: Mapping[int, list[bytes]], jars: KafkaJars
) -> Read:
    """Kafka's own console producer and consumer.

    The producer spreads as it likes, so what each partition holds is for the caller to judge; the
    consumer is told its partition, so that no group is needed.
    """
    subprocess.run(
        jars.command(
            jars.console_producer,
            *("--bootstrap-server", bootstrap, "--topic", topic, "--request-required-acks", "all"),
        ),
        input=b"\n".join(value for values in records.values() for value in values) + b"\n",
        check=True,
        capture_output=True,
        timeout=2 * TIMEOUT_S,
    )
    found: Read = {}
    for partition in records:
        # Told how many there are, the consumer needs no time-out to notice the end.
        count = end_of(bootstrap, topic, partition)
        command = jars.command(
            jars.console_consumer,
            *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", str(partition)),
            *("--offset", "earliest", "--max-messages", str(count)),
            *("--timeout-ms", str(TIMEOUT_S * 1000)),
        )
        found[partition] = []
        if count:
            done = subprocess.run(command, check=True, capture_output=True, timeout=3 * TIMEOUT_S)
            found[partition] = done.stdout.splitlines()
    return found


def end_of(bootstrap: str, topic: str, partition: int) -> int:
    """The partition's high watermark."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    asked = confluent_kafka.TopicPartition(topic, partition)
    _, high = consumer.get_watermark_offsets(asked, timeout=TIMEOUT_S)
    consumer.close()
    return high


def dump_segments(files: Sequence[Path], jars: KafkaJars) -> str:
    """Kafka's own reader of segments and indexes; what it printed."""
    named = ",".join(map(str, files))
    done = subprocess.run(
        jars.command(jars.dump_log_segments, "--deep-iteration", "--files", named),
        check=False,
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def codecs_of_records(printed: str) -> list[tuple[int, str]]:
    """Each record's offset and its batch's codec, of what `dump_segments` returns."""
    found, codec = [], ""
    for line in printed.splitlines():
        if batch := re.search(r"baseOffset: .* compresscodec: (\w+).* isvalid: true", line):
            codec = batch[1]
        elif record := re.match(r"\| offset: (\d+)", line):
            found.append((int(record[1]), codec))
    return found


def delete_with_confluent(bootstrap: str, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
    """librdkafka's admin client; the low watermarks that it is told."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [confluent_kafka.TopicPartition(topic, p, offset) for p, offset in offsets.items()]
    return {
        partition.partition: future.result(TIMEOUT_S).low_watermark
        for partition, future in admin.delete_records(wanted).items()
    }


@left_sockets()
def delete_with_kafka_python(
    bootstrap: str, topic: str, offsets: Mapping[int, int]
) -> dict[int, int]:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    wanted = {kafka.TopicPartition(topic, p): offset for p, offset in offsets.items()}
    told = admin.delete_records(wanted, timeout_ms=TIMEOUT_S * 1000)
    admin.close()
    return {partition.partition: _low(answer) for partition, answer in told.items()}


def _low(answer: object) -> int:
    low = answer["low_watermark"] if isinstance(answer, dict) else answer.low_watermark
    return int(low)


def delete_with_kafkas_tool(
    bootstrap: str, topic: str, offsets: Mapping[int, int], jars: KafkaJars
) -> dict[int, int]:
    """kafka-delete-records.sh."""
    wanted = [
        {"topic": topic, "partition": partition, "offset": offset}
        for partition, offset in offsets.items()
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"version": 1, "partitions": wanted}, file)
        file.flush()
        done = subprocess.run(
            jars.command(
                jars.delete_records,
                *("--bootstrap-server", bootstrap, "--offset-json-file", file.name),
            ),
            check=True,
            capture_output=True,
            text=True,
            timeout=2 * TIMEOUT_S,
        )
    found = re.findall(r"partition: \S+-(\d+)\s+low_watermark: (-?\d+)", done.stdout)
    assert found, done.stdout + done.stderr
    return {int(partition): int(low) for partition, low in found}


def with_kafkas_get_offsets(bootstrap: str, topic: str, jars: KafkaJars) -> dict[int, int]:
    """kafka-get-offsets.sh: where each partition begins."""
    done = subprocess.run(
        jars.command(
            jars.get_offsets,
            *("--bootstrap-server", bootstrap, "--topic", topic, "--time", "earliest"),
        ),
        check=True,
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_S,
    )
    found = re.findall(rf"^{topic}:(\d+):(\d+)$", done.stdout, re.MULTILINE)
    return {int(partition): int(offset) for partition, offset in found}

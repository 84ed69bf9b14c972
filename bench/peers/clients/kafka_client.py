"""A client of the Kafka protocol that sleeps between records.

    python -m bench.peers.clients.kafka_client '{"load": "acks", "bootstrap": "…", …}'

`bench.peers.client_process` starts it. It warms up, prints a line, waits for a line, runs the load,
and prints the figures in JSON. librdkafka's poll below a millisecond returns at once: a client that
calls it in a loop takes a processor from the brokers, and measures that.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from bench.peers.clients.latency import latencies
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

LIMIT_S = 240
"""The process ends itself after that."""
WAIT_S = 60.0
POLL_S = 0.1


class Acks:
    """Sends records one by one at a rate, and keeps how long each acknowledgement took."""

    def __init__(self, load: dict[str, Any]) -> None:
        self._load = load
        self._producer = producer(load, linger_ms=0)
        self._value = b"x" * load["record_bytes"]
        self.took_ms: list[float] = []
        self.failed = 0

    def send(self, seconds: float) -> None:
        """Send for some seconds. A thread sleeps in librdkafka until acknowledgements come."""
        count, period_s = int(seconds * self._load["rate"]), 1 / self._load["rate"]
        ended = threading.Event()

        def poll() -> None:
            while not ended.is_set():
                self._producer.poll(POLL_S)

        polling = threading.Thread(target=poll)
        polling.start()
        began = time.perf_counter()
        for number in range(count):
            left = began + number * period_s - time.perf_counter()
            if left > 0:
                time.sleep(left)
            self._send_one()
        until = time.monotonic() + WAIT_S
        while len(self.took_ms) + self.failed < count and time.monotonic() < until:
            time.sleep(POLL_S)
        ended.set()
        polling.join()

    def _send_one(self) -> None:
        began = time.perf_counter()

        def acked(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.took_ms.append((time.perf_counter() - began) * 1e3)
            else:
                self.failed += 1

        index = random.randrange(self._load["partitions"])
        self._producer.produce(self._load["log"], self._value, partition=index, on_delivery=acked)

    def forget(self) -> None:
        self.took_ms, self.failed = [], 0

    def figures(self) -> dict[str, float]:
        return {**latencies(self.took_ms), "failed": self.failed}


def producer(load: dict[str, Any], *, linger_ms: float, **config: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": load["bootstrap"],
            "acks": "all",
            "log_level": 0,
            "linger.ms": linger_ms,
            "batch.size": load.get("batch_bytes", 131072),
            "enable.idempotence": load.get("idempotent", False),
            "queue.buffering.max.kbytes": 65536,
            "queue.buffering.max.messages": 1_000_000,
            **load.get("config", {}),
            **config,
        }
    )


def write(load: dict[str, Any], megabytes: int) -> dict[str, float]:
    """Write as fast as acknowledgements allow."""
    writer, value = producer(load, linger_ms=5), b"x" * load["record_bytes"]
    acked, failed, count = 0, 0, megabytes * 1_000_000 // load["record_bytes"]

    def told(error: KafkaError | None, _: Message) -> None:
        nonlocal acked, failed
        acked, failed = acked + (error is None), failed + (error is not None)

    began = time.perf_counter()
    for number in range(count):
        while True:
            try:
                writer.produce(load["log"], value, on_delivery=told)
                break
            except BufferError:
                writer.poll(0.01)
        if number % 1000 == 0:
            writer.poll(0)
    writer.flush(WAIT_S * 2)
    seconds = time.perf_counter() - began
    written = acked * load["record_bytes"] / 1e6
    return {"mb_per_s": written / seconds, "megabytes": written, "records": acked, "failed": failed}


class Reader:
    """Reads everything from the start; in a group, or partitions that it chooses."""

    def __init__(self, load: dict[str, Any]) -> None:
        self._load = load
        self._consumer = Consumer(
            {
                "bootstrap.servers": load["bootstrap"],
                "log_level": 0,
                "group.id": f"readers-{time.time_ns()}",
                "enable.auto.commit": load["group"],
                "auto.offset.reset": "earliest",
                "fetch.queue.backoff.ms": 10,
                "queued.max.messages.kbytes": 65536,
                **load.get("config", {}),
            }
        )
        places = [TopicPartition(load["log"], index) for index in range(load["partitions"])]
        self._end = sum(
            self._consumer.get_watermark_offsets(place, timeout=WAIT_S)[1] for place in places
        )

    def read(self) -> dict[str, float]:
        began = time.perf_counter()
        if self._load["group"]:
            self._consumer.subscribe([self._load["log"]])
        else:
            starts = range(self._load["partitions"])
            self._consumer.assign([TopicPartition(self._load["log"], index, 0) for index in starts])
        first, count, size, until = 0.0, 0, 0, time.monotonic() + 2 * WAIT_S
        while count < self._end and time.monotonic() < until:
            # It waits until it has as many as asked for.
            found = self._consumer.consume(min(10_000, self._end - count), 1)
            if found and not first:
                first = time.perf_counter()
            count += len(found)
            size += sum(len(one.value() or b"") for one in found)
        ended = time.perf_counter()
        self._consumer.close()
        return {
            "mb_per_s": size / 1e6 / (ended - began),
            "first_s": first - began,
            "megabytes": size / 1e6,
            "records": count,
            "failed": self._end - count,
        }


def survive(load: dict[str, Any]) -> dict[str, float]:
    """Write to each partition every 10 ms, and return the longest gap between acknowledgements."""
    writer = producer(
        load, linger_ms=0, **{
            "retries": 1_000_000, "message.timeout.ms": 120_000, "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100, "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100, "topic.metadata.refresh.fast.interval.ms": 50,
            "socket.connection.setup.timeout.ms": 1000,
        },
    )  # fmt: skip
    acked: list[list[float]] = [[] for _ in range(load["partitions"])]
    failed = 0

    def told(error: KafkaError | None, message: Message) -> None:
        nonlocal failed
        if error is None:
            acked[message.partition() or 0].append(time.perf_counter())
        else:
            failed += 1

    began, turn = time.perf_counter(), 0
    while (now := time.perf_counter()) - began < load["seconds"]:
        for index in range(load["partitions"]):
            writer.produce(load["log"], b"x" * 100, partition=index, on_delivery=told)
        turn += 1
        while (left := began + turn * 0.01 - now) > 0.001:
            writer.poll(left)
            now = time.perf_counter()
    writer.flush(WAIT_S)
    gaps = sorted(max(b - a for a, b in pairwise(one)) for one in acked)
    return {"worst_s": gaps[-1], "median_s": gaps[len(gaps) // 2], "failed": failed}


def prepared(load: dict[str, Any]) -> Callable[[], dict[str, float]]:
    """Warm up, and return the load itself."""
    match load["load"]:
        case "acks":
            acks = Acks(load)
            acks.send(load["warm_s"])
            acks.forget()

            def run() -> dict[str, float]:
                acks.send(load["seconds"])
                return {**acks.figures(), "records": len(acks.took_ms)}

            return run
        case "write":
            write(load, load["warm_megabytes"])
            return lambda: write(load, load["megabytes"])
        case "read":
            return Reader(load).read
        case "survive":
            return lambda: survive(load)
    raise ValueError(load["load"])


def main() -> None:
    signal.alarm(LIMIT_S)
    run = prepared(json.loads(sys.argv[1]))
    print(flush=True)
    sys.stdin.readline()
    print(json.dumps(run()), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

"""Clients that stay while a local cluster is hurt: `make chaos FOR=600`, for so many seconds.

Two idempotent producers, one of a compacted topic, and a group of two consumers (librdkafka) live
through kills and freezes of brokers, of one, two or all, with the controller or without it, and
through clean restarts of everything.  Afterwards each of them has to go on, and what was
acknowledged is looked for: nothing may be lost, there twice or out of order, nothing may have been
kept from the group, and of each key the last record has to be there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
from tests.integration.local_cluster import LocalCluster, a_producer, committed_messages, wait_for

PARTITIONS = 6
KEYS = 600
BETWEEN_S = (4.0, 12.0)
FROZEN_S = (0.5, 12.0)
"""Some are fenced meanwhile, some are not."""
GOES_ON_S_MAX = 60.0
"""After the last fault, each client."""
QUIET = {"log_level": 0}
"""Each connection that is refused would be a line."""
PLAIN, COMPACTED = "plain", "compacted"
OBJECTS = """\
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main}
spec:
  brokers: {count: 3}
  storage: {size: 4Gi}
  config: {replica.lag.time.max.ms: 3000}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: plain}
spec: {clusterRef: {name: main}, partitions: 6, config: {segment.bytes: 262144}}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: compacted}
spec:
  clusterRef: {name: main}
  partitions: 6
  config:
    cleanup.policy: compact
    segment.bytes: 65536
    segment.ms: 5000
    min.cleanable.dirty.ratio: 0.05
"""


class Record(NamedTuple):
    """As it was acknowledged, or read."""

    # None: acknowledged with one that was sent behind it, so that the client never heard it.
    offset: int | None
    key: bytes | None
    value: bytes


Records = dict[int, list[Record]]
"""By partition."""


class Client:
    """A thread that works until it is told to stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stop = threading.Event()
        # When it last got something done, and how long it got nothing done at most.
        self.last_s = time.monotonic()
        self.silence_s = 0.0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self.stop.set()
        self._thread.join(2 * GOES_ON_S_MAX)
        assert not self._thread.is_alive(), f"{self.name} hangs"

    def done(self) -> None:
        now_s = time.monotonic()
        self.silence_s = max(self.silence_s, now_s - self.last_s)
        self.last_s = now_s

    def _work(self) -> None:
        raise NotImplementedError


class Writer(Client):
    """Some 150 records a second, each to the partition of its number or of its key."""

    def __init__(self, bootstrap: str, topic: str, keys: int, seed: int) -> None:
        super().__init__(f"producer of {topic}")
        self.topic = topic
        self.acked: Records = defaultdict(list)
        self.failed: list[confluent_kafka.KafkaError] = []
        # Records that were never answered.
        self.left = 0
        self._producer = a_producer(bootstrap, **QUIET, **{"message.timeout.ms": 300_000})
        self._keys = keys
        self._rng = random.Random(seed)

    def _work(self) -> None:
        number = 0
        while not self.stop.is_set():
            key = self._rng.randrange(self._keys) if self._keys else number
            with contextlib.suppress(BufferError):
                self._producer.produce(
                    self.topic,
                    b"%d:" % number + b"." * self._rng.randrange(10, 300),
                    b"%d" % key if self._keys else None,
                    partition=key % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
            self._producer.poll(0.007)
        self.left = self._producer.flush(GOES_ON_S_MAX)

    def _delivered(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        if error is not None:
            self.failed.append(error)
            return
        self.acked[message.partition() or 0].append(_record(message))
        self.done()


class Reader(Client):
    """A member of the group, which commits what it has read now and then."""

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(f"consumer {number}")
        self.seen: dict[int, set[int]] = defaultdict(set)
        self.refused = 0
        self._consumer = confluent_kafka.Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
            }
        )

    def _work(self) -> None:
        self._consumer.subscribe([PLAIN])
        while not self.stop.is_set():
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            offset = message.offset() or 0
            self.seen[message.partition() or 0].add(offset)
            self.done()
            if offset % 50 == 0:
                try:
                    self._consumer.commit(message=message, asynchronous=False)
                except confluent_kafka.KafkaException:  # the group has gone on without it
                    self.refused += 1
        self._consumer.close()


def _record(message: confluent_kafka.Message) -> Record:
    key, value = message.key(), message.value()
    assert value is not None
    return Record(message.offset(), key if isinstance(key, bytes) else None, value)


# --- what is done to the cluster ------------------------------------------------------------------


def kill(cluster: LocalCluster, rng: random.Random, brokers: int) -> None:
    for pid in rng.sample(cluster.broker_pids, brokers):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def freeze(cluster: LocalCluster, rng: random.Random) -> None:
    pid = rng.choice(cluster.broker_pids)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(rng.uniform(*FROZEN_S))
        os.kill(pid, signal.SIGCONT)


def kill_everything(cluster: LocalCluster, _: random.Random) -> None:
    cluster.kill_everything()
    cluster.start()


def restart(cluster: LocalCluster, _: random.Random) -> None:
    cluster.stop()
    cluster.start()


Fault = Callable[[LocalCluster, random.Random], None]
FAULTS: dict[str, Fault] = {
    "kill a broker": lambda cluster, rng: kill(cluster, rng, 1),
    "kill two brokers": lambda cluster, rng: kill(cluster, rng, 2),
    "kill all brokers": lambda cluster, rng: kill(cluster, rng, 3),
    "freeze a broker": freeze,
    "kill everything": kill_everything,
    "restart everything": restart,
}


# --- what is looked for afterwards ----------------------------------------------------------------


def read_all(bootstrap: str, topic: str) -> Records:
    """Everything that is committed, by partition."""
    found: Records = defaultdict(list)
    for message in committed_messages(bootstrap, topic, PARTITIONS):
        found[message.partition() or 0].append(_record(message))
    return found


def wrong_in_plain(acked: Records, found: Records, seen: dict[int, set[int]]) -> list[str]:
    faults = []
    for index in range(PARTITIONS):
        there = {_number(record): record.offset for record in found[index]}
        lost = [_number(each) for each in acked[index] if not _is_there(each, there)]
        numbers = [_number(record) for record in found[index]]
        kept = {*there.values()} - seen[index]
        faults += [f"{PLAIN}-{index}: {len(lost)} lost, such as {lost[0]}"] if lost else []
        faults += [f"{PLAIN}-{index}: some twice"] if len({*numbers}) != len(numbers) else []
        faults += [f"{PLAIN}-{index}: out of order"] if numbers != sorted(numbers) else []
        faults += [f"{PLAIN}-{index}: {len(kept)} kept from the group"] if kept else []
    return faults


def wrong_in_compacted(acked: Records, found: Records) -> list[str]:
    faults = []
    for index in range(PARTITIONS):
        there = {record.key: _number(record) for record in found[index]}  # the last one of each
        last = {record.key: _number(record) for record in sorted(acked[index], key=_number)}
        lost = [key for key, number in last.items() if there.get(key, -1) < number]
        faults += [f"{COMPACTED}-{index}: the last records of {len(lost)} keys"] if lost else []
    return faults


def _is_there(record: Record, there: dict[int, int | None]) -> bool:
    """`there`: the offset of each number."""
    number = _number(record)
    return number in there and record.offset in (None, there[number])


def _number(record: Record) -> int:
    return int(record.value.partition(b":")[0])


def run(directory: Path, seconds: float, seed: int) -> list[str]:
    """What was wrong; prints what was done."""
    objects = directory / "objects.yaml"
    objects.write_text(OBJECTS)
    rng, did = random.Random(seed), Counter[str]()
    with LocalCluster(directory / "c", brokers=None, files=[objects], forked=False) as cluster:
        bootstrap = cluster.bootstrap
        writers = [Writer(bootstrap, PLAIN, 0, seed), Writer(bootstrap, COMPACTED, KEYS, seed)]
        readers = [Reader(bootstrap, number) for number in range(2)]
        clients: list[Client] = [*writers, *readers]
        for client in clients:
            client.start()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            time.sleep(rng.uniform(*BETWEEN_S))
            name = rng.choice(list(FAULTS))
            FAULTS[name](cluster, rng)
            did[name] += 1
        for topic in (PLAIN, COMPACTED):
            cluster.wait_isr(topic, 3)
        for writer in writers:
            writer.end()
        plain, compacted = (read_all(bootstrap, topic) for topic in (PLAIN, COMPACTED))

        def seen() -> dict[int, set[int]]:
            return {n: {*readers[0].seen[n], *readers[1].seen[n]} for n in range(PARTITIONS)}

        with contextlib.suppress(AssertionError):  # then it is told below
            all_are = {index: {each.offset for each in plain[index]} for index in range(PARTITIONS)}
            wait_for("the group has read all", lambda: seen() == all_are, GOES_ON_S_MAX)
        for reader in readers:
            reader.end()
    acked = sum(len(rows) for writer in writers for rows in writer.acked.values())
    print(f"done: {', '.join(f'{name} {count}' for name, count in did.most_common())}")
    print(f"acknowledged: {acked}; commits refused: {sum(reader.refused for reader in readers)}")
    for client in clients:
        print(f"{client.name}: got nothing done for {client.silence_s:.1f} s at most")
    return [
        *(f"{each.name}: {len(each.failed)} failed" for each in writers if each.failed),
        *(f"{each.name}: {each.left} were never answered" for each in writers if each.left),
        *wrong_in_plain(writers[0].acked, plain, seen()),
        *wrong_in_compacted(writers[1].acked, compacted),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.chaos")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        wrong = run(Path(directory), given.seconds, given.seed)
    for each in wrong:
        print(each)
    print("nothing is lost, doubled, out of order or kept back" if not wrong else "NOT SO")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

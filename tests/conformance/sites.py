"""Two closed local clusters, east and west, that MirrorMaker 2 mirrors by the files of
examples/mirror; a group that reads in either of them; and what they hold.

Called by `test_switch_over`.  The files are used as they stand: their paths begin in the directory
that has the data of both clusters.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.conformance.applications import MIRROR_MAKER, Application, command
from tests.conformance.kafka_jars import application_jars
from tests.documented_commands import ROOT, commands
from tests.integration.declared import log_cluster
from tests.integration.listening import OURS, asked, free_ports
from tests.integration.local_cluster import LocalCluster, wait_for

FILES = ROOT / "examples" / "mirror"
EAST, WEST = "east", "west"
TOPIC, GROUP = "orders", "orders-readers"
PARTITIONS = 3
PATIENCE_S = 600.0
"""Two clusters and two JVMs start beside whatever else runs."""
POSITION = re.compile(r'"partition":(\d+),"topic":"orders"}\] {"offset":(\d+)}')
"""As MirrorMaker stores them: key and value of a record of mm2-offsets."""
COPIED, END = (one for one in commands(ROOT / "docs/mirroring.md") if one.startswith("kcat "))
"""The documented commands for what was copied, and for the end of partition 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Of a partition: the offset of its first record, and the values."""

    start: int
    values: list[bytes] = field(default_factory=list)

    def at(self, offset: int) -> tuple[list[bytes], list[bytes]]:
        """Those before an offset, and those from there on; -1 is none."""
        place = max(0, offset - self.start)
        return self.values[:place], self.values[place:]


@dataclass(frozen=True, slots=True)
class Site:
    """One of the clusters, as its super user sees it."""

    name: str
    cluster: LocalCluster

    def login_file(self, user: str, kind: str) -> Path:
        return self.cluster.directory / "users" / user / kind

    @property
    def client(self) -> dict[str, str]:
        """For librdkafka."""
        lines = self.login_file("admin", "librdkafka.conf").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    @property
    def login(self) -> dict[str, str]:
        """The same without the addresses."""
        return {name: text for name, text in self.client.items() if name != "bootstrap.servers"}

    @property
    def bootstrap(self) -> str:
        return self.client["bootstrap.servers"]

    def give_rights(self, way: str) -> None:
        """As `kubectl apply` of the User of that way."""
        user = declared_user(way, self.name)
        path = f"{OURS}/users/{user['metadata']['name']}"
        asked(self.cluster, "PATCH", path, {"spec": user["spec"]})

        def done() -> bool:
            found = asked(self.cluster, "GET", path)
            observed = found.get("status", {}).get("observedGeneration")
            return bool(observed == found["metadata"]["generation"])

        wait_for(f"rights of {way} in {self.name}", done)

    def held(self, topic: str) -> list[Held]:
        """What each partition holds."""
        config = {**self.client, "group.id": "none", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer(config)
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(place, timeout=20) for place in places]
        found = [Held(start=low) for low, _ in ends]
        consumer.assign([TopicPartition(topic, n, low) for n, (low, _) in enumerate(ends)])
        left = sum(high - low for low, high in ends)
        deadline = time.monotonic() + PATIENCE_S
        while left > 0:
            assert time.monotonic() < deadline, f"{left} records of {topic} are not readable"
            for message in consumer.consume(min(left, 1000), 0.5):
                assert message.error() is None, message.error()
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert value is not None
                found[partition].values.append(value)
                left -= 1
        consumer.close()
        return found

    def all_values(self, topic: str) -> set[bytes]:
        return {value for held in self.held(topic) for value in held.values}

    def has_topic(self, topic: str) -> bool:
        return topic in AdminClient(self.client).list_topics(timeout=10).topics

    def empty(self, topic: str) -> None:
        """As kafka-delete-records.sh with the offset -1."""
        admin = AdminClient(self.client)
        places = [
            TopicPartition(topic, partition, confluent_kafka.OFFSET_END)
            for partition in range(PARTITIONS)
        ]
        for deleted in admin.delete_records(places).values():
            deleted.result(30)
        assert self.all_values(topic) == set()

    def run(self, command: str) -> str:
        """In the directory that has the data of both clusters, as the page says."""
        told = subprocess.run(
            shlex.split(command),
            cwd=self.cluster.directory.parent,
            capture_output=True,
            timeout=60,
            check=True,
        )
        return told.stdout.decode()

    def mirrored_from_east(self) -> dict[int, int]:
        """By partition, the offset in east of the last record that is certainly here."""
        found = POSITION.findall(self.run(COPIED))
        return {int(partition): int(offset) for partition, offset in found}

    def end(self, partition: int) -> int:
        """The offset of the next record of the topic in east."""
        told = self.run(END.replace(f"{TOPIC}:0:", f"{TOPIC}:{partition}:"))
        return int(told.rsplit(maxsplit=1)[-1])


def declared_user(way: str, site: str) -> dict[str, Any]:
    """MirrorMaker's, as the files have it."""
    found: dict[str, Any] = yaml.safe_load((FILES / way / f"user-{site}.yaml").read_text())
    return found


@contextlib.contextmanager
def two_sites(place: Path, way: str, mode: str = "Enforce") -> Iterator[tuple[Site, Site]]:
    """With the topic, and with the Users of that way; without their rights where these are only
    asked for (`Audit`)."""
    ports = dict(zip((EAST, WEST), free_ports(2), strict=True))
    clusters = {name: a_cluster(place, name, port, way, mode) for name, port in ports.items()}
    try:
        with ThreadPoolExecutor() as both:
            list(both.map(lambda one: one.start(PATIENCE_S), clusters.values()))
        sites = [Site(name, one) for name, one in clusters.items()]
        for site in sites:
            for user in ("admin", f"mirror-{site.name}"):
                login = site.login_file(user, "java.properties")
                wait_for(f"{user} has a login in {site.name}", login.exists, PATIENCE_S)
        yield sites[0], sites[1]
    finally:
        for one in clusters.values():
            one.stop()


def a_cluster(place: Path, name: str, port: int, way: str, mode: str) -> LocalCluster:
    declared = json.loads(
        log_cluster(
            authorization={"mode": mode, "superUsers": ["User:admin"]},
            config={"offsets.topic.num.partitions": 5, "group.initial.rebalance.delay.ms": 300},
        )
    )
    declared["metadata"]["name"] = name
    user = declared_user(way, name)
    if mode == "Audit":
        user["spec"]["acls"] = []
    file = place / f"{name}.yaml"
    file.write_text("\n---\n".join(map(json.dumps, (declared, user))))
    files = [file, FILES / f"orders-{name}.yaml"]
    arguments = ("--secure", "--port", str(port))
    # Two threads start them: what both fork would hold the other's pipes open.
    return LocalCluster(place / name, brokers=None, files=files, arguments=arguments, forked=False)


class Mirror:
    """One MirrorMaker 2 that writes to `target`, run as the Deployment runs it: when it ends, it
    is started again by whoever waits for it."""

    def __init__(self, place: Path, way: str, target: str) -> None:
        # Paths in the file begin in the directory of its log.
        self._log = place / f"{way}-{target}.log"
        file = str(FILES / way / "mirror.properties")
        words = command(application_jars(), MIRROR_MAKER, file, "--clusters", target)
        words[words.index("-Xmx256m")] = "-Xmx512m"
        self._words = words
        self._running: Application | None = None

    def __enter__(self) -> Mirror:
        self._running = Application(self._words, self._log)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._running is not None
        self._running.stop()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        assert self._running is not None
        pid = self._running.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def wait_until_nothing(self, lacks: Callable[[], str]) -> None:
        """`lacks`: what is still to be mirrored.  A client that finds no broker knows nothing."""
        deadline = time.monotonic() + PATIENCE_S
        told = ""
        while True:
            self._restart_ended()
            with contextlib.suppress(confluent_kafka.KafkaException):
                told = lacks()
                if not told:
                    return
            assert self._running is not None
            assert time.monotonic() < deadline, f"{told}\n{self._running.said()}"
            time.sleep(1)

    def _restart_ended(self) -> None:
        assert self._running is not None
        if self._running.process.poll() is not None:
            self._running = Application(self._words, self._log)


@dataclass(kw_only=True)
class Readers:
    """A group with one member, here or there; it commits what it has read."""

    # How often it has read each value.
    seen: Counter[bytes] = field(default_factory=Counter)

    def read(self, site: Site, topics: list[str], enough: Callable[[], bool]) -> Counter[bytes]:
        """Until it is enough; what it read."""
        before = self.seen.copy()
        consumer = confluent_kafka.Consumer(
            {
                **site.client,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(topics)
        deadline = time.monotonic() + PATIENCE_S
        while not enough():
            assert time.monotonic() < deadline, f"{len(self.seen)} values in {site.name}"
            messages = consumer.consume(500, 0.5)
            for message in messages:
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                self.seen[value] += 1
            if messages:
                consumer.commit(asynchronous=False)
        consumer.close()
        return self.seen - before

    def left(self, site: Site, topic: str) -> Left:
        """What its offsets there make of each partition."""
        consumer = confluent_kafka.Consumer({**site.client, "group.id": GROUP})
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        try:
            offsets = [one.offset for one in consumer.committed(places, timeout=20)]
        finally:
            consumer.close()
        parts = [held.at(offset) for held, offset in zip(site.held(topic), offsets, strict=True)]
        return Left(
            committed=min(offsets) >= 0,
            skipped=[value for before, _ in parts for value in before if value not in self.seen],
            again=[sum(value in self.seen for value in behind) for _, behind in parts],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Of a group that goes on at the offsets that it has in a cluster."""

    # Whether it has one in each partition.
    committed: bool
    # Values before its offsets that it has never read.
    skipped: list[bytes]
    # By partition, how many it would read again.
    again: list[int]

"""Three brokers of Plimsoll, or of Apache Kafka, as `bench.groups` uses them.

`__consumer_offsets` has one partition in both, so one broker coordinates; never node 0 of Kafka,
which is its controller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conformance.apache_kafka import ApacheKafka
from tests.integration.declared import log_cluster
from tests.integration.local_cluster import WAIT_S, LocalCluster, wait_for

OFFSETS = "__consumer_offsets"
BACK_S = 60.0
CLUSTER = log_cluster(
    storage={"size": "4Gi"},
    config={"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0},
)
_LOADED = re.compile(r"offsets loaded from (\d+) records in (\d+) ms")


class System(Protocol):
    """The part of a running cluster that a measurement uses."""

    @property
    def bootstrap(self) -> str: ...

    def pid(self, broker: int) -> int: ...

    def kill(self, broker: int) -> None:
        """Send SIGKILL."""

    def start_again(self, broker: int) -> None: ...

    def loads(self) -> list[tuple[int, int]]:
        """Records and milliseconds of each load that was logged."""


class Plimsoll:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._killed: dict[int, int] = {}

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def pid(self, broker: int) -> int:
        return self._cluster.pids[str(broker)]

    def kill(self, broker: int) -> None:
        self._killed[broker] = self._cluster.kill_broker(broker)

    def start_again(self, broker: int) -> None:
        """Wait until the cluster, which started the broker first, has restarted it."""
        self._cluster.wait_restarted(broker, self._killed.pop(broker))

    def loads(self) -> list[tuple[int, int]]:
        texts = [path.read_text() for path in (self._cluster.directory / "logs").glob("*.log")]
        return [(int(m[1]), int(m[2])) for text in texts for m in _LOADED.finditer(text)]


class Kafka:
    def __init__(self, cluster: ApacheKafka) -> None:
        self._cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def pid(self, broker: int) -> int:
        return self._cluster.processes[broker].pid

    def kill(self, broker: int) -> None:
        self._cluster.kill(broker)

    def start_again(self, broker: int) -> None:
        self._cluster.restart(broker)

    def loads(self) -> list[tuple[int, int]]:
        return []


@contextmanager
def plimsoll(directory: Path) -> Iterator[System]:
    directory.mkdir()
    file = directory / "cluster.yaml"
    file.write_text(CLUSTER)
    with LocalCluster(directory / "data", brokers=None, files=[file]) as cluster:
        yield Plimsoll(cluster)


@contextmanager
def kafka(directory: Path) -> Iterator[System]:
    configs = {"offsets.topic.num.partitions": "1"}
    with ApacheKafka(directory, brokers=3, configs=configs) as cluster:
        # Like the coordinator's own, but for the order of the replicas: the controller is last.
        compact = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
        made = NewTopic(OFFSETS, 1, replica_assignment=[[1, 2, 0]], config=compact)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([made]).values():
            future.result(WAIT_S)
        yield Kafka(cluster)


SYSTEMS = {"plimsoll": plimsoll, "kafka": kafka}


def address(system: System, broker: int) -> tuple[str, int]:
    host, _, port = system.bootstrap.split(",")[broker].rpartition(":")
    return host, int(port)


def create_topic(system: System, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": system.bootstrap})
    topic = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})
    for future in admin.create_topics([topic]).values():
        future.result(WAIT_S)
    wait_full(system, name)


def wait_full(system: System, *names: str) -> None:
    """Wait until every partition of the topics has a leader and three replicas in sync."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})

    def full() -> bool:
        with suppress(KafkaException):
            topics = admin.list_topics(timeout=5).topics
            return all(
                name in topics
                and all(
                    len(p.isrs) == 3 and p.leader >= 0 for p in topics[name].partitions.values()
                )
                for name in names
            )
        return False

    wait_for(f"three in sync in {names}", full, BACK_S, 0.2)


def rss_kb(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

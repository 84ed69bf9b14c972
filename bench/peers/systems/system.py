"""A system under measurement: how it is started, and the program that loads it."""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.peers.processor_time import Processes
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from plimsoll_process.parent import die_with_parent

ROOT = Path(__file__).resolve().parents[3]
BUILT = ROOT / ".cache" / "bench"
"""What is compiled for a measurement."""
READY_S = 180.0
SERVER_PROCESS: dict[str, Any] = {
    "start_new_session": True,
    "preexec_fn": partial(die_with_parent, os.getpid()),
}
"""How servers are started. Linux divides processors among sessions first, and `plimsoll local`
gives each broker one."""


class MissingError(Exception):
    """A system cannot be measured on this machine; the sentence says how to get what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The options with which a cluster is started. `replicas`: the number of processes, for a
    system that has one for each replica."""

    replicas: int = 3
    tls: bool = False


class System(ABC):
    """One cluster. Use it as a context manager."""

    name: str
    """Of its column."""

    def __init__(self, directory: Path, kind: Kind) -> None:
        self.directory = directory
        self.kind = kind

    @classmethod  # noqa: B027
    def prepare(cls) -> None:
        """Compile or fetch what is needed. Raises MissingError."""

    @classmethod
    def needed(cls, kind: Kind) -> Kind:
        """Return the kind of cluster on which rows of `kind` are measured together."""
        return Kind(tls=kind.tls)

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @property
    @abstractmethod
    def bootstrap(self) -> str: ...

    @abstractmethod
    def processes(self) -> Processes: ...

    @abstractmethod
    def kill(self, broker: int) -> None:
        """Send SIGKILL."""

    @abstractmethod
    def client(self) -> list[str]:
        """Return the command of the client; it takes a load in JSON as its argument."""

    def client_settings(self) -> dict[str, Any]:
        """Return what the client needs beside the addresses."""
        return {}

    @abstractmethod
    def make_log(self, name: str, partitions: int, replicas: int) -> None:
        """Make partitions, and wait until all replicas are in sync."""

    def first_ack(self, name: str) -> None:
        """Write one record, and wait until it is acknowledged."""
        raise NotImplementedError

    def __enter__(self) -> System:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class KafkaSystem(System):
    """A system that speaks the Kafka protocol."""

    def client(self) -> list[str]:
        return [sys.executable, "-m", "bench.peers.clients.kafka_client"]

    def _config(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **self.client_settings()}

    def admin(self) -> AdminClient:
        return AdminClient(self._config())

    def make_log(self, name: str, partitions: int, replicas: int) -> None:
        admin = self.admin()
        config = {"min.insync.replicas": str(min(2, replicas))}
        made = admin.create_topics([NewTopic(name, partitions, replicas, config=config)])
        made[name].result(READY_S)
        until = time.monotonic() + READY_S
        while not _full(admin, name, partitions, replicas):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name}: {name} is not in sync after {READY_S:.0f} s")
            time.sleep(0.05)

    def first_ack(self, name: str) -> None:
        errors: list[Any] = []
        producer = Producer({**self._config(), "acks": "all", "linger.ms": 0})
        producer.produce(name, b"x", partition=0, on_delivery=lambda e, _: errors.append(e))
        left = producer.flush(READY_S)
        if left or errors != [None]:
            raise TimeoutError(f"{self.name}: the first record was not acknowledged: {errors}")


def _full(admin: AdminClient, name: str, partitions: int, replicas: int) -> bool:
    try:
        topic = admin.list_topics(name, timeout=10).topics[name]
    except KafkaException:
        return False
    found = topic.partitions.values()
    return len(found) == partitions and all(
        one.leader >= 0 and len(one.isrs) == replicas for one in found
    )

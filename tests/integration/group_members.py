"""Members of groups for the tests: librdkafka consumers in threads, and what they saw."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import confluent_kafka

STOP_S = 30


class HasBootstrap(Protocol):
    """A cluster, whoever's."""

    @property
    def bootstrap(self) -> str: ...


class Member:
    """It commits each record that it read, and waits for the answer."""

    def __init__(self, cluster: HasBootstrap, topic: str, group: str, **config: object) -> None:
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        self.owned: set[int] = set()
        self.read: list[int] = []
        # By partition, in the order in which they were answered.
        self.committed: dict[int, list[int]] = {}
        self.times_assigned = 0
        self._ended = threading.Event()
        self._leaves = True
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assigned(self, _: object, partitions: list[Any]) -> None:
        self.times_assigned += 1
        self.owned |= {one.partition for one in partitions}

    def _revoked(self, _: object, partitions: list[Any]) -> None:
        self.owned -= {one.partition for one in partitions}

    def _run(self) -> None:
        while not self._ended.is_set():
            message = self.consumer.poll(0.1)
            if message is None or message.error():
                continue
            self.read.append(int(message.value()))
            try:
                done = self.consumer.commit(message, asynchronous=False)
            except confluent_kafka.KafkaException:
                continue
            for one in done:
                if one.error is None:
                    self.committed.setdefault(one.partition, []).append(one.offset)
        self.consumer.close()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(STOP_S)
        assert not self._thread.is_alive(), "a member does not leave"


def shared_out(members: list[Member], partitions: int) -> bool:
    """Whether every partition has one owner, and nobody has much more than others."""
    owned = sorted(partition for member in members for partition in member.owned)
    sizes = [len(member.owned) for member in members]
    return owned == list(range(partitions)) and max(sizes) - min(sizes) <= 1


def all_read(members: list[Member], last: int) -> bool:
    return {number for member in members for number in member.read} >= set(range(last))

"""The partitions on this broker.

`HostedPartitions`: the partitions that a broker hosts, by key and by name. Owned by
`ReplicaManager`.

`Hosted`: one partition on this broker: its replica, its log and their configs. `ReplicaManager`
makes and drops it; the whole data path passes it around.

`PartitionWatcher`: the interface by which the replica manager tells group coordinators of steps.

`MarkerTaker`: the interface by which they write the end markers of transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig, TimeLimits
from plimsoll_core.cluster.cluster_configs import BROKER_DEFAULTS, RETENTION_CHECK, own_integer
from plimsoll_core.cluster.model import Partition, PartitionKey, Topic
from plimsoll_core.cluster.topic_configs import COMPRESSION_TYPE, integer_of, raised
from plimsoll_core.cluster.topic_names import is_internal
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife
from plimsoll_core.replica.replica import Replica
from plimsoll_core.replica.replica_values import Append
from plimsoll_wire.compression import CODECS
from plimsoll_wire.control_records import EndMarker

MAX_MESSAGE_BYTES = 1_048_588


def effective_configs(topic: Topic | None, broker_configs: Mapping[str, str]) -> dict[str, str]:
    """Return a topic's configs, completed with the broker's defaults for those that the topic does
    not set."""
    configs = _defaults(broker_configs)
    if topic is not None:
        configs.update(topic.configs)
    return configs


def _defaults(broker_configs: Mapping[str, str]) -> dict[str, str]:
    return {
        name: broker_configs[default]
        for default, name in BROKER_DEFAULTS.items()
        if default in broker_configs
    }


def log_config(topic: Topic, broker_configs: Mapping[str, str]) -> LogConfig:
    """Return the storage config of a topic's logs, from the topic's configs and the broker's
    defaults. A value of the topic below its floor is raised, unless the topic is internal: its
    configs are the cluster's."""
    configs = effective_configs(topic, broker_configs)
    if not is_internal(topic.name):
        configs |= raised(topic.configs, _defaults(broker_configs))
    return LogConfig.of(
        configs,
        holes=topic.compacted,
        active_kept_ms=own_integer(broker_configs, RETENTION_CHECK),
        owner=owner_of(topic),
    )


def owner_of(topic: Topic) -> str:
    """Return the owner that the topic's segments and new partitions count for: its principal, or
    else its object's namespace, or else the topic itself."""
    declared = "" if topic.object is None else f"namespace {topic.object.namespace}"
    return topic.owner or declared or f"topic {topic.name}"


class Demand(NamedTuple):
    """What a topic's configs require of a produced batch. `keyed`: every record has a key, since
    the topic is compacted. `codec`: the compression codec to store; None keeps the producer's."""

    keyed: bool
    codec: int | None


class Hosted:
    """One partition that this broker hosts. `applied`: the partition's state in the metadata that
    was applied last, compared by identity. `source`: the leader from which the partition is
    fetched, the leader epoch, and the name of the rate limit of the copy or None; `source` is None
    if the partition is not fetched. `bytes_in`, `records_in` and `bytes_out` count producers' and
    consumers' traffic since the broker began to host it."""

    def __init__(self, topic: Topic, partition: Partition, log: Log, replica: Replica) -> None:
        self.key: PartitionKey = partition.key
        self.topic_id_bytes = topic.id.bytes
        self.name = topic.name
        self.log = log
        self.replica = replica
        self.applied: Partition | None = None
        self.bytes_in = self.records_in = self.bytes_out = 0
        self.source: tuple[int, int, str | None] | None = None
        self.topic: Topic | None = None
        # The principal that last wrote to it (`disk_shares`); empty if none has since it is here.
        self.writer = ""
        self.max_message_bytes = MAX_MESSAGE_BYTES
        self.log_append_time = False
        self.demand = Demand(keyed=False, codec=None)
        self.time_limits = TimeLimits()

    @property
    def place(self) -> tuple[str, int]:
        """The topic's name and the partition's index, by which the checkpoint files name the
        log."""
        return self.name, self.key.index

    def configure(self, topic: Topic, broker_configs: Mapping[str, str]) -> bool:
        """Apply the topic's configs, completed with the broker's defaults, to the log and the
        checks of produced batches, and return True. If this topic object has been applied already,
        do nothing and return False."""
        if topic is self.topic:
            return False
        self.topic = topic
        configs = effective_configs(topic, broker_configs)
        kept = log_config(topic, broker_configs)
        self.log.configure(kept)
        size = configs.get("max.message.bytes", "")
        self.max_message_bytes = int(size) if size.isdecimal() else MAX_MESSAGE_BYTES
        self.log_append_time = configs.get("message.timestamp.type") == "LogAppendTime"
        self.demand = Demand(
            keyed=kept.compact, codec=CODECS.get(configs.get(COMPRESSION_TYPE, ""))
        )
        self.time_limits = TimeLimits(
            integer_of(configs, "message.timestamp.before.max.ms"),
            integer_of(configs, "message.timestamp.after.max.ms"),
        )
        return True

    def __repr__(self) -> str:
        return f"{self.name}-{self.key.index}"


class HostedPartitions(dict[PartitionKey, Hosted]):
    """The partitions that a broker hosts, by key; `by_name` looks one up by topic name and index.
    Only items may be set and deleted: other dictionary methods would leave stale entries in its
    cache of names."""

    __slots__ = ("_by_name", "_topic_ids")

    def __init__(self) -> None:
        super().__init__()
        self._topic_ids: Mapping[str, UUID] = {}
        # Look-ups by name since the last change: a produce does two, and hashing a UUID is slow.
        self._by_name: dict[tuple[str, int], Hosted] = {}

    def named(self, topic_ids: Mapping[Any, Any]) -> None:
        """Use the map from topic names to topic ids of a new metadata image in `by_name` from now
        on."""
        self._topic_ids = topic_ids
        self._by_name.clear()

    def by_name(self, name: str, index: int) -> Hosted | None:
        """Return the partition of the topic that has this name in the newest image, or None if
        there is no such topic or the partition is not hosted."""
        hosted = self._by_name.get((name, index))
        if hosted is None and (topic_id := self._topic_ids.get(name)) is not None:
            hosted = self.get(PartitionKey(topic_id, index))
            if hosted is not None:
                self._by_name[name, index] = hosted
        return hosted

    def __setitem__(self, key: PartitionKey, hosted: Hosted) -> None:
        super().__setitem__(key, hosted)
        self._by_name.clear()

    def __delitem__(self, key: PartitionKey) -> None:
        super().__delitem__(key)
        self._by_name.clear()

    def take(self, key: PartitionKey) -> Hosted | None:
        """Remove and return the partition. Return None if it is not hosted."""
        self._by_name.clear()
        return self.pop(key, None)


class MarkerTaker(Protocol):
    """Writes the end markers of an internal topic's partitions in place of `MarkerWriter`.
    `Coordinators` implements it: a marker changes what its shard knows."""

    def write_marker(
        self, hosted: Hosted, producer: ProducerLife, marker: EndMarker
    ) -> Append | Code:
        """Append the marker, and return its place in the log, or the error."""


class PartitionWatcher(Protocol):
    """Gets a call after each step of a hosted partition: the processing of its events at the end of
    a turn of the event loop. `LedShards` implements it to learn of leadership changes of an
    internal topic."""

    def stepped(self, hosted: Hosted) -> None:
        """Handle a step of this partition: its role may have changed. The replica manager calls
        this before it answers waiting requests."""

"""The type that DescribeConfigs reports for each config (KIP-569), as in Kafka 4.1.

Called by DescribeConfigs alone. Tools validate values by it before they send them.
"""

from __future__ import annotations

from enum import IntEnum

from plimsoll_core.cluster.topic_configs import LISTS, MIN_ISR

NUM_PARTITIONS, DEFAULT_FACTOR = "num.partitions", "default.replication.factor"


class ConfigType(IntEnum):
    """As DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


_NAMES: dict[ConfigType, tuple[str, ...]] = {
    ConfigType.INT: (
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "group.initial.rebalance.delay.ms",
        "group.lag.series.max",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.min.session.timeout.ms",
        "index.interval.bytes",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.segment.bytes",
        "max.connections",
        "max.connections.per.ip",
        "max.message.bytes",
        "message.max.bytes",
        "metric.topic.series.max",
        MIN_ISR,
        DEFAULT_FACTOR,
        NUM_PARTITIONS,
        "num.replica.fetchers",
        "offset.metadata.max.bytes",
        "offsets.commit.timeout.ms",
        "offsets.retention.minutes",
        "offsets.topic.num.partitions",
        "offsets.topic.segment.bytes",
        "segment.bytes",
        "segment.index.bytes",
        "socket.request.max.bytes",
    ),
    ConfigType.SHORT: ("offsets.topic.replication.factor",),
    ConfigType.DOUBLE: (
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.min.cleanable.ratio",
        "min.cleanable.dirty.ratio",
    ),
    ConfigType.LIST: (*LISTS, "log.cleanup.policy"),
}
"""Configs whose type does not follow from their default; any other number is a LONG."""

_TYPES = {name: type_ for type_, names in _NAMES.items() for name in names}


def type_of(name: str, default: str) -> ConfigType:
    """Return the config's type; `default` tells booleans, longs and strings apart."""
    if (found := _TYPES.get(name)) is not None:
        return found
    if default in ("true", "false"):
        return ConfigType.BOOLEAN
    return ConfigType.LONG if default.lstrip("-").isdecimal() else ConfigType.STRING

"""The type that DescribeConfigs tells of each config (KIP-569), as Kafka 4.1 tells it.

Called by DescribeConfigs alone; tools check by it what they are given before they send it.
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
"""Those whose type their default does not tell: a number without a row here is a LONG."""

_TYPES = {name: type_ for type_, names in _NAMES.items() for name in names}


def type_of(name: str, default: str) -> ConfigType:
    """`default` tells booleans, longs and strings apart."""
    if (found := _TYPES.get(name)) is not None:
        return found
    if default in ("true", "false"):
        return ConfigType.BOOLEAN
    return ConfigType.LONG if default.lstrip("-").isdecimal() else ConfigType.STRING

"""The type that DescribeConfigs tells of each config (KIP-569), as Kafka 4.1 tells it.

Called by DescribeConfigs alone; tools check by it what they are given before they send it.
"""

from __future__ import annotations

from plimsoll_core.cluster.topic_configs import LISTS, MIN_ISR

_BOOLEAN = 1
_STRING = 2
_INT = 3
_SHORT = 4
_LONG = 5
_DOUBLE = 6
_LIST = 7

NUM_PARTITIONS, DEFAULT_FACTOR = "num.partitions", "default.replication.factor"

_OF_NAMES: dict[str, int] = {
    **dict.fromkeys((*LISTS, "log.cleanup.policy"), _LIST),
    **dict.fromkeys(
        (
            "log.cleaner.io.max.bytes.per.second",
            "log.cleaner.min.cleanable.ratio",
            "min.cleanable.dirty.ratio",
        ),
        _DOUBLE,
    ),
    "offsets.topic.replication.factor": _SHORT,
    **dict.fromkeys(
        (
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
        _INT,
    ),
}


def type_of(name: str, default: str) -> int:
    """`default` tells booleans, longs and strings apart."""
    found = _OF_NAMES.get(name)
    if found is not None:
        return found
    if default in ("true", "false"):
        return _BOOLEAN
    return _LONG if default.lstrip("-").isdecimal() else _STRING

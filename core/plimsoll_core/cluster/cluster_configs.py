"""The configs that a LogCluster gives its brokers: their types, limits and defaults.

Called when a LogCluster is applied, by brokers that act on the values, and by DescribeConfigs. A
key is listed here if a broker acts on it, including configs that are defaults of topic configs.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.cluster.config_keys import (
    INT32_MAX,
    INT64_MAX,
    ConfigKey,
    choice,
    integer,
    invalid,
)
from plimsoll_core.cluster.topic_configs import (
    AUTO_CREATE,
    BY_NAME,
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    INDEX_INTERVAL_MAX,
    MAX_LAG,
    MIN_LAG,
    UNCLEAN_RECOVERY,
    similar_to,
)
from plimsoll_core.errors import Refusal
from plimsoll_core.quotas.connections import per_ip_overrides

BROKER_DEFAULTS = {
    COMPRESSION_TYPE: COMPRESSION_TYPE,
    "log.segment.bytes": "segment.bytes",
    "log.roll.ms": "segment.ms",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.max.compaction.lag.ms": MAX_LAG,
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": MIN_LAG,
    "log.retention.ms": "retention.ms",
    "log.retention.bytes": "retention.bytes",
    "log.cleanup.policy": "cleanup.policy",
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "message.max.bytes": "max.message.bytes",
    UNCLEAN_RECOVERY: UNCLEAN_RECOVERY,
}
"""For each of Kafka's broker configs that is a default for topics: the topic config that falls back
to it."""

_COARSER = (
    ("log.retention.minutes", "log.retention.ms", 60_000),
    ("log.retention.hours", "log.retention.ms", 3_600_000),
    ("log.roll.hours", "log.roll.ms", 3_600_000),
)
"""Kafka's names for the same config in a longer unit: (name, name in milliseconds, factor). If a
user sets both, the one in milliseconds applies."""


RETENTION_CHECK = "log.retention.check.interval.ms"


def _bytes(name: str, doc: str) -> ConfigKey:
    """Return a config key for an amount of memory: -1, the default, or at least 4 MiB as a number
    of bytes."""
    plain = integer(name, -1, -1, INT64_MAX, doc)
    least = 4 * 2**20

    def parse(text: str) -> int | str | None:
        value = plain.parse(text)
        return value if isinstance(value, int) and (value == -1 or value >= least) else None

    wants = f"-1 or a whole number from {least} to {INT64_MAX}"
    return ConfigKey(name=name, default="-1", parse=parse, wants=wants, doc=doc)


OWN_KEYS = {
    key.name: key
    for key in (
        choice(
            AUTO_CREATE,
            ("false", "true"),
            "true: a topic is created when a client asks for it by name.",
        ),
        integer(
            "replica.lag.time.max.ms",
            30_000,
            1,
            INT32_MAX,
            "Longest time for which a follower may lack the end of the leader's log and stay in "
            "sync.",
        ),
        integer(
            "num.replica.fetchers",
            1,
            1,
            64,
            "Connections to each broker from which replicas are fetched.",
        ),
        integer(
            "log.index.size.max.bytes", 10_485_760, 4, INT32_MAX, "Maximum size of an index file."
        ),
        integer(
            "log.index.interval.bytes",
            4_096,
            0,
            INDEX_INTERVAL_MAX,
            "Bytes of a log between two entries of its index.",
        ),
        integer(
            RETENTION_CHECK,
            300_000,
            1,
            INT32_MAX,
            "Time after its last write before a log's newest segment may be deleted for its "
            "age; older segments are deleted as soon as they are due.",
        ),
        integer(
            "log.cleaner.backoff.ms",
            15_000,
            1,
            INT32_MAX,
            "Time between two checks for logs to compact.",
        ),
        integer(
            "log.cleaner.dedupe.buffer.size",
            134_217_728,
            24_576,
            INT32_MAX,
            "Memory for the keys of one compaction: 96 bytes and the key's size for each.",
        ),
        integer(
            "log.cleaner.io.max.bytes.per.second",
            INT64_MAX,
            1024,
            INT64_MAX,
            "Maximum rate at which compaction reads and writes.",
        ),
        integer(
            "max.connections",
            4_096,
            1,
            INT32_MAX,
            "Maximum number of clients' connections to a broker.",
        ),
        integer(
            "max.connections.per.ip",
            INT32_MAX,
            0,
            INT32_MAX,
            "Maximum number of connections of one address to a broker, over all listeners; an "
            "IPv6 address counts with its /64 network.",
        ),
        ConfigKey(
            name="max.connections.per.ip.overrides",
            default="",
            parse=lambda text: None if per_ip_overrides(text) is None else text,
            wants="addresses and numbers, such as 10.0.0.1:100,10.0.0.2:200",
            doc="Values of max.connections.per.ip for single addresses.",
        ),
        integer(
            "connections.max.idle.ms",
            600_000,
            1,
            INT32_MAX,
            "Time after which an idle client's connection is closed.",
        ),
        integer(
            "socket.request.max.bytes",
            104_857_600,
            2**20,
            INT32_MAX,
            "Maximum size of a Produce request.",
        ),
        _bytes("memory.limit.bytes", "Memory that a broker may use; -1: the container's limit."),
        _bytes(
            "queued.max.request.bytes",
            "Memory for clients' requests that are being received or processed; -1: an eighth "
            "of memory.limit.bytes.",
        ),
        _bytes(
            "queued.max.response.bytes",
            "Memory for replies that clients have not yet received; -1: a quarter of "
            "memory.limit.bytes.",
        ),
        integer(
            "offset.metadata.max.bytes",
            4_096,
            0,
            INT32_MAX,
            "Maximum size of the metadata of an offset commit.",
        ),
        integer(
            "offsets.commit.timeout.ms",
            5_000,
            1,
            INT32_MAX,
            "Longest wait of an offset commit for its replication.",
        ),
        integer(
            "offsets.retention.minutes",
            10_080,
            1,
            INT32_MAX,
            "How long offsets are kept after their group has become empty.",
        ),
        integer(
            "offsets.retention.check.interval.ms",
            600_000,
            1,
            INT32_MAX,
            "Time between two checks of a group for expired offsets.",
        ),
        integer("group.max.size", 2_000, 1, 2_000, "Maximum number of members of a group."),
        integer(
            "group.min.session.timeout.ms",
            6_000,
            1,
            INT32_MAX,
            "Least session timeout of a group's members.",
        ),
        integer(
            "group.max.session.timeout.ms",
            1_800_000,
            1,
            INT32_MAX,
            "Greatest session timeout of a group's members.",
        ),
        integer(
            "group.initial.rebalance.delay.ms",
            3_000,
            0,
            INT32_MAX,
            "How long a new group waits for more members.",
        ),
        integer(
            "group.lag.series.max",
            1_000,
            0,
            10_000,
            "Maximum number of pairs of group and topic with a lag metric per coordinator; "
            "those furthest behind are shown; 0: none.",
        ),
        integer(
            "metric.topic.series.max",
            0,
            0,
            1_000,
            "Maximum number of topics with their own metrics of bytes and records per broker; "
            "0: none.",
        ),
        integer(
            "offsets.topic.num.partitions",
            50,
            1,
            1_000,
            "Number of partitions of __consumer_offsets; fixed at its creation.",
        ),
        integer(
            "offsets.topic.replication.factor",
            3,
            1,
            32_767,
            "Number of replicas of __consumer_offsets once there are enough brokers.",
        ),
        integer(
            "offsets.topic.segment.bytes",
            104_857_600,
            1,
            INT32_MAX,
            "Segment size of __consumer_offsets.",
        ),
    )
}
"""The configs of the broker itself, by name. They are not defaults of topic configs."""

OF_SINGLE_BROKERS = frozenset(
    {
        "connections.max.idle.ms",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "memory.limit.bytes",
        "metric.topic.series.max",
        "num.replica.fetchers",
        "queued.max.request.bytes",
        "queued.max.response.bytes",
    }
)
"""The configs that may differ between the brokers of a cluster. By the others, brokers that lead a
partition or a group in turn would treat it differently."""

OWN_DEFAULTS = {name: key.default for name, key in OWN_KEYS.items()}
"""The default of each of the broker's own configs, as text, by name."""


def own_integer(configs: Mapping[str, str], name: str) -> int:
    """Return the value of the broker's own config `name`, a key of `OWN_KEYS` with a whole number
    as value, or its default if `configs` does not set it. `configs` must have passed
    `broker_configs`."""
    key = OWN_KEYS[name]
    value = key.parse(configs.get(name, key.default))
    assert isinstance(value, int), f"{name} was not checked"
    return value


def broker_configs(configs: Mapping[str, str]) -> dict[str, str] | Refusal:
    """Return a LogCluster's configs as its brokers read them: log retention and roll time stated in
    minutes or hours become the config in milliseconds, unless that is set too. Return a Refusal if
    a name is unknown, a value is invalid, or the default cleanup policy is not delete."""
    found = dict(configs)
    for coarse, fine, factor in _COARSER:
        text = found.pop(coarse, None)
        if text is None:
            continue
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(text) <= 9):
            return invalid(
                f"The broker config {coarse} must be a whole number, not {text[:100]!r}."
            )
        found.setdefault(fine, str(-1 if int(text) < 0 else int(text) * factor))
    for name, text in sorted(found.items()):
        key = OWN_KEYS.get(name) or BY_NAME.get(BROKER_DEFAULTS.get(name, ""))
        if key is None:
            known = sorted({*BROKER_DEFAULTS, *OWN_KEYS, *(coarse for coarse, _, _ in _COARSER)})
            return invalid(f"There is no broker config {name[:100]}; {similar_to(name, known)}.")
        if key.parse(text) is None:
            return invalid(f"The broker config {name} must be {key.wants}, not {text[:100]!r}.")
        if key.name == CLEANUP_POLICY and text.strip() != "delete":
            return invalid(
                f"The broker config {name} can only be delete: records of a compacted topic need "
                f"keys, and a topic that deletes nothing fills its volume. Set {CLEANUP_POLICY} "
                "in single topics instead."
            )
    return found

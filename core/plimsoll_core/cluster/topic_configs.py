"""The configs that a topic may have: their types, limits and defaults, in one table.

Called when a topic is created or declared, by brokers that act on the values, and by
DescribeConfigs. A key is listed here if the broker acts on it, or if Kafka knows it and only
Kafka's default is accepted, so that clients may state the default. `min.insync.replicas` is not
listed: it is a field of the partition, where a leader's proposals are checked against it. Clients
may give it as a config, which `split_min_isr` turns into the field; a topic's configs then name it
too, so that it can be distinguished from the cluster's default. `canonical` replaces older names of
the configs in the table, and spells values as they are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from plimsoll_core.cluster.config_keys import (
    INT32_MAX,
    INT64_MAX,
    ConfigKey,
    choice,
    fixed,
    integer,
    invalid,
    policies,
    share,
)
from plimsoll_core.cluster.model import UncleanRecovery
from plimsoll_core.errors import Refusal

CLEANUP_POLICY = "cleanup.policy"
COMPRESSION_TYPE = "compression.type"
AS_PRODUCED = "producer"
MAX_LAG, MIN_LAG = "max.compaction.lag.ms", "min.compaction.lag.ms"
MIN_ISR = "min.insync.replicas"
UNCLEAN_RECOVERY = "unclean.recovery.strategy"
UNCLEAN_ENABLE = "unclean.leader.election.enable"
"""Kafka's older config for unclean elections. Its value true means the strategy Proactive, false
means Balanced."""
SEGMENT_BYTES = "segment.bytes"
SEGMENT_INDEX_BYTES = "segment.index.bytes"
SEGMENT_MS = "segment.ms"
CLIENT_SEGMENT_BYTES_MIN = 2**20
"""Kafka's least segment size, in bytes, for clients' topics."""
FLOORS = {
    SEGMENT_BYTES: 64 * 1024,
    SEGMENT_INDEX_BYTES: 64 * 1024,
    SEGMENT_MS: 60_000,
    MAX_LAG: 60_000,
}
"""The least values that a topic may state for configs by which one batch could make one segment,
which costs four files and memory. Brokers raise lower stored values (`raised`)."""
INDEX_INTERVAL = "index.interval.bytes"
INDEX_INTERVAL_MAX = 64 * 1024
"""The largest distance, in bytes, of two entries of an index. A read searches that far for its
first batch."""
AUTO_CREATE = "auto.create.topics.enable"

_NO_TIERS = "brokers keep all segments on their own volume"
_ONE_LEVEL = "brokers compress with each codec's own default level"
_NO_THROTTLED_REPLICAS = (
    "the speed of moves is the LogCluster's spec.movement.bytesPerSecond, or a Reassignment's"
)

KEYS: tuple[ConfigKey, ...] = (
    ConfigKey(
        name=CLEANUP_POLICY,
        default="delete",
        parse=policies,
        wants="delete, compact, compact,delete or empty",
        doc="Treatment of old segments. delete: they are deleted by age or size; compact: only "
        "the last record of each key stays; empty: they stay until a client deletes "
        "records.",
    ),
    fixed("compression.gzip.level", "-1", _ONE_LEVEL),
    fixed("compression.lz4.level", "9", _ONE_LEVEL),
    choice(
        COMPRESSION_TYPE,
        (AS_PRODUCED, "uncompressed", "zstd", "lz4", "snappy", "gzip"),
        "Codec of stored batches: the producer's, or one for all.",
    ),
    fixed("compression.zstd.level", "3", _ONE_LEVEL),
    integer(
        "delete.retention.ms",
        86_400_000,
        0,
        INT64_MAX,
        "How long a compacted topic keeps a tombstone, which is a record without a value "
        "that deletes its key.",
    ),
    fixed("file.delete.delay.ms", "60000", "files are deleted at once when nothing reads them"),
    integer(
        "flush.messages",
        INT64_MAX,
        1,
        INT64_MAX,
        "Number of records after which the log is flushed to disk.",
    ),
    integer(
        "flush.ms", INT64_MAX, 0, INT64_MAX, "Longest time between two flushes of the log to disk."
    ),
    fixed("follower.replication.throttled.replicas", "", _NO_THROTTLED_REPLICAS),
    integer(
        INDEX_INTERVAL,
        4_096,
        0,
        INDEX_INTERVAL_MAX,
        "Bytes of the log between two entries of its index.",
    ),
    fixed("leader.replication.throttled.replicas", "", _NO_THROTTLED_REPLICAS),
    fixed("local.retention.bytes", "-2", _NO_TIERS),
    fixed("local.retention.ms", "-2", _NO_TIERS),
    integer(
        MAX_LAG,
        INT64_MAX,
        1,
        INT64_MAX,
        "Longest time that a record of a compacted topic waits for compaction.",
    ),
    integer("max.message.bytes", 1_048_588, 0, INT32_MAX, "Maximum size of a record batch."),
    integer(
        "message.timestamp.after.max.ms",
        3_600_000,
        0,
        INT64_MAX,
        "Furthest that a record's timestamp may be ahead of the broker's clock.",
    ),
    integer(
        "message.timestamp.before.max.ms",
        INT64_MAX,
        0,
        INT64_MAX,
        "Furthest that a record's timestamp may be behind the broker's clock.",
    ),
    choice(
        "message.timestamp.type",
        ("CreateTime", "LogAppendTime"),
        "Timestamp of records: the producer's (CreateTime) or the broker's (LogAppendTime).",
    ),
    share(
        "min.cleanable.dirty.ratio",
        "0.5",
        "Share of a compacted log that may be uncompacted before compaction begins.",
    ),
    integer(MIN_LAG, 0, 0, INT64_MAX, "Least age at which compaction may remove a record."),
    fixed("preallocate", "false", "segments grow as they are written"),
    fixed("remote.log.copy.disable", "false", _NO_TIERS),
    fixed("remote.log.delete.on.disable", "false", _NO_TIERS),
    fixed("remote.storage.enable", "false", _NO_TIERS),
    integer(
        "retention.bytes",
        -1,
        -1,
        INT64_MAX,
        "Size of a partition above which old segments are deleted; -1: no limit.",
    ),
    integer(
        "retention.ms",
        604_800_000,
        -1,
        INT64_MAX,
        "Age at which segments are deleted; -1: never.",
    ),
    integer("segment.bytes", 1_073_741_824, 14, INT32_MAX, "Size at which a new segment starts."),
    integer("segment.index.bytes", 10_485_760, 4, INT32_MAX, "Maximum size of an index file."),
    fixed("segment.jitter.ms", "0", "segments begin at their own age"),
    integer("segment.ms", 604_800_000, 1, INT64_MAX, "Age of a segment at which a new one starts."),
    choice(
        UNCLEAN_RECOVERY,
        ("Balanced", "Proactive", "Manual"),
        "Leader of a partition when no replica certainly has all committed records: the most "
        "complete replica, after every replica that may have them has reported (Balanced); the "
        "most complete of those that report within seconds (Proactive); or the replica that a "
        "user names (Manual).",
        any_case=True,
    ),
)

BY_NAME: dict[str, ConfigKey] = {key.name: key for key in KEYS}

LISTS = frozenset(
    {
        "cleanup.policy",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    }
)
"""The keys with a list as value. A client may append items to it and subtract items from it
(IncrementalAlterConfigs)."""

_MIN_ISR_KEY = integer(
    MIN_ISR, 1, 1, INT32_MAX, "Number of in-sync replicas that a write with acks=all needs."
)


NAME_COMPARED_MAX = 100
NAME_SHOWN_MAX = 249
VALUE_LENGTH_MAX = 4_096
"""The most characters of a config's value in a client's request. No valid value is as long."""


def too_long(name: str, text: str | None) -> Refusal | None:
    """Return a Refusal if the name or the value of a client's config is longer than any valid one,
    so that the controller need not look at it; None otherwise."""
    if len(name) > NAME_SHOWN_MAX:
        return invalid(
            f"There is no topic config {name[:NAME_SHOWN_MAX]}...: the name is too long."
        )
    if text is not None and len(text) > VALUE_LENGTH_MAX:
        return invalid(
            f"The value of {name} has {len(text)} characters; at most {VALUE_LENGTH_MAX} are"
            " allowed."
        )
    return None


def check_configs(configs: Mapping[str, str]) -> Refusal | None:
    """Return a Refusal for the first config with an unknown name or an invalid value, or None if
    all are valid."""
    for name, text in sorted(configs.items()):
        key = BY_NAME.get(name)
        if name == MIN_ISR:
            return invalid(
                f"{MIN_ISR} is no config of a Topic: set spec.minInSyncReplicas instead."
            )
        if key is None:
            return invalid(
                f"There is no topic config {name[:NAME_SHOWN_MAX]}; {similar_to(name, BY_NAME)}."
            )
        if key.parse(text) is None:
            return invalid(f"The topic config {name} must be {key.wants}, not {text[:100]!r}.")
    lags = MIN_LAG in configs or MAX_LAG in configs
    if lags and integer_of(configs, MIN_LAG) > integer_of(configs, MAX_LAG):
        return invalid(f"The topic config {MIN_LAG} must not be greater than {MAX_LAG}.")
    return None


def below_floor(
    configs: Mapping[str, str],
    before: Mapping[str, str],
    floors: Mapping[str, int] = FLOORS,
    suffix: str = "",
) -> Refusal | None:
    """Return a Refusal for the first of the checked configs that is below its floor, and is not
    what the topic has `before`. `suffix`: the end of the message's sentence."""
    for name, least in floors.items():
        text = configs.get(name)
        if text is None or text == before.get(name):
            continue
        if integer_of(configs, name) < least:
            return invalid(f"The topic config {name} must be at least {least}{suffix}.")
    return None


def raised(stated: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the configs of a topic that are below their floors, with the values that a broker uses
    in their place: the floor, or the broker's default if that is lower. `stated`: the topic's own
    configs. `defaults`: the broker's, by the topic configs' names."""
    found: dict[str, str] = {}
    for name, floor in FLOORS.items():
        value = BY_NAME[name].parse(stated.get(name, ""))
        if isinstance(value, int) and value < floor:
            default = BY_NAME[name].parse(defaults.get(name, ""))
            least = min(floor, default) if isinstance(default, int) else floor
            found[name] = str(max(value, least))
    return found


def similar_to(name: str, known: Iterable[str]) -> str:
    """Return a clause for an error message that lists the names in `known` that are similar to
    `name`, or says that there is none."""
    similar = get_close_matches(name[:NAME_COMPARED_MAX], list(known))
    return f"similar are {', '.join(similar)}" if similar else "none of Kafka's is similar"


def compacts(configs: Mapping[str, str]) -> bool:
    """Return True if `cleanup.policy` includes compact: only the last record of each key is
    kept."""
    return "compact" in configs.get(CLEANUP_POLICY, "")


def deletes(configs: Mapping[str, str]) -> bool:
    """Return True if `cleanup.policy` includes delete, the default: old segments are deleted by age
    and size."""
    return "delete" in configs.get(CLEANUP_POLICY, "delete")


def keeps_everything(configs: Mapping[str, str]) -> bool:
    """Return True if `cleanup.policy` is the empty list: segments are neither deleted nor compacted
    (KIP-1161)."""
    return not compacts(configs) and not deletes(configs)


class ClientConfigs(NamedTuple):
    """A client's checked configs. `kept`: what the topic stores, `min.insync.replicas` included.
    `min_isr`: that config's value as a number, None if the client did not set it."""

    kept: dict[str, str]
    min_isr: int | None


def client_configs(
    configs: Mapping[str, str], before: Mapping[str, str] | None = None
) -> ClientConfigs | Refusal:
    """Check the configs that a client sets for a topic and return them as they are stored, or a
    Refusal. `before` holds the topic's present configs: a value below its floor is accepted if it
    does not change; an unchanged index interval above
    INDEX_INTERVAL_MAX, which was allowed earlier, is replaced by INDEX_INTERVAL_MAX."""
    split = split_min_isr(configs)
    if isinstance(split, Refusal):
        return split
    rest, min_isr = split
    kept = canonical({name: _trimmed(text) for name, text in rest.items()})
    if isinstance(kept, Refusal):
        return kept
    interval = kept.get(INDEX_INTERVAL, "")
    if before and interval == before.get(INDEX_INTERVAL) and interval.isdecimal():
        kept[INDEX_INTERVAL] = str(min(int(interval), INDEX_INTERVAL_MAX))
    if refusal := check_configs(kept):
        return refusal
    kept = {name: str(BY_NAME[name].parse(text)) for name, text in kept.items()}
    floors = {**FLOORS, SEGMENT_BYTES: CLIENT_SEGMENT_BYTES_MIN}
    if refusal := below_floor(kept, before or {}, floors, " for clients"):
        return refusal
    return ClientConfigs(kept if min_isr is None else {**kept, MIN_ISR: str(min_isr)}, min_isr)


def _trimmed(text: str) -> str:
    """Return a config's text without what Kafka ignores: blanks around it, and the plus sign of a
    number."""
    text = text.strip()
    digits = text.removeprefix("+")
    return digits if digits.isdecimal() else text


def split_min_isr(configs: Mapping[str, str]) -> tuple[dict[str, str], int | None] | Refusal:
    """Return a client's configs without `min.insync.replicas`, and its value or None. Return a
    Refusal if the value is invalid."""
    rest = {name: text for name, text in configs.items() if name != MIN_ISR}
    text = configs.get(MIN_ISR)
    if text is None:
        return rest, None
    value = _MIN_ISR_KEY.parse(_trimmed(text))
    if not isinstance(value, int):
        return invalid(f"{MIN_ISR} must be {_MIN_ISR_KEY.wants}, not {text[:100]!r}.")
    return rest, value


def canonical(configs: Mapping[str, str]) -> dict[str, str] | Refusal:
    """Return a client's configs with `unclean.leader.election.enable` replaced by the strategy that
    it means, and the strategy spelled as it is stored. Other configs are not checked. Return a
    Refusal if the older config has an invalid value or contradicts the strategy."""
    found = dict(configs)
    text = found.pop(UNCLEAN_ENABLE, None)
    strategy = BY_NAME[UNCLEAN_RECOVERY].parse(found.get(UNCLEAN_RECOVERY, ""))
    if strategy is not None:
        found[UNCLEAN_RECOVERY] = str(strategy)
    if text is None:
        return found
    meant = {"true": "Proactive", "false": "Balanced"}.get(text.lower())
    if meant is None:
        return invalid(f"{UNCLEAN_ENABLE} must be true or false, not {text[:100]!r}.")
    if found.setdefault(UNCLEAN_RECOVERY, meant) != meant:
        return invalid(
            f"{UNCLEAN_ENABLE}={text} means {UNCLEAN_RECOVERY}={meant}, which contradicts "
            f"{found[UNCLEAN_RECOVERY][:100]!r}; give one of the two."
        )
    return found


def unclean_recovery(configs: Mapping[str, str], default: UncleanRecovery) -> UncleanRecovery:
    """Return the unclean recovery strategy in a topic's configs. Return `default`, the cluster's
    strategy, if the configs do not set one."""
    match configs.get(UNCLEAN_RECOVERY, default):
        case "Manual":
            return "Manual"
        case "Proactive":
            return "Proactive"
        case _:
            return "Balanced"


def value_of(configs: Mapping[str, str], name: str) -> int | str:
    """Return the parsed value of a config, or its default if `configs` does not set it. `configs`
    has been checked."""
    key = BY_NAME[name]
    value = key.parse(configs.get(name, key.default))
    assert value is not None, f"{name} was not checked"
    return value


def integer_of(configs: Mapping[str, str], name: str) -> int:
    value = value_of(configs, name)
    assert isinstance(value, int), f"{name} is not a number"
    return value

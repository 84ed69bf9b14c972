"""Which configs a topic may have: their types, limits and defaults, in one table.

Called when a topic is created or declared, by brokers that act on the values, and by
DescribeConfigs.  A key stands here when the broker really acts on it, or when Kafka knows it and
its only value here is Kafka's default: clients that state the default are right.
`min.insync.replicas` is not among them: it lives in the partition, where a leader's proposals are
checked against it; clients may give it as a config, which `split_min_isr` turns into the field; a
topic's configs then name it too, so that it can be told from the cluster's default.  `canonical`
knows older names of what stands here, and the spelling that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from plimsoll_core.cluster.model import UncleanRecovery
from plimsoll_core.errors import Reason, Refusal

CLEANUP_POLICY = "cleanup.policy"
MAX_LAG, MIN_LAG = "max.compaction.lag.ms", "min.compaction.lag.ms"
MIN_ISR = "min.insync.replicas"
UNCLEAN_RECOVERY = "unclean.recovery.strategy"
UNCLEAN_ENABLE = "unclean.leader.election.enable"
"""Kafka's older name: true is Proactive, false is Balanced."""
SEGMENT_BYTES = "segment.bytes"
CLIENT_SEGMENT_BYTES_MIN = 2**20
"""Kafka's least.  An owner may declare smaller ones; a client could have a file for each batch."""
AUTO_CREATE = "auto.create.topics.enable"
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Parse = Callable[[str], int | str | None]
"""The value of a text, or None when it is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One key; `wants` completes the sentence "… must be"."""

    name: str
    default: str
    parse: Parse
    wants: str
    doc: str


def _integer(name: str, default: int, least: int, most: int, doc: str) -> ConfigKey:
    def parse(text: str) -> int | None:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            return None
        value = int(text)
        return value if least <= value <= most else None

    wants = f"a whole number from {least} to {most}"
    return ConfigKey(name=name, default=str(default), parse=parse, wants=wants, doc=doc)


def _choice(name: str, choices: tuple[str, ...], doc: str, *, any_case: bool = False) -> ConfigKey:
    """`any_case`: capitals do not matter; the value is spelled as in `choices`."""
    spelled = {choice.lower() if any_case else choice: choice for choice in choices}

    def parse(text: str) -> str | None:
        return spelled.get(text.lower() if any_case else text)

    wants = " or ".join(choices)
    return ConfigKey(name=name, default=choices[0], parse=parse, wants=wants, doc=doc)


def _fixed(name: str, default: str, why: str) -> ConfigKey:
    """Known to Kafka, without effect here: only its default is accepted."""

    def parse(text: str) -> str | None:
        return default if text.lower() == default else None

    wants = f"{default or 'empty'}: {why}"
    return ConfigKey(name=name, default=default, parse=parse, wants=wants, doc=f"Fixed: {why}.")


_NO_TIERS = "brokers keep all segments on their own volume"
_AS_SENT = "brokers compress nothing"
_NO_THROTTLED_REPLICAS = (
    "the speed of moves is the LogCluster's spec.movement.bytesPerSecond, or a Reassignment's"
)


def _policies(text: str) -> str | None:
    """Kafka's list of one or both; which comes first does not matter."""
    found = [each.strip() for each in text.split(",")]
    return ",".join(sorted(found)) if found and set(found) <= {"compact", "delete"} else None


def _share(name: str, default: str, doc: str) -> ConfigKey:
    """A number from 0 to 1, as its text."""

    def parse(text: str) -> str | None:
        digits = text.replace(".", "", 1)
        plain = digits.isascii() and digits.isdigit() and len(text) <= 20
        return text if plain and 0 <= float(text) <= 1 else None

    return ConfigKey(name=name, default=default, parse=parse, wants="from 0 to 1", doc=doc)


KEYS: tuple[ConfigKey, ...] = (
    ConfigKey(
        name=CLEANUP_POLICY,
        default="delete",
        parse=_policies,
        wants="delete, compact or compact,delete",
        doc="What happens to old segments: they go, or only the last record of each key stays.",
    ),
    _fixed("compression.gzip.level", "-1", _AS_SENT),
    _fixed("compression.lz4.level", "9", _AS_SENT),
    _choice("compression.type", ("producer",), "Batches are kept as the producer sent them."),
    _fixed("compression.zstd.level", "3", _AS_SENT),
    _integer(
        "delete.retention.ms",
        86_400_000,
        0,
        INT64_MAX,
        "How long a compacted topic keeps the record without a value that deletes a key.",
    ),
    _fixed("file.delete.delay.ms", "60000", "files go at once when nothing reads them"),
    _integer("flush.messages", INT64_MAX, 1, INT64_MAX, "Flush to disk after this many records."),
    _integer("flush.ms", INT64_MAX, 0, INT64_MAX, "Flush to disk at least this often."),
    _fixed("follower.replication.throttled.replicas", "", _NO_THROTTLED_REPLICAS),
    _integer("index.interval.bytes", 4_096, 0, INT32_MAX, "Bytes between index entries."),
    _fixed("leader.replication.throttled.replicas", "", _NO_THROTTLED_REPLICAS),
    _fixed("local.retention.bytes", "-2", _NO_TIERS),
    _fixed("local.retention.ms", "-2", _NO_TIERS),
    _integer(
        MAX_LAG,
        INT64_MAX,
        1,
        INT64_MAX,
        "A compacted topic is cleaned once a record has waited for so long.",
    ),
    _integer(
        "max.message.bytes", 1_048_588, 0, INT32_MAX, "The largest record batch that is accepted."
    ),
    _integer(
        "message.timestamp.after.max.ms",
        3_600_000,
        0,
        INT64_MAX,
        "How far ahead of the broker's clock a producer's time may be.",
    ),
    _integer(
        "message.timestamp.before.max.ms",
        INT64_MAX,
        0,
        INT64_MAX,
        "How far behind the broker's clock a producer's time may be.",
    ),
    _choice(
        "message.timestamp.type",
        ("CreateTime", "LogAppendTime"),
        "Whether a record carries its producer's time or its broker's.",
    ),
    _share(
        "min.cleanable.dirty.ratio",
        "0.5",
        "A compacted topic is cleaned once so much of it was never cleaned.",
    ),
    _integer(
        MIN_LAG, 0, 0, INT64_MAX, "No record of a compacted topic is superseded before this age."
    ),
    _fixed("preallocate", "false", "segments grow as they are written"),
    _fixed("remote.log.copy.disable", "false", _NO_TIERS),
    _fixed("remote.log.delete.on.disable", "false", _NO_TIERS),
    _fixed("remote.storage.enable", "false", _NO_TIERS),
    _integer(
        "retention.bytes", -1, -1, INT64_MAX, "Old segments go above this size; -1: never for size."
    ),
    _integer(
        "retention.ms",
        604_800_000,
        -1,
        INT64_MAX,
        "Segments older than this go; -1: never for age.",
    ),
    _integer("segment.bytes", 1_073_741_824, 14, INT32_MAX, "A new segment starts at this size."),
    _integer("segment.index.bytes", 10_485_760, 4, INT32_MAX, "The size of an index."),
    _fixed("segment.jitter.ms", "0", "segments begin at their own age"),
    _integer("segment.ms", 604_800_000, 1, INT64_MAX, "A new segment starts at this age."),
    _choice(
        UNCLEAN_RECOVERY,
        ("Balanced", "Proactive", "Manual"),
        "The leader when every complete replica is lost: the most complete of all that may be "
        "(Balanced), of those that answer soon (Proactive), or whom a human names (Manual).",
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
"""The keys whose values are lists: a client may add and take away items."""

_MIN_ISR_KEY = _integer(MIN_ISR, 1, 1, INT32_MAX, "How many in-sync replicas a commit needs.")


def check_configs(configs: Mapping[str, str]) -> Refusal | None:
    """Whether every key is known and every value of its type."""
    for name, text in sorted(configs.items()):
        key = BY_NAME.get(name)
        if name == MIN_ISR:
            return _refuse(f"{MIN_ISR} is the topic's own field minInSyncReplicas, not a config.")
        if key is None:
            known = ", ".join(BY_NAME)
            return _refuse(
                f"There is no topic config {name}; known are {known}, and {MIN_ISR} (in a Topic "
                "object: spec.minInSyncReplicas)."
            )
        if key.parse(text) is None:
            return _refuse(f"{name} must be {key.wants}, not {text[:100]!r}.")
    if integer_of(configs, MIN_LAG) > integer_of(configs, MAX_LAG):
        return _refuse(f"{MIN_LAG} must not be greater than {MAX_LAG}.")
    return None


def compacts(configs: Mapping[str, str]) -> bool:
    """Whether only the last record of each key stays."""
    return "compact" in configs.get(CLEANUP_POLICY, "")


class ClientConfigs(NamedTuple):
    """A client's configs, checked, as they are kept; and the min ISR among them."""

    kept: dict[str, str]
    min_isr: int | None


def client_configs(
    configs: Mapping[str, str], before: Mapping[str, str] | None = None
) -> ClientConfigs | Refusal:
    """What a topic without an object is to have; `before`: what it has now, which may stay."""
    split = split_min_isr(configs)
    if isinstance(split, Refusal):
        return split
    rest, min_isr = split
    kept = canonical({name: _trimmed(text) for name, text in rest.items()})
    if isinstance(kept, Refusal):
        return kept
    if refusal := check_configs(kept):
        return refusal
    kept = {name: str(BY_NAME[name].parse(text)) for name, text in kept.items()}
    size = kept.get(SEGMENT_BYTES)
    new = size is not None and size != (before or {}).get(SEGMENT_BYTES)
    if new and integer_of(kept, SEGMENT_BYTES) < CLIENT_SEGMENT_BYTES_MIN:
        return _refuse(f"{SEGMENT_BYTES} must be at least {CLIENT_SEGMENT_BYTES_MIN} here.")
    return ClientConfigs(kept if min_isr is None else {**kept, MIN_ISR: str(min_isr)}, min_isr)


def _trimmed(text: str) -> str:
    """Without what Kafka overlooks: blanks around it, the sign of a number above zero."""
    text = text.strip()
    digits = text.removeprefix("+")
    return digits if digits.isdecimal() else text


def split_min_isr(configs: Mapping[str, str]) -> tuple[dict[str, str], int | None] | Refusal:
    """A client's configs without `min.insync.replicas`, and its value."""
    rest = {name: text for name, text in configs.items() if name != MIN_ISR}
    text = configs.get(MIN_ISR)
    if text is None:
        return rest, None
    value = _MIN_ISR_KEY.parse(_trimmed(text))
    if not isinstance(value, int):
        return _refuse(f"{MIN_ISR} must be {_MIN_ISR_KEY.wants}, not {text[:100]!r}.")
    return rest, value


def canonical(configs: Mapping[str, str]) -> dict[str, str] | Refusal:
    """A client's configs by the names and in the spelling that are kept."""
    found = dict(configs)
    text = found.pop(UNCLEAN_ENABLE, None)
    strategy = BY_NAME[UNCLEAN_RECOVERY].parse(found.get(UNCLEAN_RECOVERY, ""))
    if strategy is not None:
        found[UNCLEAN_RECOVERY] = str(strategy)
    if text is None:
        return found
    meant = {"true": "Proactive", "false": "Balanced"}.get(text.lower())
    if meant is None:
        return _refuse(f"{UNCLEAN_ENABLE} must be true or false, not {text[:100]!r}.")
    if found.setdefault(UNCLEAN_RECOVERY, meant) != meant:
        return _refuse(
            f"{UNCLEAN_ENABLE}={text} means {UNCLEAN_RECOVERY}={meant}, which contradicts "
            f"{found[UNCLEAN_RECOVERY][:100]!r}; give one of the two."
        )
    return found


def unclean_recovery(configs: Mapping[str, str], default: UncleanRecovery) -> UncleanRecovery:
    """A topic's own strategy, or else the cluster's."""
    match configs.get(UNCLEAN_RECOVERY, default):
        case "Manual":
            return "Manual"
        case "Proactive":
            return "Proactive"
        case _:
            return "Balanced"


def value_of(configs: Mapping[str, str], name: str) -> int | str:
    """A config's value, or its default; `configs` has been checked."""
    key = BY_NAME[name]
    value = key.parse(configs.get(name, key.default))
    assert value is not None, f"{name} was not checked"
    return value


def integer_of(configs: Mapping[str, str], name: str) -> int:
    value = value_of(configs, name)
    assert isinstance(value, int), f"{name} is not a number"
    return value


def _refuse(message: str) -> Refusal:
    return Refusal(reason=Reason.InvalidConfig, message=message)


# --- the broker's own ----------------------------------------------------------------------------

BROKER_DEFAULTS = {
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
"""The broker's config that stands in where a topic does not say: Kafka's pairs."""

_COARSER = (
    ("log.retention.minutes", "log.retention.ms", 60_000),
    ("log.retention.hours", "log.retention.ms", 3_600_000),
    ("log.roll.hours", "log.roll.ms", 3_600_000),
)
"""Kafka's names for the same in longer units; the finer one wins."""


def _bytes(name: str, doc: str) -> ConfigKey:
    """A size of memory that can hold anything at all, or -1."""
    plain = _integer(name, -1, -1, INT64_MAX, doc)
    least = 4 * 2**20

    def parse(text: str) -> int | str | None:
        value = plain.parse(text)
        return value if isinstance(value, int) and (value == -1 or value >= least) else None

    wants = f"-1 or a whole number from {least} to {INT64_MAX}"
    return ConfigKey(name=name, default="-1", parse=parse, wants=wants, doc=doc)


_OWN = {
    key.name: key
    for key in (
        _choice(
            AUTO_CREATE,
            ("false", "true"),
            "Whether a topic is made that a client asks for by its name.",
        ),
        _integer("replica.lag.time.max.ms", 30_000, 1, INT32_MAX, "How far behind in sync may be."),
        _integer("num.replica.fetchers", 1, 1, 64, "Connections to each leader that is followed."),
        _integer("log.index.size.max.bytes", 10_485_760, 4, INT32_MAX, "The size of an index."),
        _integer("log.index.interval.bytes", 4_096, 0, INT32_MAX, "Bytes between index entries."),
        _integer(
            "log.cleaner.backoff.ms", 15_000, 1, INT32_MAX, "Between two looks for dirty logs."
        ),
        _integer(
            "log.cleaner.dedupe.buffer.size",
            33_554_432,
            24_576,
            INT32_MAX,
            "Memory for the keys of one round of compaction: 24 bytes for each.",
        ),
        _integer(
            "log.cleaner.io.max.bytes.per.second",
            INT64_MAX,
            1024,
            INT64_MAX,
            "What compaction reads and writes, at most.",
        ),
        _integer("max.connections", 4_096, 1, INT32_MAX, "Clients' connections to a broker."),
        _integer(
            "connections.max.idle.ms", 600_000, 1, INT32_MAX, "A silent client is closed after it."
        ),
        _integer(
            "socket.request.max.bytes",
            104_857_600,
            2**20,
            INT32_MAX,
            "The largest Produce request.",
        ),
        _bytes("memory.limit.bytes", "What a broker may use; -1: as its container says."),
        _bytes(
            "queued.max.request.bytes",
            "Clients' requests that are being received or looked at; -1: an eighth of the memory.",
        ),
        _bytes(
            "queued.max.response.bytes",
            "Replies that clients have not taken yet; -1: a quarter of the memory.",
        ),
        _integer("offset.metadata.max.bytes", 4_096, 0, INT32_MAX, "A commit's own text."),
        _integer("offsets.commit.timeout.ms", 5_000, 1, INT32_MAX, "A commit waits so long."),
        _integer("offsets.retention.minutes", 10_080, 1, INT32_MAX, "Unused offsets are kept."),
        _integer(
            "offsets.retention.check.interval.ms", 600_000, 1, INT32_MAX, "Looking for old offsets."
        ),
        _integer("group.max.size", 2_000, 1, 2_000, "Members of a group."),
        _integer("group.min.session.timeout.ms", 6_000, 1, INT32_MAX, "Of a group's members."),
        _integer("group.max.session.timeout.ms", 1_800_000, 1, INT32_MAX, "Of a group's members."),
        _integer(
            "group.initial.rebalance.delay.ms", 3_000, 0, INT32_MAX, "A new group waits so long."
        ),
        _integer("offsets.topic.num.partitions", 50, 1, 1_000, "Of __consumer_offsets, for good."),
        _integer("offsets.topic.replication.factor", 3, 1, 32_767, "Of __consumer_offsets, first."),
        _integer(
            "offsets.topic.segment.bytes", 104_857_600, 1, INT32_MAX, "Of __consumer_offsets."
        ),
    )
}

OWN_DEFAULTS = {name: key.default for name, key in _OWN.items()}
"""Of the broker's own configs."""


def own_integer(configs: Mapping[str, str], name: str) -> int:
    """One of the broker's own configs, or its default; `configs` has been checked."""
    key = _OWN[name]
    value = key.parse(configs.get(name, key.default))
    assert isinstance(value, int), f"{name} was not checked"
    return value


def broker_configs(configs: Mapping[str, str]) -> dict[str, str] | Refusal:
    """A cluster's configs as its brokers read them, or why one of them is none."""
    found = dict(configs)
    for coarse, fine, factor in _COARSER:
        text = found.pop(coarse, None)
        if text is None:
            continue
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(text) <= 9):
            return _refuse(f"{coarse} must be a whole number, not {text[:100]!r}.")
        found.setdefault(fine, str(-1 if int(text) < 0 else int(text) * factor))
    for name, text in sorted(found.items()):
        key = _OWN.get(name) or BY_NAME.get(BROKER_DEFAULTS.get(name, ""))
        if key is None:
            known = sorted({*BROKER_DEFAULTS, *_OWN, *(coarse for coarse, _, _ in _COARSER)})
            return _refuse(f"There is no broker config {name}; known are {', '.join(known)}.")
        if key.parse(text) is None:
            return _refuse(f"{name} must be {key.wants}, not {text[:100]!r}.")
        if key.name == CLEANUP_POLICY and compacts({CLEANUP_POLICY: text}):
            return _refuse(
                f"{name} can only be delete: records of a compacted topic need keys, so each topic"
                f" says for itself that it is compacted, by {CLEANUP_POLICY}."
            )
    return found

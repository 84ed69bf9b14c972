"""LogConfig: the topic configs that storage obeys, as numbers.

Made by the broker from a topic's configs and the broker's defaults. The configs were validated when
the topic was created or changed, so an invalid value only falls back to its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from plimsoll_core.cluster.topic_configs import (
    INDEX_INTERVAL,
    INDEX_INTERVAL_MAX,
    MAX_LAG,
    MIN_LAG,
    compacts,
    deletes,
)
from plimsoll_core.compaction.plan import CompactionLimits

_LIMITS = CompactionLimits()
_WEEK_MS = 7 * 24 * 3600 * 1000
_SEGMENT_BYTES_MAX = 2**31 - 1


class TimeLimits(NamedTuple):
    """The range of timestamps that a producer may send, as the largest distance behind and ahead of
    the broker's clock, in ms."""

    before_ms: int = 2**63 - 1
    after_ms: int = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The configs of one log as numbers. Names that end with `_ms` or `_bytes` give the unit; None
    means unlimited, or never.

    `active_kept_ms`: the time for which retention keeps the active segment after its last write
    although it is too old. `delete`: True if segments are removed by age and size. `compact`: True
    if the cleaner keeps only the last record of each key, within `limits`. With neither, only
    clients delete records. `holes`: True if the log is or was compacted. `owner`: the owner
    that the log's segments count for (`SegmentRoom`)."""

    segment_bytes: int = 2**30
    segment_ms: int = _WEEK_MS
    segment_index_bytes: int = 10 * 2**20
    index_interval_bytes: int = 4096
    retention_ms: int | None = _WEEK_MS
    retention_bytes: int | None = None
    active_kept_ms: int = 300_000
    delete: bool = True
    compact: bool = False
    holes: bool = False
    limits: CompactionLimits = _LIMITS
    flush_messages: int | None = None
    flush_ms: int | None = None
    owner: str = ""

    @classmethod
    def of(
        cls,
        configs: Mapping[str, str],
        *,
        holes: bool = False,
        active_kept_ms: int = 300_000,
        owner: str = "",
    ) -> LogConfig:
        """Return the config from a topic's configs by Kafka's names; a missing or invalid value
        gets its default. `holes`: True if the topic was compacted before. `owner`: of the topic."""
        default = cls()

        def number(name: str, otherwise: int) -> int:
            try:
                return int(configs.get(name, otherwise))
            except ValueError:
                return otherwise

        def limit(name: str, otherwise: int | None) -> int | None:
            value = number(name, -1 if otherwise is None else otherwise)
            return None if value < 0 or value == 2**63 - 1 else value

        compact = compacts(configs)
        limits = CompactionLimits(
            dirty_ratio_min=_share(configs.get("min.cleanable.dirty.ratio", "")),
            lag_min_ms=number(MIN_LAG, 0),
            lag_max_ms=limit(MAX_LAG, 2**63 - 1),
            delete_retention_ms=number("delete.retention.ms", 86_400_000),
        )
        segment_ms = number("segment.ms", default.segment_ms)
        if compact and limits.lag_max_ms is not None:
            # Records can only be cleaned in a sealed segment.
            segment_ms = min(segment_ms, limits.lag_max_ms)
        return cls(
            segment_bytes=min(number("segment.bytes", default.segment_bytes), _SEGMENT_BYTES_MAX),
            segment_ms=segment_ms,
            segment_index_bytes=number("segment.index.bytes", default.segment_index_bytes),
            index_interval_bytes=min(
                number(INDEX_INTERVAL, default.index_interval_bytes), INDEX_INTERVAL_MAX
            ),
            retention_ms=limit("retention.ms", default.retention_ms),
            retention_bytes=limit("retention.bytes", default.retention_bytes),
            active_kept_ms=active_kept_ms,
            delete=deletes(configs),
            compact=compact,
            holes=holes or compact,
            limits=limits,
            flush_messages=limit("flush.messages", default.flush_messages),
            flush_ms=limit("flush.ms", default.flush_ms),
            owner=owner,
        )


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return CompactionLimits().dirty_ratio_min

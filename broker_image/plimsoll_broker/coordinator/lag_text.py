"""Writes consumer lag in Prometheus' text format, in time slices.

Writing thousands of series takes longer than a scrape may hold the event loop, so it is done
beforehand. Called by `group_measures`; the HTTP endpoint sends it behind all other metrics.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_broker.background.time_slices import in_slices
from plimsoll_core.groups.lag import TopicLag

_FAMILIES = (
    (
        "plimsoll_group_lag_records",
        "Offsets between the committed ones of a group and the log ends",
    ),
    (
        "plimsoll_group_lag_seconds",
        "Minimum age of the oldest unread record",
    ),
    (
        "plimsoll_group_committed_position",
        "Sum of the committed offsets",
    ),
    (
        "plimsoll_group_stuck_seconds",
        "Minimum time without progress of a partition with unread records, the longest per topic",
    ),
)
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


async def lag_text(lags: Sequence[TopicLag]) -> bytes:
    """Return all series of these topics of groups."""
    parts: tuple[list[bytes], ...] = tuple(
        [f"# HELP {name} {text}\n# TYPE {name} gauge\n".encode()] for name, text in _FAMILIES
    )
    async for lag in in_slices(lags):
        group, topic = lag.group_id.translate(_ESCAPES), lag.topic.translate(_ESCAPES)
        values = (lag.records, lag.behind_ms / 1000, lag.position, lag.stuck_ms / 1000)
        for (name, _), rows, value in zip(_FAMILIES, parts, values, strict=True):
            rows.append(f'{name}{{group="{group}",topic="{topic}"}} {value}\n'.encode())
    return b"".join(row for rows in parts for row in rows)

"""The limits of groups and offsets, read from a cluster's configs.

`cluster.cluster_configs` defines the values that these configs may have. Source: Kafka's group
coordinator configs; docs/protocol.md §5.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll_core.cluster.cluster_configs import own_integer

MINUTE_MS = 60_000
GROUPS_MAX = 10_000
"""The most groups of one partition of `__consumer_offsets`, shared fairly by principals. Beyond it
no group is created."""
GROUP_ID_BYTES_MAX = 255
MEMBER_BYTES_MAX = 64 * 2**10
"""The most bytes of one member's metadata."""
NAME_BYTES_MAX = 32_767 - 37
"""The most bytes of each name that a member gives. A stored string has at most 32,767 bytes, and a
member's id consists of a name, a dash and 36 characters; requests of flexible versions may hold
longer names."""
GROUP_BYTES_MAX = 4 * 2**20
"""The most bytes of all members' metadata of a group, in all their protocols.
`GroupTurn.record_bytes_max` bounds the part that goes into one record."""
PENDING_MAX = 10_000
"""The most offsets of one transaction in a partition of `__consumer_offsets`. Its marker decides
all of them at once."""
SEATS_MAX = 20_000
"""The most members and reserved member ids of all groups of one partition of `__consumer_offsets`,
shared fairly by principals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The configs of one broker on groups and offsets; the same for all its shards."""

    metadata_bytes_max: int = 4_096
    """`offset.metadata.max.bytes`: the most bytes of metadata in one committed offset."""
    commit_timeout_ms: int = 5_000
    """`offsets.commit.timeout.ms`: for how long a reply waits at most for the commit of records."""
    retention_ms: int = 7 * 24 * 3_600_000
    """`offsets.retention.minutes`, in ms: how long the offsets of an empty group are kept."""
    retention_check_ms: int = 600_000
    """`offsets.retention.check.interval.ms`: the interval of a group's expiry checks."""
    group_size_max: int = 2_000
    """`group.max.size`: the most members of a group."""
    session_timeout_ms_min: int = 6_000
    """`group.min.session.timeout.ms`: the least session timeout that a member may state."""
    session_timeout_ms_max: int = 1_800_000
    """`group.max.session.timeout.ms`: the greatest session timeout that a member may state."""
    initial_rebalance_delay_ms: int = 3_000
    """`group.initial.rebalance.delay.ms`: how long a new group waits for more members."""
    lag_series_max: int = 1_000
    """`group.lag.series.max`: the most pairs of group and topic with a lag metric; 0 to measure
    none."""

    @staticmethod
    def of(configs: Mapping[str, str]) -> GroupSettings:
        """Read the settings from a broker's validated configs."""
        return GroupSettings(
            metadata_bytes_max=own_integer(configs, "offset.metadata.max.bytes"),
            commit_timeout_ms=own_integer(configs, "offsets.commit.timeout.ms"),
            retention_ms=own_integer(configs, "offsets.retention.minutes") * MINUTE_MS,
            retention_check_ms=own_integer(configs, "offsets.retention.check.interval.ms"),
            group_size_max=own_integer(configs, "group.max.size"),
            session_timeout_ms_min=own_integer(configs, "group.min.session.timeout.ms"),
            session_timeout_ms_max=own_integer(configs, "group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=own_integer(configs, "group.initial.rebalance.delay.ms"),
            lag_series_max=own_integer(configs, "group.lag.series.max"),
        )

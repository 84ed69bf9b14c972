"""Metrics of the groups that a broker coordinates.

Called by `broker_metrics` at each scrape. Values that grow with the groups were counted by the last
look of `coordinator.group_measures`, which also writes the lag.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_broker.node.metric_rows import TABLE
from plimsoll_core.errors import Code

_TOLD_FROM_THE_START = (
    Code.NOT_COORDINATOR,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.ILLEGAL_GENERATION,
    Code.UNKNOWN_MEMBER_ID,
    Code.REBALANCE_IN_PROGRESS,
)
"""Reported from the start: an increase from nothing is not seen as one."""


def group_metrics(prefix: str, coordinators: Coordinators) -> Iterator[Metric]:
    def gauge(name: str, value: float) -> Metric:
        return TABLE.gauge(prefix + name, value)

    def counter(name: str, value: float) -> Metric:
        return TABLE.counter(prefix + name, value)

    shards = coordinators.shards()
    stats, seen = coordinators.stats, coordinators.measures.seen
    states = {(state,): float(number) for state, number in seen.states.items()}
    yield TABLE.gauges(prefix + "groups", states)
    yield gauge("group_members", sum(shard.soft.seats for shard in shards))
    yield gauge("committed_offsets", sum(shard.state.offsets for shard in shards))
    rebalances = stats.rebalances_ended + sum(shard.soft.rebalances for shard in shards)
    yield counter("group_rebalances", rebalances)
    yield counter("offset_commits", stats.commits)
    codes = sorted({*(code.name for code in _TOLD_FROM_THE_START), *stats.commit_failures})
    failures = {(code,): float(stats.commit_failures[code]) for code in codes}
    yield TABLE.counters(prefix + "offset_commit_failures", failures)
    yield counter("group_loads", stats.loads)
    yield counter("group_load_seconds", stats.load_ms / 1000)
    yield gauge("group_loading_seconds", coordinators.loading_ms / 1000)
    pool = coordinators.memory.pool
    yield gauge("group_memory_bytes", pool.used)
    yield gauge("group_memory_limit_bytes", pool.capacity)
    yield counter("group_memory_refusals", pool.refused)
    unloaded = sum(len(one.state.unloaded) + one.state.more_unloaded for one in shards)
    yield gauge("groups_unloaded", unloaded)
    yield gauge("group_lag_series_left_out", seen.series_left_out)
    yield gauge("group_lag_partitions_left_out", seen.partitions_left_out)

"""Metrics about the groups that a broker coordinates.

Called by `broker_metrics` at each scrape.  What grows with the groups was counted by the last look
of `coordinator.group_measures`; the lag of each, which is theirs to write, is not here.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from plimsoll_broker.coordinator.roles import Coordinators
from plimsoll_core.errors import Code

_TOLD_FROM_THE_START = (
    Code.NOT_COORDINATOR,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.ILLEGAL_GENERATION,
    Code.UNKNOWN_MEMBER_ID,
    Code.REBALANCE_IN_PROGRESS,
)
"""An increase from nothing is no increase."""


def group_metrics(prefix: str, coordinators: Coordinators) -> Iterator[Metric]:
    def gauge(name: str, text: str, value: float) -> Metric:
        return GaugeMetricFamily(prefix + name, text, value=value)

    def counter(name: str, text: str, value: float) -> Metric:
        return CounterMetricFamily(prefix + name, text, value=value)

    shards = coordinators.shards()
    stats, seen = coordinators.stats, coordinators.measures.seen
    text = "Groups that are coordinated here, by state, as of the last look"
    groups = GaugeMetricFamily(prefix + "groups", text, labels=["state"])
    for state, number in seen.states.items():
        groups.add_metric([state], number)
    yield groups
    seats = sum(shard.soft.seats for shard in shards)
    yield gauge("group_members", "Members of these groups, and who was given an id", seats)
    offsets = sum(shard.state.offsets for shard in shards)
    yield gauge("committed_offsets", "Offsets that these groups have committed", offsets)
    rebalances = stats.rebalances_ended + sum(shard.soft.rebalances for shard in shards)
    yield counter("group_rebalances", "Rebalances of groups that began here", rebalances)
    yield counter("offset_commits", "Offsets that groups have committed here", stats.commits)
    text = "Offsets that a group could not commit here, by Kafka's word for the code"
    failures = CounterMetricFamily(prefix + "offset_commit_failures", text, labels=["code"])
    for code in sorted({*(code.name for code in _TOLD_FROM_THE_START), *stats.commit_failures}):
        failures.add_metric([code], stats.commit_failures[code])
    yield failures
    text = "Partitions of __consumer_offsets that were loaded"
    yield counter("group_loads", text, stats.loads)
    text = "How long their groups had to wait for that, added up"
    yield counter("group_load_seconds", text, stats.load_ms / 1000)
    text = "For how long groups have been waiting for a load that has not ended"
    yield gauge("group_loading_seconds", text, coordinators.loading_ms / 1000)
    text = "Groups' topics whose lag is not shown (group.lag.series.max)"
    yield gauge("group_lag_series_left_out", text, seen.series_left_out)
    text = "Committed offsets that count in no lag, because the end of the log is not known"
    yield gauge("group_lag_partitions_left_out", text, seen.partitions_left_out)

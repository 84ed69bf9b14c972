"""Judges if a planned cluster keeps to the limits for which this release is made. Pure.

The plan is a LogCluster and the Topics of one file, and the LogClusters that the API server has.
The limits are those that the controller enforces (`published_limits`). Replicas are counted as if
they were spread evenly; topics that clients create are not in the file. Called by `checklist` for
`plimsoll preflight --file`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plimsoll_core.phrasing import counted
from plimsoll_core.published_limits import (
    BROKERS_OF_CLUSTER,
    CLUSTERS_OF_OPERATOR,
    LIMITS,
    PARTITIONS_OF_CLUSTER,
    PARTITIONS_OF_TOPIC,
    TOPICS_OF_CLUSTER,
    SizeLimit,
    replicas_by_memory,
)
from plimsoll_operator.api.broker_configs import settings_of
from plimsoll_operator.api.logcluster import Brokers, LogCluster
from plimsoll_operator.api.quantities import amount
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.preflight.checks import unread
from plimsoll_operator.preflight.facts import NotRead, Result, Verdict
from plimsoll_operator.preflight.pool_checks import NO_FILE, each_pool

LIMITS_KEPT = "limits"
MEMORY_DEFAULT = "1Gi"
"""The memory limit of a broker that states none."""
SERIOUS: dict[str, Result] = {"refused": "failed", "said": "warning"}
Finding = tuple[Result, str]


def limits(
    cluster: LogCluster | None,
    topics: Sequence[Topic],
    others: frozenset[tuple[str, str]] | NotRead,
) -> Verdict:
    """Judge the sizes of a LogCluster with the Topics that name it. `others`: the LogClusters that
    the API server has, as (namespace, name). Failed if the cluster would refuse a part of the plan,
    a warning if a size is beyond a limit that is not enforced."""
    if isinstance(others, NotRead):
        return unread(LIMITS_KEPT, others)
    if cluster is None:
        return Verdict(check=LIMITS_KEPT, result="warning", message=NO_FILE)
    own = [one for one in topics if one.spec.cluster_ref.name == cluster.metadata.name]
    clusters = len(others) + (not _exists(cluster, others))
    found = [*_beyond(cluster, own), *_over(CLUSTERS_OF_OPERATOR, clusters, "The operator")]
    if not found:
        return Verdict(check=LIMITS_KEPT, result="ok", message=_kept(cluster, own))
    worst: Result = "failed" if any(result == "failed" for result, _ in found) else "warning"
    told = [text for result, text in found if result == worst]
    return Verdict(check=LIMITS_KEPT, result=worst, message=" ".join(told))


def _exists(cluster: LogCluster, others: frozenset[tuple[str, str]]) -> bool:
    """Return True if the file's LogCluster is one of `others`; it may state no namespace."""
    meta = cluster.metadata
    return any(meta.name == name and meta.namespace in ("", there) for there, name in others)


def _beyond(cluster: LogCluster, topics: Sequence[Topic]) -> Iterator[Finding]:
    holder = f"LogCluster {cluster.metadata.name}"
    yield from _over(BROKERS_OF_CLUSTER, cluster.count, holder)
    yield from _over(TOPICS_OF_CLUSTER, len(topics), holder)
    for topic in topics:
        name = f"Topic {topic.metadata.name}"
        yield from _over(PARTITIONS_OF_TOPIC, _partitions(cluster, topic), name)
    planned = sum(_partitions(cluster, topic) for topic in topics)
    limit, stated = PARTITIONS_OF_CLUSTER, settings_of(cluster).partitions_per_cluster_max
    if planned > stated:
        text = (
            f"The Topics of {holder} have {planned:,} partitions together, but its "
            f"topics.limits.partitionsPerCluster allows {stated:,}, so the cluster would refuse "
            "the rest"
        )
        yield "failed", f"{text}: {limit.cost}. {limit.remedy}"
    elif stated > limit.most:
        yield (
            "warning",
            f"{holder} allows {stated:,} partitions (topics.limits.partitionsPerCluster), more "
            f"than the {limit.most:,} for which Plimsoll is made: {limit.cost}. Test a cluster of "
            "that size first.",
        )
    for name, most in _rooms(cluster):
        if (each := _each_replicas(cluster, topics)) > most:
            yield (
                "failed",
                f"{name}: each broker would have {each:,} replicas, but its memory has room for "
                f"only {most:,}. Use fewer partitions or more brokers, or raise "
                "resources.limits.memory.",
            )


def _over(limit: SizeLimit, number: int, holder: str) -> Iterator[Finding]:
    if (beyond := limit.exceeded(number, holder)) is not None:
        yield SERIOUS[limit.beyond], beyond.message


def _kept(cluster: LogCluster, topics: Sequence[Topic]) -> str:
    """Return a sentence on what the plan needs."""
    each = _each_replicas(cluster, topics)
    room = min((most for _, most in _rooms(cluster)), default=0)
    partitions = sum(_partitions(cluster, topic) for topic in topics)
    return (
        f"{counted(len(topics), 'Topic')} with {partitions:,} partitions keep to all "
        f"{len(LIMITS)} limits: {each:,} replicas a broker, where memory has room for {room:,}. "
        "Topics that clients create are not counted."
    )


def _rooms(cluster: LogCluster) -> Iterator[tuple[str, int]]:
    """Yield the name of each pool, and for how many replicas one of its brokers has memory."""
    for name, _, one in each_pool(cluster):
        brokers = one.spec.brokers or Brokers()
        stated = (brokers.resources and brokers.resources.limits) or {}
        yield name, replicas_by_memory(int(amount(stated.get("memory") or MEMORY_DEFAULT)))


def _partitions(cluster: LogCluster, topic: Topic) -> int:
    return topic.spec.partitions or settings_of(cluster).default_partitions


def _each_replicas(cluster: LogCluster, topics: Sequence[Topic]) -> int:
    usual = settings_of(cluster).default_replication_factor
    replicas = sum(
        _partitions(cluster, topic) * (topic.spec.replication_factor or usual) for topic in topics
    )
    return -(-replicas // max(cluster.count, 1))

"""The condition WithinLimits of a LogCluster: shown while a size is beyond a published limit. Pure.

Clusters grow past limits that are only said, and may have been larger before a limit existed:
nothing is refused by this condition, and nothing stops.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.errors import Refusal
from plimsoll_core.published_limits import (
    BROKERS_OF_CLUSTER,
    CLUSTERS_OF_OPERATOR,
    PARTITIONS_OF_CLUSTER,
    PARTITIONS_OF_TOPIC,
    TOPICS_OF_CLUSTER,
)
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.meta import Condition

TYPE = "WithinLimits"
REASON = "BeyondLimits"


def limits_condition(image: ClusterImage, clusters: int) -> Condition | None:
    """Return the condition, False, or None if the cluster keeps to all limits. `clusters`: the
    number of LogClusters that the operator watches."""
    beyond = [one.message for one in _beyond(image, clusters)]
    return condition(TYPE, False, REASON, " ".join(beyond)) if beyond else None


def _beyond(image: ClusterImage, clusters: int) -> Iterator[Refusal]:
    largest = max(image.topics.values(), key=lambda one: (one.partitions, one.name), default=None)
    declared = sum(topic.object is not None for topic in image.topics.values())
    found = [
        BROKERS_OF_CLUSTER.exceeded(len(image.brokers), "The cluster"),
        PARTITIONS_OF_CLUSTER.exceeded(len(image.partitions), "The cluster"),
        TOPICS_OF_CLUSTER.exceeded(declared, "The cluster"),
        CLUSTERS_OF_OPERATOR.exceeded(clusters, "This operator"),
    ]
    if largest is not None:
        found.append(PARTITIONS_OF_TOPIC.exceeded(largest.partitions, f"Topic {largest.name}"))
    yield from (one for one in found if one is not None)

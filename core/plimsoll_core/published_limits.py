"""The sizes for which this release is made: what is refused beyond them, and what is said.

One table for the rules of topics (`controller.topics`), `plimsoll preflight`, the condition
WithinLimits, and docs/sizing.md, which has a row for each limit; a test compares them.
`bench.take_over`, `bench.sizes` and `bench.loop_holds` measure what they cost. Memory and
descriptors of a broker bound its replicas besides (`REPLICA_BYTES`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from plimsoll_core.errors import Reason, Refusal

Beyond = Literal["refused", "said"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLimit:
    """One limit. `most`: the largest number of `what`. `where`: its row in docs/sizing.md. `cost`:
    what a larger one would make slow or large. `remedy`: what to do instead, as a sentence.
    `beyond`: "refused" if a rule or the API server refuses more, "said" if only `plimsoll
    preflight` and the condition WithinLimits say so."""

    what: str
    where: str
    most: int
    cost: str
    remedy: str
    beyond: Beyond

    def exceeded(self, number: int, holder: str) -> Refusal | None:
        """Return the refusal if `number` is more than the limit allows, else None. `holder`: the
        object that has so many, as the subject of the sentence."""
        if number <= self.most:
            return None
        effect = ", because" if self.beyond == "refused" else ". Nothing is refused for that, but"
        return Refusal(
            reason=Reason.PolicyViolation,
            message=(
                f"{holder} has {number:,} {self.what}; Plimsoll is made and tested for at most "
                f"{self.most:,}{effect} {self.cost}. {self.remedy}"
            ),
        )


PARTITIONS_OF_TOPIC = SizeLimit(
    what="partitions",
    where="partitions of one topic",
    most=5_000,
    cost="the creation or deletion of more at once blocks the operator and the brokers",
    remedy="Use several topics.",
    beyond="said",
)
PARTITIONS_OF_CLUSTER = SizeLimit(
    what="partitions",
    where="partitions of a cluster",
    most=10_000,
    cost="with more, a change of controller and each full copy of the metadata take longer",
    remedy=(
        "Use fewer, or several clusters; or raise the LogCluster's "
        "topics.limits.partitionsPerCluster, up to 50,000."
    ),
    beyond="refused",
)
TOPICS_OF_CLUSTER = SizeLimit(
    what="Topic objects",
    where="Topic objects of a cluster",
    most=500,
    cost="the operator looks at each of them every 30 seconds",
    remedy="Use fewer topics of more partitions, or several clusters.",
    beyond="said",
)
BROKERS_OF_CLUSTER = SizeLimit(
    what="brokers",
    where="brokers of a cluster",
    most=100,
    cost="each sends a heartbeat every 500 ms and receives all metadata",
    remedy="Use larger brokers, or several clusters.",
    beyond="refused",
)
CLUSTERS_OF_OPERATOR = SizeLimit(
    what="LogClusters",
    where="LogClusters of one operator",
    most=10,
    cost="each renews a Lease every second in the one process that leads them",
    remedy="Install another operator for other namespaces (watch.namespaces).",
    beyond="said",
)
LIMITS = (
    PARTITIONS_OF_TOPIC,
    PARTITIONS_OF_CLUSTER,
    TOPICS_OF_CLUSTER,
    BROKERS_OF_CLUSTER,
    CLUSTERS_OF_OPERATOR,
)

PARTITIONS_OF_CLUSTER_STATED_MAX = 50_000
"""The most partitions that a LogCluster may allow itself."""
REPLICA_BYTES = 24 * 1024
"""The memory in bytes of an idle replica, including its log's first segment."""
REPLICAS_SHARE = 4
"""The divisor of a broker's memory that gives what its replicas may take."""


def replicas_by_memory(memory: int) -> int:
    """Return for how many replicas a broker with so many bytes of memory has room."""
    return memory // REPLICAS_SHARE // REPLICA_BYTES

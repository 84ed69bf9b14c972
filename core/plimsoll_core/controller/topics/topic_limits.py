"""How many partitions a topic may have, and all topics of a namespace together.

Called for topics of clients and for declared ones.
"""

from __future__ import annotations

from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import (
    DeclareTopic,
)


def check_partitions(turn: DecisionContext, partitions: int) -> Refusal | None:
    most = turn.settings.partitions_per_topic_max
    if 1 <= partitions <= most:
        return None
    return Refusal(
        reason=Reason.InvalidPartitions,
        message=f"A topic has 1 to {most} partitions here, not {partitions}.",
    )


def too_many_in_namespace(
    turn: DecisionContext, request: DeclareTopic, added: int
) -> Refusal | None:
    most, namespace = turn.settings.partitions_per_namespace_max, request.object.namespace
    if most is None:
        return None
    holders = ((t, t.object or t.detached_from) for t in turn.image.topics.values())
    there = sum(t.partitions for t, holder in holders if holder and holder.namespace == namespace)
    if there + added <= most:
        return None
    return Refusal(
        reason=Reason.InvalidPartitions,
        message=(
            f"The Topics of namespace {namespace} have {there} partitions and may have {most};"
            f" {added} more are too many. Use fewer, or raise the LogCluster's"
            " topics.limits.partitionsPerNamespace."
        ),
    )

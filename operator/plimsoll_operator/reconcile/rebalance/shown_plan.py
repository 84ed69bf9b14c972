"""Formats a Rebalance's plan for people: a summary for the status, and a ConfigMap with every row.
Pure.

The summary states moves, load, risk, and expected duration; the rows are too long for a status.
Called by the Rebalance reconciler, once for each plan.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.planner.outcome import Level, Plan
from plimsoll_core.planner.rebalance import Planned
from plimsoll_operator.api import API_VERSION
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.labels import MANAGED_BY, OPERATOR, Manifest, derived_name
from plimsoll_operator.api.meta import ObjectMeta
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.api.rebalance import (
    BrokerLoad,
    Change,
    MoveCounts,
    PlanStatus,
    SizeChange,
    SkippedTopic,
    WhatIf,
)

SKIPPED_MAX = 20
LOOK_SECONDS = 1
"""Approximate pause between two waves, in seconds."""

FILE = "plan.csv"
BYTES_MAX = 900_000
"""Maximum size of the rows in bytes; an object of the API server can have about a million."""


def plan_status(
    image: ClusterImage, planned: Planned, rate: int, made_ms: int, details: str | None
) -> PlanStatus:
    """Return the summary of a plan. `rate`: bytes a second that each broker may copy. `made_ms`:
    wall-clock time of the plan. `details`: name of the ConfigMap with its rows, None if there is
    none."""
    plan = planned.plan
    return PlanStatus(
        hash=planned.hash,
        computed_time=timestamp(made_ms),
        moves=MoveCounts(
            replicas=plan.moved_replicas,
            leaders=plan.moved_leaders,
            bytes=binary(plan.copied_bytes),
            estimated_seconds=estimated_seconds(plan, planned.waves, rate),
            waves=planned.waves,
        ),
        per_broker=tuple(
            BrokerLoad(
                id=load.broker,
                replicas=Change(before=load.replicas.before, after=load.replicas.after),
                leaders=Change(before=load.leaders.before, after=load.leaders.after),
                size=_sizes(load.size_bytes),
                bytes_in=_sizes(load.bytes_in),
                bytes_out=_sizes(load.bytes_out),
            )
            for load in plan.loads[:100]
        ),
        lowest_isr_margin=plan.lowest_isr_margin,
        if_broker_dies_now=tuple(
            WhatIf(
                broker=risk.broker,
                under_min_isr=risk.under_min_isr,
                examples=tuple(_name(image, key) for key in risk.examples),
            )
            for risk in planned.risks[:100]
        ),
        skipped=tuple(
            SkippedTopic(topic=each.topic, reason=each.reason)
            for each in plan.skipped[:SKIPPED_MAX]
        ),
        details_config_map=details,
    )


def _sizes(level: Level) -> SizeChange:
    return SizeChange(before=binary(level.before), after=binary(level.after))


def estimated_seconds(plan: Plan, waves: int, rate: int) -> int:
    """Return the estimated duration of a plan: that of the broker with the most bytes to copy at
    `rate`, or a pause per wave if that is longer."""
    incoming: dict[int, int] = {}
    for move in plan.moves:
        for broker in move.adding:
            incoming[broker] = incoming.get(broker, 0) + (move.size_bytes or 0)
    slowest = max(incoming.values(), default=0)
    return max(-(-slowest // max(1, rate)), waves * LOOK_SECONDS)


def _name(image: ClusterImage, key: PartitionKey) -> str:
    topic = image.topics.get(key.topic_id)
    return f"{key.topic_id if topic is None else topic.name}-{key.index}"


def config_map_name(rebalance: str) -> str:
    return derived_name(rebalance, "-plan")


def config_map(owner: ObjectMeta, image: ClusterImage, planned: Planned) -> Manifest:
    """Return the manifest of the ConfigMap with the plan's rows. The Rebalance owns it, so it is
    deleted with it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": config_map_name(owner.name),
            "namespace": owner.namespace,
            # The chart's admission policies allow the operator to write objects with this label.
            "labels": {MANAGED_BY: OPERATOR},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "Rebalance",
                    "name": owner.name,
                    "uid": owner.uid,
                }
            ],
        },
        "data": {"hash": planned.hash, FILE: _rows(image, planned)},
    }


def _rows(image: ClusterImage, planned: Planned) -> str:
    lines = ["topic,partition,before,after,bytes,wave"]
    size = len(lines[0])
    for number, move in enumerate(planned.moves):
        topic = image.topics.get(move.topic_id)
        name = str(move.topic_id) if topic is None else topic.name
        before, after = (" ".join(map(str, row)) for row in (move.before, move.after))
        line = f"{name},{move.index},{before},{after},{move.copied_bytes},{move.wave}"
        size += len(line) + 1
        if size > BYTES_MAX:
            lines.append(f"# and {len(planned.moves) - number} more")
            break
        lines.append(line)
    return "\n".join(lines) + "\n"

"""`Rebalance` (plrb): plans new placements for the whole cluster, shows the plan, waits for
approval, and carries it out once.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.meta import (
    Api,
    BrokerNumber,
    ClusterObject,
    Conditions,
    Count,
    LocalClusterRef,
    ObjectName,
    Quantity,
    Short,
    Time,
    TopicName,
    described,
)
from plimsoll_operator.api.reassignment import Throttle

Mode = Literal["Full", "AddBrokers", "RemoveBrokers", "PreferredLeaders", "Load"]
Approval = Literal["Manual", "Automatic"]
Phase = Literal[
    "Planning",
    "AwaitingApproval",
    "Running",
    "Paused",
    "Blocked",
    "Completed",
    "Cancelled",
    "Failed",
    "NothingToDo",
]

_ATOMIC = {"x-kubernetes-list-type": "atomic"}


class Limits(Api, frozen=True, kw_only=True):
    """Limits on how many replicas move at the same time."""

    max_bytes: Annotated[
        Quantity | None, described("Most bytes that are being copied at a time.")
    ] = None
    concurrent_moves_per_broker: Annotated[
        Annotated[int, Meta(ge=1, le=1_000)] | None,
        described(
            "Most moves at a time for each broker; a move counts at every broker that "
            "gains or loses a replica or is copied from; default 5."
        ),
    ] = None


Percent = Annotated[int, Meta(ge=1, le=1_000)]


class Goals(Api, frozen=True, kw_only=True):
    """Goals of the mode Load: by how many percent a broker may exceed the mean of all brokers in
    relation to its capacity, and how much the plan may copy."""

    disk_percent: Annotated[
        Percent | None,
        described(
            "Allowed excess in the share of its disk that a broker uses, or in bytes while a "
            "broker has reported no disk; default 10."
        ),
    ] = None
    bytes_in_percent: Annotated[
        Percent | None,
        described("Allowed excess in bytes per second that its replicas write; default 20."),
    ] = None
    bytes_out_percent: Annotated[
        Percent | None,
        described(
            "Allowed excess in bytes per second that its leaders send to consumers and followers; "
            "default 20."
        ),
    ] = None
    max_copied_bytes: Annotated[
        Quantity | None, described("Most bytes that the plan copies in all; default is no limit.")
    ] = None


class RebalanceSpec(Api, frozen=True, kw_only=True):
    """The request. mode, clusterRef and brokers are immutable; the other fields may change while
    the Rebalance runs."""

    cluster_ref: LocalClusterRef
    mode: Annotated[
        Mode,
        described(
            "Full: place everything anew by the placement formula. AddBrokers: fill the listed "
            "brokers, with as few moves as balance allows. RemoveBrokers: move everything off "
            "the listed brokers. PreferredLeaders: balance leaders without moving data. Load: "
            "balance measured bytes on disk and traffic, with as few bytes copied as possible."
        ),
    ]
    brokers: Annotated[
        Annotated[
            tuple[BrokerNumber, ...], Meta(min_length=1, max_length=100, extra_json_schema=_ATOMIC)
        ]
        | None,
        described("Brokers to fill (AddBrokers) or to empty (RemoveBrokers)."),
    ] = None
    approval: Annotated[
        Approval | None,
        described(
            "Manual (default): the plan is shown and waits for approvedPlan. Automatic: "
            "the plan is carried out at once."
        ),
    ] = None
    approved_plan: Annotated[
        Short | None,
        described(
            "Copy status.plan.hash here to approve exactly that plan. A changed plan needs "
            "a new approval."
        ),
    ] = None
    goals: Annotated[Goals | None, described("Goals of the mode Load.")] = None
    limits: Limits | None = None
    throttle: Annotated[
        Throttle | None,
        described(
            "Most bytes per second that each broker copies; default is the LogCluster's "
            "movement.bytesPerSecond."
        ),
    ] = None
    paused: Annotated[
        bool | None, described("true: begin no move and stop copying until set to false.")
    ] = None
    cancelled: Annotated[
        bool | None,
        described(
            "true: roll back partitions that are not done. Deletion of the object does the same."
        ),
    ] = None


class MoveCounts(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Cost of the plan: replicas to copy, partitions with another preferred leader, and bytes and
    duration as far as sizes are known."""

    replicas: Count = 0
    leaders: Count = 0
    bytes: Quantity = "0"
    estimated_seconds: Count = 0
    waves: Count = 0


class Change(Api, omit_defaults=False, frozen=True, kw_only=True):
    """A number before the plan and after it."""

    before: Count = 0
    after: Count = 0


class SizeChange(Api, omit_defaults=False, frozen=True, kw_only=True):
    """A number of bytes before the plan and after it."""

    before: Quantity = "0"
    after: Quantity = "0"


class BrokerLoad(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Load of one broker before the plan and after it. Leaders are counted by preferred leader.
    Traffic is in bytes per second, as far as it was measured: bytesIn is what its replicas write,
    bytesOut what its leaders send."""

    id: BrokerNumber
    replicas: Change
    leaders: Change
    size: SizeChange
    bytes_in: SizeChange = SizeChange()
    bytes_out: SizeChange = SizeChange()


class WhatIf(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Number of partitions that would fall below min ISR if this broker failed now."""

    broker: BrokerNumber
    under_min_isr: Count = msgspec.field(name="underMinISR", default=0)
    examples: Annotated[
        tuple[Annotated[str, Meta(max_length=260)], ...],
        Meta(max_length=3, extra_json_schema=_ATOMIC),
    ] = ()


class SkippedTopic(Api, frozen=True, kw_only=True):
    """A topic that the plan leaves unchanged, with the reason."""

    topic: TopicName
    reason: Short


class PlanStatus(Api, frozen=True, kw_only=True):
    """The plan that awaits approval or is being carried out."""

    hash: Short
    computed_time: Time
    moves: MoveCounts
    per_broker: Annotated[
        tuple[BrokerLoad, ...], Meta(max_length=100, extra_json_schema=_ATOMIC)
    ] = ()
    lowest_isr_margin: int | None = msgspec.field(name="lowestISRMargin", default=None)
    if_broker_dies_now: Annotated[
        tuple[WhatIf, ...], Meta(max_length=100, extra_json_schema=_ATOMIC)
    ] = ()
    skipped: Annotated[
        tuple[SkippedTopic, ...], Meta(max_length=20, extra_json_schema=_ATOMIC)
    ] = ()
    details_config_map: ObjectName | None = None


class Progress(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Progress of the plan. `lowestISRMargin`: the smallest |ISR| - min ISR of a partition seen
    since the plan began."""

    replicas_moved: Count = 0
    partitions_left: Count = 0
    bytes_left: Quantity = "0"
    eta_seconds: Count | None = None
    wave: Count = 0
    lowest_isr_margin: int | None = msgspec.field(name="lowestISRMargin", default=None)


class RebalanceStatus(Api, frozen=True, kw_only=True):
    """Progress of the Rebalance. Written by the operator, which never decides anything by it."""

    observed_generation: Count | None = None
    phase: Phase | None = None
    start_time: Time | None = None
    completion_time: Time | None = None
    plan: PlanStatus | None = None
    progress: Progress | None = None
    conditions: Conditions = ()


class Rebalance(ClusterObject, frozen=True, kw_only=True):
    """A request to plan and carry out a new distribution of replicas."""

    spec: RebalanceSpec

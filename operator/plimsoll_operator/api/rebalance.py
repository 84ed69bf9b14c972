"""`Rebalance` (plrb): a plan for the whole cluster, shown, approved, and carried out once."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.meta import (
    Api,
    BrokerNumber,
    Conditions,
    Count,
    LocalClusterRef,
    ObjectMeta,
    ObjectName,
    Quantity,
    Short,
    Time,
    TopicName,
)
from plimsoll_operator.api.reassignment import Throttle

Mode = Literal["Full", "AddBrokers", "RemoveBrokers", "PreferredLeaders"]
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
    """How much moves at the same time."""

    max_bytes: (
        Annotated[Quantity, Meta(description="So many bytes are being copied at most.")] | None
    ) = None
    concurrent_moves_per_broker: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=1_000,
                description=(
                    "A move counts at each broker that gives, gets, drops or is copied from; "
                    "default 5."
                ),
            ),
        ]
        | None
    ) = None


class RebalanceSpec(Api, frozen=True, kw_only=True):
    """What is wanted is immutable; how it is carried out may change on the way."""

    cluster_ref: LocalClusterRef
    mode: Annotated[
        Mode,
        Meta(
            description=(
                "Full: everything anew by the placement formula.  AddBrokers: fill these brokers "
                "with as few moves as even loads allow.  RemoveBrokers: leave nothing on them.  "
                "PreferredLeaders: even out who leads; no data moves."
            )
        ),
    ]
    brokers: (
        Annotated[
            tuple[BrokerNumber, ...],
            Meta(
                min_length=1,
                max_length=100,
                description="Which brokers are filled or emptied.",
                extra_json_schema=_ATOMIC,
            ),
        ]
        | None
    ) = None
    approval: (
        Annotated[
            Approval,
            Meta(description="Manual (default): the plan is shown, and waits for approvedPlan."),
        ]
        | None
    ) = None
    approved_plan: (
        Annotated[
            Short,
            Meta(
                description=(
                    "status.plan.hash, copied here: approves exactly that plan; a plan that has "
                    "changed asks again."
                )
            ),
        ]
        | None
    ) = None
    limits: Limits | None = None
    throttle: (
        Annotated[Throttle, Meta(description="Default: the cluster's movement.bytesPerSecond.")]
        | None
    ) = None
    paused: Annotated[bool, Meta(description="Begin and copy nothing more for now.")] | None = None
    cancelled: (
        Annotated[bool, Meta(description="Roll back what is not done; so does deletion.")] | None
    ) = None


class MoveCounts(Api, omit_defaults=False, frozen=True, kw_only=True):
    """What the plan costs: replicas to be copied, partitions whose preferred leader changes, and
    bytes and time as far as sizes are known."""

    replicas: Count = 0
    leaders: Count = 0
    bytes: Quantity = "0"
    estimated_seconds: Count = 0
    waves: Count = 0


class Change(Api, omit_defaults=False, frozen=True, kw_only=True):
    """A number before and after."""

    before: Count = 0
    after: Count = 0


class SizeChange(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Bytes before and after."""

    before: Quantity = "0"
    after: Quantity = "0"


class BrokerLoad(Api, omit_defaults=False, frozen=True, kw_only=True):
    """What a broker holds; leaders are preferred leaders."""

    id: BrokerNumber
    replicas: Change
    leaders: Change
    size: SizeChange


class WhatIf(Api, omit_defaults=False, frozen=True, kw_only=True):
    """If this broker died now: so many partitions would have fewer than min ISR in sync."""

    broker: BrokerNumber
    under_min_isr: Count = msgspec.field(name="underMinISR", default=0)
    examples: Annotated[
        tuple[Annotated[str, Meta(max_length=260)], ...],
        Meta(max_length=3, extra_json_schema=_ATOMIC),
    ] = ()


class SkippedTopic(Api, frozen=True, kw_only=True):
    """A topic that the plan leaves alone."""

    topic: TopicName
    reason: Short


class PlanStatus(Api, frozen=True, kw_only=True):
    """The plan that is shown, or carried out."""

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
    """How far it is.  `lowest_isr_margin`: the lowest that was seen on the way."""

    replicas_moved: Count = 0
    partitions_left: Count = 0
    bytes_left: Quantity = "0"
    eta_seconds: Count | None = None
    wave: Count = 0
    lowest_isr_margin: int | None = msgspec.field(name="lowestISRMargin", default=None)


class RebalanceStatus(Api, frozen=True, kw_only=True):
    """How far it is: a projection, never read back to decide anything."""

    observed_generation: Count | None = None
    phase: Phase | None = None
    start_time: Time | None = None
    completion_time: Time | None = None
    plan: PlanStatus | None = None
    progress: Progress | None = None
    conditions: Conditions = ()


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """The object."""

    metadata: ObjectMeta
    spec: RebalanceSpec

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.metadata.namespace, self.metadata.name

    @property
    def cluster_key(self) -> tuple[str, str]:
        """(namespace, name) of the LogCluster meant."""
        return self.metadata.namespace, self.spec.cluster_ref.name

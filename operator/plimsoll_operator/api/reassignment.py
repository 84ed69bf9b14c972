"""`Reassignment` (plra): moves replicas to other brokers, once."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.meta import (
    Amount,
    Api,
    BrokerNumber,
    ClusterObject,
    Conditions,
    Count,
    LocalClusterRef,
    Quantity,
    Time,
    TopicName,
    described,
)

Phase = Literal["Pending", "Running", "Paused", "Blocked", "Completed", "Cancelled", "Failed"]
OnTargetLost = Literal["Replan", "Block"]

_ATOMIC = {"x-kubernetes-list-type": "atomic"}
BrokerNumbers = Annotated[tuple[BrokerNumber, ...], Meta(max_length=32, extra_json_schema=_ATOMIC)]


class Move(Api, frozen=True, kw_only=True):
    """Some partitions of one topic, and their target: one of replicas, replicationFactor and
    awayFrom."""

    topic: TopicName
    partitions: Annotated[
        Annotated[
            tuple[Annotated[int, Meta(ge=0, le=9_999)], ...],
            Meta(min_length=1, max_length=1000, extra_json_schema=_ATOMIC),
        ]
        | None,
        described("Partitions to move; unset: all of the topic."),
    ] = None
    replicas: Annotated[
        Annotated[
            tuple[BrokerNumber, ...], Meta(min_length=1, max_length=32, extra_json_schema=_ATOMIC)
        ]
        | None,
        described("The brokers of each partition's replicas, the preferred leader first."),
    ] = None
    replication_factor: Annotated[
        Annotated[int, Meta(ge=1, le=32)] | None,
        described(
            "The number of replicas of each partition. For a topic with an object, edit "
            "the object instead."
        ),
    ] = None
    # Not `off`: in YAML 1.1, which kubectl reads, that is the boolean false.
    away_from: Annotated[
        Annotated[
            tuple[BrokerNumber, ...], Meta(min_length=1, max_length=32, extra_json_schema=_ATOMIC)
        ]
        | None,
        described("Brokers to leave; the operator chooses the new ones."),
    ] = None


class Throttle(Api, frozen=True, kw_only=True):
    """Limit on the bandwidth with which brokers copy moving replicas."""

    bytes_per_second: Amount


class ReassignmentSpec(Api, frozen=True, kw_only=True):
    """Immutable except throttle, paused and cancelled. A Reassignment is carried out once."""

    cluster_ref: LocalClusterRef
    moves: Annotated[
        tuple[Move, ...], Meta(min_length=1, max_length=1000, extra_json_schema=_ATOMIC)
    ]
    throttle: Annotated[
        Throttle | None,
        described(
            "Most bytes per second that each broker copies; default is the LogCluster's "
            "movement.bytesPerSecond."
        ),
    ] = None
    on_target_lost: Annotated[
        OnTargetLost | None,
        described(
            "Reaction to a target broker that stays away. Replan: choose another broker "
            "(default where the operator chose it). Block: wait (default for replicas)."
        ),
    ] = None
    paused: Annotated[bool | None, described("true: stop copying until set to false.")] = None
    cancelled: Annotated[
        bool | None,
        described(
            "true: roll back partitions that are not done. Deletion of the object does the same."
        ),
    ] = None


class PartitionCounts(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Numbers of partitions by progress. A pending partition is one of which no replica is being
    copied yet."""

    total: Count = 0
    pending: Count = 0
    copying: Count = 0
    done: Count = 0
    rolled_back: Count = 0


class ByteCounts(Api, frozen=True, kw_only=True):
    """Bytes to copy, and bytes copied, as far as brokers have reported them."""

    total: Quantity
    copied: Quantity
    left: Quantity
    rate_per_second: Quantity | None = None


class ActiveMove(Api, frozen=True, kw_only=True):
    """A partition with a replica that is being moved."""

    topic: TopicName
    partition: Count
    from_: BrokerNumbers = msgspec.field(name="from", default=())
    adding: BrokerNumbers
    removing: BrokerNumbers
    copied: Quantity | None = None
    total: Quantity | None = None


class ReassignmentStatus(Api, frozen=True, kw_only=True):
    """Progress of the Reassignment. Written by the operator, which never reads it back."""

    observed_generation: Count | None = None
    phase: Phase | None = None
    start_time: Time | None = None
    completion_time: Time | None = None
    partitions: PartitionCounts | None = None
    bytes: ByteCounts | None = None
    eta_seconds: Count | None = None
    lowest_isr_margin: int | None = msgspec.field(name="lowestISRMargin", default=None)
    active: Annotated[tuple[ActiveMove, ...], Meta(max_length=20)] | None = None
    conditions: Conditions = ()


class Reassignment(ClusterObject, frozen=True, kw_only=True):
    """A request to move replicas to other brokers, once."""

    spec: ReassignmentSpec

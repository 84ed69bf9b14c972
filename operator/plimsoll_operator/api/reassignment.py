"""`Reassignment` (plra): replicas to be moved, once."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.meta import (
    Amount,
    Api,
    BrokerNumber,
    Conditions,
    Count,
    LocalClusterRef,
    ObjectMeta,
    Quantity,
    Time,
    TopicName,
)

Phase = Literal["Pending", "Running", "Paused", "Blocked", "Completed", "Cancelled", "Failed"]
OnTargetLost = Literal["Replan", "Block"]

_ATOMIC = {"x-kubernetes-list-type": "atomic"}
BrokerNumbers = Annotated[tuple[BrokerNumber, ...], Meta(max_length=32, extra_json_schema=_ATOMIC)]


class Move(Api, frozen=True, kw_only=True):
    """Partitions of one topic, and what is to become of their replicas."""

    topic: TopicName
    partitions: (
        Annotated[
            tuple[Annotated[int, Meta(ge=0, le=9_999)], ...],
            Meta(
                min_length=1,
                max_length=1000,
                description="Which of them; all when it is left out.",
                extra_json_schema=_ATOMIC,
            ),
        ]
        | None
    ) = None
    replicas: (
        Annotated[
            tuple[BrokerNumber, ...],
            Meta(
                min_length=1,
                max_length=32,
                description="Exactly these brokers, the preferred leader first.",
                extra_json_schema=_ATOMIC,
            ),
        ]
        | None
    ) = None
    replication_factor: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=32,
                description="So many replicas each.  A topic that has an object says it there.",
            ),
        ]
        | None
    ) = None
    # Not `off`: in YAML 1.1, which kubectl reads, that is the boolean false.
    away_from: (
        Annotated[
            tuple[BrokerNumber, ...],
            Meta(
                min_length=1,
                max_length=32,
                description="Away from these brokers; the operator chooses where to.",
                extra_json_schema=_ATOMIC,
            ),
        ]
        | None
    ) = None


class Throttle(Api, frozen=True, kw_only=True):
    """How fast each broker takes in what is moved to it."""

    bytes_per_second: Amount


class ReassignmentSpec(Api, frozen=True, kw_only=True):
    """Immutable but for throttle, paused and cancelled: it is carried out once."""

    cluster_ref: LocalClusterRef
    moves: Annotated[
        tuple[Move, ...], Meta(min_length=1, max_length=1000, extra_json_schema=_ATOMIC)
    ]
    throttle: (
        Annotated[Throttle, Meta(description="Default: the cluster's movement.bytesPerSecond.")]
        | None
    ) = None
    on_target_lost: (
        Annotated[
            OnTargetLost,
            Meta(
                description=(
                    "When a broker that is given replicas stays away: choose another (Replan, the "
                    "default where the operator chose) or wait (Block, the default for replicas)."
                )
            ),
        ]
        | None
    ) = None
    paused: Annotated[bool, Meta(description="Copy nothing more for now.")] | None = None
    cancelled: (
        Annotated[bool, Meta(description="Roll back what is not done; so does deletion.")] | None
    ) = None


class PartitionCounts(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Partitions by progress; pending ones have not begun to be copied."""

    total: Count = 0
    pending: Count = 0
    copying: Count = 0
    done: Count = 0
    rolled_back: Count = 0


class ByteCounts(Api, frozen=True, kw_only=True):
    """How much there is to copy, as far as brokers have told."""

    total: Quantity
    copied: Quantity
    left: Quantity
    rate_per_second: Quantity | None = None


class ActiveMove(Api, frozen=True, kw_only=True):
    """A partition on the move."""

    topic: TopicName
    partition: Count
    from_: BrokerNumbers = msgspec.field(name="from", default=())
    adding: BrokerNumbers
    removing: BrokerNumbers
    copied: Quantity | None = None
    total: Quantity | None = None


class ReassignmentStatus(Api, frozen=True, kw_only=True):
    """How far it is: a projection, never read back."""

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


class Reassignment(msgspec.Struct, frozen=True, kw_only=True):
    """The object."""

    metadata: ObjectMeta
    spec: ReassignmentSpec

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.metadata.namespace, self.metadata.name

    @property
    def cluster_key(self) -> tuple[str, str]:
        """(namespace, name) of the LogCluster meant."""
        return self.metadata.namespace, self.spec.cluster_ref.name

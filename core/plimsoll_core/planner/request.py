"""The planner's request: the facts of a cluster that placement needs, and one goal.

Made by the controller, a tool or the simulator, from a committed image and the known sizes. A
partition that is being moved is given with its target replicas.
"""

from __future__ import annotations

import msgspec

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId, TopicId
from plimsoll_core.planner.disk_room import DiskRoom
from plimsoll_core.planner.placement import ROUND_ROBIN, RackPolicy, Row
from plimsoll_core.planner.traffic_capacity import TrafficCapacity


class PlanBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker. `usable` is True if it may be given replicas: it is registered, running and not
    being drained.

    The replicas and preferred leaderships of an unusable broker stay there, unless the goal is to
    take its replicas away. `disk` and `replicas_max` are None if no figures are known, `traffic` if
    no capacity is declared.
    """

    id: BrokerId
    rack: str | None = None
    usable: bool = True
    disk: DiskRoom | None = None
    traffic: TrafficCapacity | None = None
    replicas_max: int | None = None


class PlanTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic. A topic with the strategy `Explicit` is skipped: its owner states its placement."""

    id: TopicId
    name: str
    strategy: str = ROUND_ROBIN


class PlanPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition. `size_bytes` is the size of one replica, None if unknown. `bytes_in` and
    `bytes_out` are what producers write and consumers read, in bytes per second, None if
    unknown."""

    topic_id: TopicId
    index: int
    replicas: Row
    isr: Row = ()
    min_isr: int = 1
    size_bytes: int | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic_id, self.index)

    @property
    def isr_margin(self) -> int:
        """Return the ISR size minus the effective min ISR: how many members may fail before writes
        stop."""
        return len(self.isr) - effective_min_isr(self.min_isr, len(self.replicas))


def effective_min_isr(min_isr: int, replicas: int) -> int:
    """Return the min ISR that applies with `replicas` replicas: at most their number, at least 1
    (m(p) in docs/protocol.md)."""
    return max(1, min(min_isr, replicas))


# --- goals -------------------------------------------------------------------------------------


class AddBrokers(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Goal: balance replicas over all usable brokers, including these new ones, with the fewest
    moves."""

    brokers: Row


class RemoveBrokers(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Goal: leave no replica on these brokers, active or not."""

    brokers: Row


class FullRebalance(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Goal: place all replicas anew by the placement formula, with as few moves as possible."""


class PreferredLeaders(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Goal: balance preferred leaders by the order of replicas; no data moves."""


class EvenLoad(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Goal: balance measured load, with as few bytes copied as possible. `percent`: by how much a
    broker may exceed the mean of bytes on disk, bytes in and bytes out, in this order. `max_bytes`:
    the most bytes that the plan copies, None for no limit."""

    percent: tuple[int, int, int] = (10, 20, 20)
    max_bytes: int | None = None


class SetReplicationFactor(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Goal: give the partitions of a topic this number of replicas. `partitions`: None for all."""

    topic_id: TopicId
    replication_factor: int
    partitions: tuple[int, ...] | None = None


class MoveOff(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Goal: move the replicas of a topic's partitions off these brokers, and no other replicas.
    `partitions`: None for all."""

    topic_id: TopicId
    brokers: Row
    partitions: tuple[int, ...] | None = None


class SetReplicas(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Goal: give these partitions of a topic exactly these replicas, in this order."""

    topic_id: TopicId
    partitions: tuple[int, ...]
    replicas: Row


TopicChange = SetReplicationFactor | MoveOff | SetReplicas


class ChangeTopics(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Goal: make the changes that a Reassignment states. They are planned together, so that brokers
    end up even over all of them."""

    changes: tuple[TopicChange, ...]


Goal = AddBrokers | RemoveBrokers | FullRebalance | PreferredLeaders | EvenLoad | ChangeTopics


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request to the planner: the cluster (brokers, topics, partitions) and the goal. The order
    of the items has no effect on the plan."""

    brokers: tuple[PlanBroker, ...]
    topics: tuple[PlanTopic, ...]
    partitions: tuple[PlanPartition, ...]
    goal: Goal
    rack_policy: RackPolicy = "Preferred"

    @property
    def rooms(self) -> dict[BrokerId, DiskRoom]:
        """Return the room on the disk of each broker with figures."""
        return {broker.id: broker.disk for broker in self.brokers if broker.disk is not None}

    @property
    def most_replicas(self) -> dict[BrokerId, int]:
        """Return the number of replicas for which each broker that has told it has room."""
        return {b.id: b.replicas_max for b in self.brokers if b.replicas_max is not None}

    @property
    def capacities(self) -> dict[BrokerId, TrafficCapacity]:
        """Return the declared capacity of each broker that has one."""
        return {broker.id: broker.traffic for broker in self.brokers if broker.traffic is not None}

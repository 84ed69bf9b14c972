"""Puts a cluster to sleep and wakes it, in the metadata log. Called for SetHibernation.

While a cluster hibernates no partition has a leader, and no broker is acceptable: nothing can be
committed. The decision moves each ISR to the ELR as a whole. Its members hold all committed
records, and no leader can commit one that they lack: a former leader that has not heard of it needs
all of them for that. So brokers then stop without a change of any partition, and after waking the
first complete replica of each partition that is back leads it. The brokers' order of stopping
follows from the image alone (`stopped_brokers`), so every operator continues it alike. Source:
docs/protocol.md 3.5.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.cluster.record_versions import HIBERNATION_SINCE
from plimsoll_core.cluster.records import HibernationSet
from plimsoll_core.controller.kernel.decision import DecisionContext, too_old
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import SetHibernation
from plimsoll_core.messages.requests import Answer, Done

ASLEEP = "shutdown of the cluster: it hibernates"
AWAKE = "elected after hibernation"


def set_hibernation(turn: DecisionContext, request: SetHibernation) -> Answer | Refusal:
    """Record that the cluster hibernates, or that it does no longer; then take the leaders away, or
    elect them where a complete replica is active, one slice in a turn."""
    if request.hibernated != turn.image.hibernated:
        refusal = too_old(turn, HIBERNATION_SINCE, "spec.hibernated needs")
        if refusal is not None:
            return refusal
        turn.add(HibernationSet(cause="declared", hibernated=request.hibernated))
    done = resign(turn) if request.hibernated else elect(turn)
    if not done:
        turn.again = request
    return Done()


def resign(turn: DecisionContext) -> bool:
    """Take the leader from at most one slice of the partitions that have one, and move their ISRs
    to their ELRs. Return True if none is left."""
    led = [p for p in turn.image.partitions.values() if p.leader is not None or p.isr]
    return _change(turn, led, PartitionUpdate(isr=[]), ASLEEP)


def elect(turn: DecisionContext) -> bool:
    """Elect leaders for leaderless partitions with an active complete replica, at most one slice.
    Return True if no such partition is left."""
    waiting = [p for p in turn.image.partitions.values() if p.leader is None]
    able = [p for p in waiting if any(turn.may_lead(b, p) for b in p.isr or p.elr)]
    return _change(turn, able, PartitionUpdate(), AWAKE)


def _change(
    turn: DecisionContext, partitions: list[Partition], wish: PartitionUpdate, cause: str
) -> bool:
    now = partitions[: turn.settings.slice_partitions_max]
    turn.change([(p, wish) for p in now], cause)
    return len(now) == len(partitions)


def stopped_brokers(image: ClusterImage) -> frozenset[BrokerId]:
    """Return the brokers that must not run: none unless the cluster hibernates. They stop one after
    the other, the highest id first: the next one when all before it are fenced."""
    found: set[BrokerId] = set()
    if not image.hibernated:
        return frozenset()
    for broker_id in sorted({*image.members, *image.brokers}, reverse=True):
        found.add(broker_id)
        broker = image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            break
    return frozenset(found)


def is_asleep(image: ClusterImage) -> bool:
    """Return True if the cluster hibernates and all its brokers have stopped."""
    return image.hibernated and all(broker.fenced for broker in image.brokers.values())

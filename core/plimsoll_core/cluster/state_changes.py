"""The state changes that committed metadata request of replicas: start, close, lead, follow.

A commit of the controller is a request to each replica that gets another role; the epoch that a
request carries is the partition's leader epoch. The controller counts the changes that it requests,
a broker those that it receives and completes, in the same words. Pure. Source: the design document
V2, "the entire lifecycle of a state change".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.cluster.records import (
    PartitionsChanged,
    PartitionsCreated,
    Record,
    TopicRemoved,
)
from plimsoll_core.ids import BrokerId, LeaderEpoch

StateChangeKind = Literal["start-replica", "close-replica", "become-leader", "become-follower"]
START: StateChangeKind = "start-replica"
CLOSE: StateChangeKind = "close-replica"
LEAD: StateChangeKind = "become-leader"
FOLLOW: StateChangeKind = "become-follower"
KINDS: tuple[StateChangeKind, ...] = (START, CLOSE, LEAD, FOLLOW)
Stage = Literal["requested", "received", "completed"]
REQUESTED: Stage = "requested"
RECEIVED: Stage = "received"
COMPLETED: Stage = "completed"


class StateChange(NamedTuple):
    """A change of one replica's role (start, close, lead or follow), which a committed change of
    its partition requests from its broker."""

    kind: StateChangeKind
    key: PartitionKey
    broker_id: BrokerId
    leader_epoch: LeaderEpoch


class ReachedStage(NamedTuple):
    """A state change, and the stage that it has reached (requested, received, completed), for the
    log and for metrics. `controller_epoch`: the epoch of the controller that requested the change,
    or of a later one."""

    stage: Stage
    change: StateChange
    topic: str
    controller_epoch: int


def asked_of(
    broker_id: BrokerId, before: Partition | None, after: Partition | None
) -> tuple[StateChangeKind, ...]:
    """Return the state changes that the step from `before` to `after` requests of the broker's
    replica, in order; empty if its role stays. `before` is None for a new partition, `after` for a
    removed one. A new follower is asked to start only: starting includes following."""
    was = before is not None and broker_id in before.replicas
    if after is None or broker_id not in after.replicas:
        return (CLOSE,) if was else ()
    leads = after.leader == broker_id
    if before is None or not was:
        return (START, LEAD) if leads else (START,)
    if (before.leader, before.leader_epoch) == (after.leader, after.leader_epoch):
        return ()
    if leads:
        return (LEAD,)
    led = before.leader == broker_id
    return (FOLLOW,) if led or after.leader is not None else ()


def requested(
    old: ClusterImage, new: ClusterImage, records: Iterable[Record]
) -> Iterator[StateChange]:
    """Yield the state changes that a committed batch requests. `old` and `new` are the images
    before and after the batch: a partition that several records change is compared once."""
    seen: set[PartitionKey] = set()
    for key in _touched(old, records):
        if key in seen:
            continue
        seen.add(key)
        before, after = old.partitions.get(key), new.partitions.get(key)
        found = after or before
        if found is None or before is after:
            continue
        there = () if before is None else before.replicas
        here = () if after is None else after.replicas
        for broker_id in (*here, *(b for b in there if b not in here)):
            for kind in asked_of(broker_id, before, after):
                yield StateChange(kind, key, broker_id, found.leader_epoch)


def _touched(old: ClusterImage, records: Iterable[Record]) -> Iterator[PartitionKey]:
    for record in records:
        if isinstance(record, PartitionsChanged):
            for first, last in record.ranges:
                for index in range(first, last + 1):
                    yield PartitionKey(record.topic_id, index)
        elif isinstance(record, PartitionsCreated):
            for index in range(record.first, record.first + len(record.replicas)):
                yield PartitionKey(record.topic_id, index)
        elif isinstance(record, TopicRemoved):
            topic = old.topics.get(record.topic_id)
            for index in range(topic.partitions if topic is not None else 0):
                yield PartitionKey(record.topic_id, index)


def fields(told: ReachedStage) -> dict[str, object]:
    """Return the parts of `sentence` as the fields of a structured log line."""
    change = told.change
    return {
        "stateChange": change.kind,
        "stage": told.stage,
        "topic": told.topic,
        "partition": change.key.index,
        "broker": change.broker_id,
        "leaderEpoch": change.leader_epoch,
        "controllerEpoch": told.controller_epoch,
    }


def sentence(told: ReachedStage, *, leads: bool) -> str:
    """Return the log line for a stage that a state change reached, in the words of the design
    document. `leads`: True if the replica is, or will be, the leader."""
    change = told.change
    what = f"{change.kind} for topic {told.topic} partition {change.key.index}"
    at = f"at epoch {change.leader_epoch}"
    controller = f"controller, epoch {told.controller_epoch}"
    if told.stage == REQUESTED:
        return f"{controller}, requested {what}, to broker id {change.broker_id}, {at}"
    who = f"{'leader' if leads else 'follower'}, broker id {change.broker_id}"
    if told.stage == RECEIVED:
        return f"{who}, received {what}, from {controller}, {at}"
    return f"{who}, completed {what}, request from {controller}, {at}"

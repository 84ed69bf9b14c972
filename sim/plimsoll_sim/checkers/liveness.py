"""What must come about once faults stop, as a list of what has not: the protocol's liveness."""

from __future__ import annotations

from typing import Protocol

from plimsoll_core.ids import BrokerId
from plimsoll_sim.checkers.shown_statuses import unshown
from plimsoll_sim.desired.objects import AppliedObjects
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.clients import Client
from plimsoll_sim.hosts.operators import OperatorHost
from plimsoll_sim.oracle.committed import MetadataGhost


class Healed(Protocol):
    """What is looked at of a simulated cluster."""

    ghost: MetadataGhost
    objects: AppliedObjects
    brokers: dict[int, BrokerHost]
    operators: list[OperatorHost]
    clients: list[Client]


def unfinished(world: Healed) -> list[str]:
    """Sentences; empty when everything is as it should be."""
    image = world.ghost.image
    left: list[str] = []
    if not any(operator.active for operator in world.operators):
        left.append("no operator leads")
    for host in world.brokers.values():
        broker = image.brokers.get(BrokerId(host.id))
        if BrokerId(host.id) not in image.members:
            continue
        if not host.serving or broker is None or broker.fenced:
            left.append(f"broker {host.id} does not serve")
        elif host.manager is not None and host.manager.image != image:
            left.append(f"broker {host.id} lags behind the metadata")
    left += [
        f"topic {topic.topic_name} does not exist"
        for topic in world.objects.topics.values()
        if topic.topic_name not in image.topic_ids
    ]
    left += _members(world)
    left += _partitions(world)
    left += _moves(world)
    left += _rebalances(world)
    left += [f"broker {b} is away by grant" for b in image.grants]
    left += [
        f"broker {host.id} runs image {host.tag!r}"
        for host in world.brokers.values()
        if host.running and host.tag != world.objects.image_tag
    ]
    left += [f"{c.habits.name} still waits" for c in world.clients if not c.idle]
    return left or list(unshown(world.objects, image))


def _moves(world: Healed) -> list[str]:
    """Every reassignment ends, and no broker hosts a dropped replica."""
    image = world.ghost.image
    left = [
        f"{world.ghost.partitions[key].name} still moves: {p}"
        for key, p in image.partitions.items()
        if p.moving
    ]
    left += [
        f"{row.object.name} has not ended: {row}"
        for row in image.reassignments.values()
        if row.phase == "Running"
    ]
    for wanted in world.objects.topics.values():
        topic_id = image.topic_ids.get(wanted.topic_name)
        topic = None if topic_id is None else image.topics[topic_id]
        if topic is not None and topic.replication_factor != wanted.replication_factor:
            left.append(f"{topic.name} has another replication factor than {wanted}")
    gone = world.objects.gone
    left += [f"{gone[uid]} is remembered" for uid in image.reassignments if uid in gone]
    for host in world.brokers.values():
        for hosted in host.manager or ():
            p = image.partitions.get(hosted.key)
            if p is None or BrokerId(host.id) not in p.replicas:
                left.append(f"broker {host.id} still hosts {hosted!r}")
    return left


def _partitions(world: Healed) -> list[str]:
    left: list[str] = []
    for key, p in world.ghost.image.partitions.items():
        ghost = world.ghost.partitions[key]
        name = str(ghost.name)
        if p.leader is None:
            left.append(f"{name} has no leader: {p}")
            continue
        if set(p.isr) != set(p.replicas):
            left.append(f"{name}: ISR {p.isr} of {p.replicas}")
            continue
        ends: set[int] = set()
        for replica in p.replicas:
            hosted = world.brokers[int(replica)].hosted(key)
            if hosted is None:
                left.append(f"{name}: {replica} does not host it")
            else:
                ends.add(hosted.log.log_end_offset)
                if replica == p.leader and hosted.replica.high_watermark != max(ends):
                    left.append(f"{name}: the high watermark is behind the end")
        if len(ends) > 1:
            left.append(f"{name}: ends differ: {sorted(ends)}")
    return left


def _members(world: Healed) -> list[str]:
    """A drain ends, and what it emptied is gone."""
    image = world.ghost.image
    left = []
    if image.members != world.objects.members:
        left.append(f"members are {image.members}, not {world.objects.members}")
    if image.leaving:
        left.append(f"{image.leaving} are still leaving")
    for host in world.brokers.values():
        broker_id = BrokerId(host.id)
        if broker_id not in image.members and (host.running or broker_id in image.brokers):
            left.append(f"broker {host.id} is no member but still there")
    return left


def _rebalances(world: Healed) -> list[str]:
    """Every one ends, and what is gone is forgotten."""
    image, objects = world.ghost.image, world.objects
    left = []
    for name, found in objects.rebalances.items():
        row = image.rebalances.get(found.metadata.uid)
        if row is None or row.phase in ("Beginning", "Running"):
            left.append(f"{name} has not ended: {row}")
    left += [
        f"{objects.gone[uid]} is remembered" for uid in image.rebalances if uid in objects.gone
    ]
    return left

"""Checks the protocol's liveness: lists everything that is unfinished once faults have stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_core.planner import rebalance
from plimsoll_operator.api import labels
from plimsoll_operator.api.conditions import is_true
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import (
    LOG_BROKERS,
    LOG_CLUSTERS,
    RUN_ONCE,
    STATEFUL_SETS,
    TOPICS,
    VOLUME_CLAIMS,
    Kind,
)
from plimsoll_sim.checkers.coordinated import CoordinatedChecker
from plimsoll_sim.desired.objects import AppliedObjects
from plimsoll_sim.environment.simulated_bucket import BackupBucket
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.clients import Client
from plimsoll_sim.hosts.operators import OperatorHost
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import PartitionGhost


class Unfinished(Protocol):
    """A part of the cluster that lists its unfinished work."""

    def unfinished(self) -> Iterator[str]: ...


class Healed(Protocol):
    """The parts of a simulated cluster of which the liveness is checked."""

    ghost: MetadataGhost
    objects: AppliedObjects
    brokers: dict[int, BrokerHost]
    operators: list[OperatorHost]
    clients: list[Client]
    coordinated: CoordinatedChecker
    bucket: BackupBucket | None

    def stable(self, ghost: PartitionGhost) -> int | None:
        """Return the last stable offset of the partition's leader; None if it has none here."""

    @property
    def secured(self) -> Unfinished | None:
        """Return the parts of a cluster with certificates or logins; None if neither is in use."""


def unfinished(world: Healed) -> list[str]:
    """Return sentences about what is unfinished; empty if the cluster has converged."""
    return list(_left(world)) or list(unshown(world.objects, world.ghost.image))


def is_finished(world: Healed) -> bool:
    """Return True if nothing is unfinished. Stops at the first unfinished thing."""
    if next(_left(world), None) is not None:
        return False
    return next(unshown(world.objects, world.ghost.image), None) is None


def _left(world: Healed) -> Iterator[str]:
    image = world.ghost.image
    if not any(operator.active for operator in world.operators):
        yield "no operator leads"
    yield from _brokers(world)
    for topic in world.objects.topics.values():
        if topic.topic_name not in image.topic_ids:
            yield f"topic {topic.topic_name} does not exist"
    yield from _members(world)
    yield from _partitions(world)
    yield from _moves(world)
    yield from _rebalances(world)
    for broker_id in image.grants:
        yield f"broker {broker_id} is away by grant"
    yield from _image_tags(world)
    if world.bucket is not None:
        yield from _backup(world)
    if world.secured is not None:
        yield from world.secured.unfinished()
    for client in world.clients:
        if not client.idle:
            yield f"{client.habits.name} still waits"
    if world.ghost.tell_ended is not None:
        yield from world.coordinated.unfinished(world.stable)


def _backup(world: Healed) -> Iterator[str]:
    """Yield a sentence if the metadata are not exported to their end."""
    end = world.ghost.image.next_offset
    for operator in world.operators:
        if operator.active and (operator.backup_end or 0) < end:
            yield f"the backup ends at {operator.backup_end}, the metadata at {end}"


def _brokers(world: Healed) -> Iterator[str]:
    """Yield a sentence for each member that does not serve, or has not applied all committed
    metadata."""
    image = world.ghost.image
    for host in world.brokers.values():
        broker = image.brokers.get(BrokerId(host.id))
        if BrokerId(host.id) not in image.members:
            continue
        if not host.serving or broker is None or broker.fenced:
            yield f"broker {host.id} does not serve"
        elif host.manager is not None and not _is_current(world.ghost, host.manager.image):
            yield f"broker {host.id} lags behind the metadata"


def _image_tags(world: Healed) -> Iterator[str]:
    """Yield a sentence for each pod that does not run the wanted image."""
    tag = world.objects.image_tag
    for host in world.brokers.values():
        if host.running and host.tag != tag:
            yield f"broker {host.id} runs image {host.tag!r}"


def _is_current(ghost: MetadataGhost, shown: ClusterImage | None) -> bool:
    """Return True if the shown image is the newest. Each image is compared with the committed one
    at its offset (I23), so the offset is enough unless etcd went back."""
    image = ghost.image
    if shown is None or shown.next_offset != image.next_offset:
        return False
    return not ghost.restored or shown == image


def _moves(world: Healed) -> Iterator[str]:
    """Yield a sentence for each reassignment that has not ended, and for each broker that still
    hosts a dropped replica."""
    image = world.ghost.image
    for key, moved in image.partitions.items():
        if moved.moving:
            yield f"{world.ghost.partitions[key].name} still moves: {moved}"
    for row in image.reassignments.values():
        if row.phase == "Running":
            yield f"{row.object.name} has not ended: {row}"
    yield from _replication_factors(world)
    gone = world.objects.gone
    for uid in image.reassignments:
        if uid in gone:
            yield f"{gone[uid]} is remembered"
    for host in world.brokers.values():
        for hosted in host.manager or ():
            p = image.partitions.get(hosted.key)
            if p is None or BrokerId(host.id) not in p.replicas:
                yield f"broker {host.id} still hosts {hosted!r}"


def _replication_factors(world: Healed) -> Iterator[str]:
    image = world.ghost.image
    for wanted in world.objects.topics.values():
        topic_id = image.topic_ids.get(wanted.topic_name)
        topic = None if topic_id is None else image.topics[topic_id]
        if topic is not None and topic.replication_factor != wanted.replication_factor:
            yield f"{topic.name} has another replication factor than {wanted}"


def _partitions(world: Healed) -> Iterator[str]:
    for key, p in world.ghost.image.partitions.items():
        ghost = world.ghost.partitions[key]
        name = str(ghost.name)
        if p.min_isr != (wanted := world.ghost.image.topics[key.topic_id].min_isr):
            yield f"{name}: its min ISR is {p.min_isr}, its topic's {wanted}"
        if p.leader is None:
            yield f"{name} has no leader: {p}"
            continue
        if set(p.isr) != set(p.replicas):
            yield f"{name}: ISR {p.isr} of {p.replicas}"
            continue
        ends: set[int] = set()
        for replica in p.replicas:
            hosted = world.brokers[int(replica)].hosted(key)
            if hosted is None:
                yield f"{name}: {replica} does not host it"
            else:
                ends.add(hosted.log.log_end_offset)
                if replica == p.leader and hosted.replica.high_watermark != max(ends):
                    yield f"{name}: the high watermark is behind the end"
        if len(ends) > 1:
            yield f"{name}: ends differ: {sorted(ends)}"


def _members(world: Healed) -> Iterator[str]:
    """Yield a sentence for each drain that has not ended, and for each emptied broker that still
    exists."""
    image = world.ghost.image
    members = world.objects.members
    if image.members != members:
        yield f"members are {image.members}, not {members}"
    if image.leaving:
        yield f"{image.leaving} are still leaving"
    for host in world.brokers.values():
        broker_id = BrokerId(host.id)
        if broker_id not in image.members and (host.running or broker_id in image.brokers):
            yield f"broker {host.id} is no member but still there"


def _rebalances(world: Healed) -> Iterator[str]:
    """Yield a sentence for each Rebalance that has not ended, and for each deleted one that is
    still committed. One whose mode the metadata version does not know waits for an upgrade."""
    image, objects = world.ghost.image, world.objects
    for name, found in objects.rebalances.items():
        if rebalance.too_old(image, found.spec.mode):
            continue
        row = image.rebalances.get(found.metadata.uid)
        if row is None or row.phase in ("Beginning", "Running"):
            yield f"{name} has not ended: {row}"
    for uid in image.rebalances:
        if uid in objects.gone:
            yield f"{objects.gone[uid]} is remembered"


FINAL = frozenset({"Completed", "Cancelled", "Failed", "NothingToDo"})


def unshown(objects: AppliedObjects, image: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each object with a status that does not show the committed state."""
    for kind in (LOG_CLUSTERS, TOPICS):
        for name in objects.names(kind):
            yield from _ready(kind, objects.body(kind, name))
    for kind in RUN_ONCE:
        for name in objects.names(kind):
            body = objects.body(kind, name)
            phase = (body.get("status") or {}).get("phase")
            # A change that cannot begin as it stands waits for a person, and its status says why.
            if phase not in FINAL and not is_true(body, "Blocked"):
                yield f"{kind.kind} {name} shows {phase}"
    wanted = {labels.broker(objects.name, broker_id) for broker_id in image.members}
    if (sets := set(objects.names(STATEFUL_SETS))) != wanted:
        yield f"there are the StatefulSets {sorted(sets)}, not {sorted(wanted)}"
    yield from _broker_statuses(objects, image)
    if image.released:
        yield f"volumes {image.released} are released, and not forgotten"
    for name in objects.names(VOLUME_CLAIMS):
        if objects.body(VOLUME_CLAIMS, name)["metadata"].get("deletionTimestamp"):
            yield f"claim {name} is going"


def _broker_statuses(objects: AppliedObjects, image: ClusterImage) -> Iterator[str]:
    """Yield a sentence for each member with a LogBroker that is missing, shows the member as not
    serving, or shows an old backlog."""
    wanted = {labels.log_broker(objects.name, broker_id) for broker_id in image.members}
    if (there := set(objects.names(LOG_BROKERS))) != wanted:
        yield f"there are the LogBrokers {sorted(there)}, not {sorted(wanted)}"
        return
    for name in sorted(wanted):
        body = objects.body(LOG_BROKERS, name)
        yield from _ready(LOG_BROKERS, body)
        status = body.get("status") or {}
        if status.get("state") != "Active" or "fenced" in status:
            yield f"LogBroker {name} shows {status}"


def _ready(kind: Kind, body: Object) -> Iterator[str]:
    meta, status = body["metadata"], body.get("status") or {}
    if status.get("observedGeneration") != meta["generation"]:
        yield f"{kind.kind} {meta['name']} shows another generation than {meta['generation']}"
    if not is_true(body, "Ready"):
        yield f"{kind.kind} {meta['name']} is not shown to be ready: {status.get('conditions')}"

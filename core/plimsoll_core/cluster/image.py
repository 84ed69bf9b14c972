"""Applies records to an image: the only reader of records, the only maker of images.

The controller, every broker, a restart and the simulator all call `apply`, so equal logs give equal
images. Applying a record takes time in proportion to what the record changes, never to the size of
the cluster. A record that contradicts the image is our own bug and fails an assert; nothing here
refuses, reads a clock, or decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from immutables import Map
from msgspec import UNSET
from msgspec.structs import replace

from plimsoll_core.cluster import records as r
from plimsoll_core.cluster import security_records as security
from plimsoll_core.cluster.controller_terms import with_term
from plimsoll_core.cluster.image_indexes import (
    count_behind,
    count_preferred,
    move_hosted,
    spell,
    unspell,
)
from plimsoll_core.cluster.model import (
    Broker,
    ClusterImage,
    Grant,
    Partition,
    PartitionKey,
    RebalanceRest,
    Topic,
)
from plimsoll_core.cluster.record_versions import newer_than
from plimsoll_core.cluster.topic_configs import compacts
from plimsoll_core.ids import BrokerEpoch, BrokerId, LeaderEpoch, MetadataOffset, PartitionEpoch

HOUR_MS = 3_600_000


def apply(image: ClusterImage, record: r.Record) -> ClusterImage:
    """Return the image after `record`, which has the offset `image.next_offset`."""
    changed = _APPLIERS[type(record)](image, record)
    return replace(changed, next_offset=MetadataOffset(image.next_offset + 1))


def append(image: ClusterImage, record: r.Record) -> ClusterImage:
    """Return the image after a record that is about to be written to the log. The controller calls
    this instead of `apply`: it asserts that the finalised metadata version knows the record."""
    newer = newer_than(record, image.metadata_version)
    assert newer is None, newer
    return apply(image, record)


def apply_all(image: ClusterImage, records: Iterable[r.Record]) -> ClusterImage:
    for record in records:
        image = apply(image, record)
    return image


# --- the cluster and its brokers ---------------------------------------------------------------


def _controller_changed(image: ClusterImage, record: r.ControllerChanged) -> ClusterImage:
    assert record.controller_epoch > image.controller_epoch, "controller epochs only grow"
    terms = with_term(image.terms, record.term_id, image.next_offset)
    image = replace(image, controller_epoch=record.controller_epoch, terms=terms)
    if (restored := record.restored) is None:
        return image
    named = {one.broker_id: one for one in (*image.dismissed, *restored.dismissed)}
    dismissed = tuple(one for _, one in sorted(named.items()))
    return replace(image, restored=restored, dismissed=dismissed)


def _cluster_declared(image: ClusterImage, record: r.ClusterDeclared) -> ClusterImage:
    assert record.cluster_id == image.cluster_id, "this log belongs to another cluster"
    return replace(image, name=record.name)


def _metadata_version_finalized(
    image: ClusterImage, record: r.MetadataVersionFinalized
) -> ClusterImage:
    assert record.metadata_version > image.metadata_version, "metadata versions only grow"
    return replace(image, metadata_version=record.metadata_version)


def _members_changed(image: ClusterImage, record: r.MembersChanged) -> ClusterImage:
    known = {*record.broker_ids, *image.brokers}
    leaving = tuple(broker_id for broker_id in image.leaving if broker_id in known)
    new = set(record.broker_ids) - set(image.members) if image.members else set()
    newcomers = tuple(b for b in record.broker_ids if b in new or b in image.newcomers)
    return replace(image, members=record.broker_ids, leaving=leaving, newcomers=newcomers)


def _newcomers_settled(image: ClusterImage, record: r.NewcomersSettled) -> ClusterImage:
    left = tuple(b for b in image.newcomers if b not in record.broker_ids)
    return replace(image, newcomers=left)


def _brokers_leaving(image: ClusterImage, record: r.BrokersLeaving) -> ClusterImage:
    return replace(image, leaving=record.broker_ids)


def _broker_registered(image: ClusterImage, record: r.BrokerRegistered) -> ClusterImage:
    broker = Broker(
        id=record.broker_id,
        broker_epoch=BrokerEpoch(image.next_offset),
        incarnation_id=record.incarnation_id,
        directory_ids=record.directory_ids,
        endpoints=record.endpoints,
        rack=record.rack,
        pod_uid=record.pod_uid,
        fenced=True,
        shutting_down=False,
        revision=record.revision,
    )
    dismissed = tuple(one for one in image.dismissed if one.broker_id != broker.id)
    return replace(image, brokers=image.brokers.set(broker.id, broker), dismissed=dismissed)


def _broker_updated(image: ClusterImage, record: r.BrokerUpdated) -> ClusterImage:
    return _with_broker(
        image,
        record.broker_id,
        record.broker_epoch,
        directory_ids=record.directory_ids,
        endpoints=record.endpoints,
        rack=record.rack,
        pod_uid=record.pod_uid,
        revision=record.revision,
    )


def _broker_fenced(image: ClusterImage, record: r.BrokerFenced) -> ClusterImage:
    return _with_broker(image, record.broker_id, record.broker_epoch, fenced=True)


def _broker_unfenced(image: ClusterImage, record: r.BrokerUnfenced) -> ClusterImage:
    return _with_broker(image, record.broker_id, record.broker_epoch, fenced=False)


def _broker_shutdown_started(image: ClusterImage, record: r.BrokerShutdownStarted) -> ClusterImage:
    return _with_broker(image, record.broker_id, record.broker_epoch, shutting_down=True)


def _broker_unregistered(image: ClusterImage, record: r.BrokerUnregistered) -> ClusterImage:
    assert image.brokers[record.broker_id].broker_epoch == record.broker_epoch
    leaving = tuple(broker_id for broker_id in image.leaving if broker_id != record.broker_id)
    return replace(image, brokers=image.brokers.delete(record.broker_id), leaving=leaving)


def _volume_released(image: ClusterImage, record: r.VolumeReleased) -> ClusterImage:
    return replace(image, released=image.released.set(record.pvc_uid, record.broker_id))


def _volume_forgotten(image: ClusterImage, record: r.VolumeForgotten) -> ClusterImage:
    return replace(image, released=image.released.delete(record.pvc_uid))


def _with_broker(
    image: ClusterImage, broker_id: BrokerId, broker_epoch: BrokerEpoch, **changes: Any
) -> ClusterImage:
    broker = image.brokers[broker_id]
    assert broker.broker_epoch == broker_epoch, "the record is about another lifetime of this "
    "broker"
    return replace(image, brokers=image.brokers.set(broker_id, replace(broker, **changes)))


# --- topics ------------------------------------------------------------------------------------


def _topic_created(image: ClusterImage, record: r.TopicCreated) -> ClusterImage:
    assert record.topic_id not in image.topics, "topic ids are never used twice"
    assert record.name not in image.topic_ids, "topic names are unique"
    topic = Topic(
        id=record.topic_id,
        name=record.name,
        partitions=0,
        replication_factor=record.replication_factor,
        min_isr=record.min_isr,
        configs=Map(record.configs),
        strategy=record.strategy,
        object=record.object,
        deletion_policy=record.deletion_policy,
        compacted=compacts(record.configs),
        owner=record.owner,
    )
    return replace(
        image,
        topics=image.topics.set(topic.id, topic),
        topic_ids=image.topic_ids.set(topic.name, topic.id),
        spellings=spell(image.spellings, topic.name),
    )


def _topic_configured(image: ClusterImage, record: r.TopicConfigured) -> ClusterImage:
    topic = image.topics[record.topic_id]
    stated = {name: getattr(record, name) for name in r.TOPIC_FIELDS}
    stated = {name: value for name, value in stated.items() if value is not UNSET}
    compacted = topic.compacted or compacts(record.configs)
    configs = Map(record.configs)
    new = replace(topic, configs=configs, compacted=compacted, **stated)
    changed = _with_topic(image, new)
    if new.min_isr == topic.min_isr:
        return changed
    keys = (PartitionKey(topic.id, index) for index in range(topic.partitions))
    count = sum(image.partitions[key].min_isr != new.min_isr for key in keys)
    return replace(changed, min_isr_behind=count_behind(image.min_isr_behind, topic.id, count))


def _topic_bound(image: ClusterImage, record: r.TopicBound) -> ClusterImage:
    before = image.topics[record.topic_id]
    former = (before.object or before.detached_from) if record.object is None else None
    topic = replace(
        before,
        object=record.object,
        detached_from=former,
        deletion_policy=record.deletion_policy,
        pending_deletion=None,
    )
    return _with_topic(image, topic)


def _topic_orphaned(image: ClusterImage, record: r.TopicOrphaned) -> ClusterImage:
    topic = replace(image.topics[record.topic_id], pending_deletion=record.pending)
    return _with_topic(image, topic)


def _topic_removed(image: ClusterImage, record: r.TopicRemoved) -> ClusterImage:
    topic = image.topics[record.topic_id]
    partitions = image.partitions.mutate()
    gone: dict[BrokerId, list[PartitionKey]] = {}
    first: Counter[BrokerId] = Counter()
    for index in range(topic.partitions):
        key = PartitionKey(topic.id, index)
        replicas = partitions.pop(key).replicas
        first[replicas[0]] -= 1
        for broker_id in replicas:
            gone.setdefault(broker_id, []).append(key)
    return replace(
        image,
        topics=image.topics.delete(topic.id),
        topic_ids=image.topic_ids.delete(topic.name),
        spellings=unspell(image.spellings, topic.name),
        partitions=partitions.finish(),
        hosted=move_hosted(image.hosted, gone, {}),
        preferred=count_preferred(image.preferred, first),
        min_isr_behind=count_behind(image.min_isr_behind, topic.id, 0),
        removals_ms=_removals_after(image.removals_ms, record.now_ms),
    )


def _removals_after(removals_ms: tuple[int, ...], now_ms: int | None) -> tuple[int, ...]:
    if now_ms is None:
        return removals_ms
    return (*(at for at in removals_ms if at > now_ms - HOUR_MS), now_ms)


def _with_topic(image: ClusterImage, topic: Topic) -> ClusterImage:
    return replace(image, topics=image.topics.set(topic.id, topic))


# --- partitions --------------------------------------------------------------------------------


def _partitions_created(image: ClusterImage, record: r.PartitionsCreated) -> ClusterImage:
    topic = image.topics[record.topic_id]
    assert record.first == topic.partitions, "partitions are numbered without gaps"
    partitions = image.partitions.mutate()
    new: dict[BrokerId, list[PartitionKey]] = {}
    rows = zip(record.replicas, record.isr, strict=True)
    for index, (replicas, isr) in enumerate(rows, start=record.first):
        partition = Partition(
            topic_id=topic.id,
            index=index,
            replicas=replicas,
            isr=isr,
            leader=isr[0] if isr else None,
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            min_isr=topic.min_isr,
        )
        key = PartitionKey(topic.id, index)
        partitions[key] = partition
        for broker_id in replicas:
            new.setdefault(broker_id, []).append(key)
    grown = replace(topic, partitions=record.first + len(record.replicas))
    return replace(
        _with_topic(image, grown),
        partitions=partitions.finish(),
        hosted=move_hosted(image.hosted, {}, new),
        preferred=count_preferred(image.preferred, Counter(row[0] for row in record.replicas)),
    )


def _partitions_changed(image: ClusterImage, record: r.PartitionsChanged) -> ClusterImage:
    fields = {name: getattr(record, name) for name in r.PARTITION_FIELDS}
    fields = {name: value for name, value in fields.items() if value is not UNSET}
    partitions = image.partitions.mutate()
    gone: dict[BrokerId, list[PartitionKey]] = {}
    new: dict[BrokerId, list[PartitionKey]] = {}
    preferred: Counter[BrokerId] = Counter()
    wanted, caught_up = image.topics[record.topic_id].min_isr, 0
    skipped = record.epochs_skipped
    for first, last in record.ranges:
        for index in range(first, last + 1):
            key = PartitionKey(record.topic_id, index)
            old = partitions[key]
            partitions[key] = replace(
                old,
                leader_epoch=LeaderEpoch(old.leader_epoch + record.leader_epoch_step + skipped),
                partition_epoch=PartitionEpoch(old.partition_epoch + 1 + skipped),
                **fields,
            )
            if record.replicas is not UNSET:
                for broker_id in set(old.replicas) - set(record.replicas):
                    gone.setdefault(broker_id, []).append(key)
                for broker_id in set(record.replicas) - set(old.replicas):
                    new.setdefault(broker_id, []).append(key)
                preferred[old.replicas[0]] -= 1
                preferred[record.replicas[0]] += 1
            if record.min_isr is not UNSET:
                caught_up += (old.min_isr != wanted) - (record.min_isr != wanted)
    behind = image.min_isr_behind
    if caught_up:
        left = behind.get(record.topic_id, 0) - caught_up
        behind = count_behind(behind, record.topic_id, left)
    hosted = move_hosted(image.hosted, gone, new) if gone or new else image.hosted
    return replace(
        image,
        partitions=partitions.finish(),
        hosted=hosted,
        preferred=count_preferred(image.preferred, preferred),
        min_isr_behind=behind,
    )


# --- Rebalances ----------------------------------------------------------------------------------


def _rebalance_noted(image: ClusterImage, record: r.RebalanceNoted) -> ClusterImage:
    row = record.rebalance
    uid, rests = row.object.uid, image.rebalance_rests
    if row.phase == "Beginning":
        rests = rests.set(uid, RebalanceRest())
    elif row.phase != "Running" and uid in rests:
        rests = rests.delete(uid)
    return replace(image, rebalances=image.rebalances.set(uid, row), rebalance_rests=rests)


def _rebalance_moves_added(image: ClusterImage, record: r.RebalanceMovesAdded) -> ClusterImage:
    """Add moves to the plan of a Rebalance; a move with a known number replaces the earlier one. In
    the phase Running, `total` and `replicas` grow by what is new; in the phase Beginning they
    include all moves already."""
    uid, row = record.uid, image.rebalances[record.uid]
    rest = image.rebalance_rests[uid]
    moves = rest.moves.mutate()
    total, replicas = row.total, row.replicas
    for move in record.moves:
        known = moves.get(move.number)
        assert known is None or known.key == move.key, "a move keeps its partition"
        moves[move.number] = move
        total += known is None
        replicas += len(move.adding) - (0 if known is None else len(known.adding))
    if row.phase == "Running":
        row = replace(row, total=total, replicas=replicas)
        image = replace(image, rebalances=image.rebalances.set(uid, row))
    return _with_rest(image, uid, replace(rest, moves=moves.finish()))


def _rebalance_advanced(image: ClusterImage, record: r.RebalanceAdvanced) -> ClusterImage:
    rest, row = image.rebalance_rests[record.uid], image.rebalances[record.uid]
    moves, active = rest.moves.mutate(), rest.active.mutate()
    for number in record.begun:
        active[moves[number].key] = number
    copied = 0
    for number in record.moved:
        move = moves.pop(number)
        active.pop(move.key, None)
        copied += len(move.adding)
    for number in record.dropped:
        active.pop(moves.pop(number).key, None)
    row = replace(
        row,
        moved=row.moved + len(record.moved),
        replicas_moved=row.replicas_moved + copied,
        dropped=row.dropped + len(record.dropped),
    )
    image = replace(image, rebalances=image.rebalances.set(record.uid, row))
    return _with_rest(
        image, record.uid, RebalanceRest(moves=moves.finish(), active=active.finish())
    )


def _with_rest(image: ClusterImage, uid: str, rest: RebalanceRest) -> ClusterImage:
    return replace(image, rebalance_rests=image.rebalance_rests.set(uid, rest))


def _rebalance_forgotten(image: ClusterImage, record: r.RebalanceForgotten) -> ClusterImage:
    rests = image.rebalance_rests
    return replace(
        image,
        rebalances=image.rebalances.delete(record.uid),
        rebalance_rests=rests.delete(record.uid) if record.uid in rests else rests,
    )


# --- the rest ----------------------------------------------------------------------------------


def _producer_ids_allocated(image: ClusterImage, record: r.ProducerIdsAllocated) -> ClusterImage:
    assert record.next_producer_id > image.next_producer_id, "producer ids are never used twice"
    return replace(image, next_producer_id=record.next_producer_id)


def _reassignment_noted(image: ClusterImage, record: r.ReassignmentNoted) -> ClusterImage:
    row = record.reassignment
    return replace(image, reassignments=image.reassignments.set(row.object.uid, row))


def _reassignment_forgotten(image: ClusterImage, record: r.ReassignmentForgotten) -> ClusterImage:
    return replace(image, reassignments=image.reassignments.delete(record.uid))


def _movement_limited(image: ClusterImage, record: r.MovementLimited) -> ClusterImage:
    assert record.bytes_per_second > 0, "a limit of copies is above 0"
    return replace(image, movement_bytes_per_second=record.bytes_per_second)


def _listeners_configured(image: ClusterImage, record: r.ListenersConfigured) -> ClusterImage:
    return replace(image, listeners=record.listeners)


def _restart_granted(image: ClusterImage, record: r.RestartGranted) -> ClusterImage:
    grant = Grant(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        pod_uid=record.pod_uid,
        revision=record.revision,
    )
    return replace(image, grants=image.grants.set(record.broker_id, grant))


def _restart_ended(image: ClusterImage, record: r.RestartEnded) -> ClusterImage:
    assert record.broker_id in image.grants, "only an open grant ends"
    proven = image.proven_revision if record.proven is None else record.proven
    grants = image.grants.delete(record.broker_id)
    return replace(image, grants=grants, proven_revision=proven)


def _hibernation_set(image: ClusterImage, record: r.HibernationSet) -> ClusterImage:
    return replace(image, hibernated=record.hibernated)


def _snapshot_taken(image: ClusterImage, record: r.SnapshotTaken) -> ClusterImage:
    assert record.end_offset <= image.next_offset, "a snapshot ends at or before the next offset"
    return image


_APPLIERS: dict[type, Callable[[ClusterImage, Any], ClusterImage]] = {
    r.ControllerChanged: _controller_changed,
    r.ClusterDeclared: _cluster_declared,
    r.MetadataVersionFinalized: _metadata_version_finalized,
    r.MembersChanged: _members_changed,
    r.NewcomersSettled: _newcomers_settled,
    r.BrokersLeaving: _brokers_leaving,
    r.BrokerRegistered: _broker_registered,
    r.BrokerUpdated: _broker_updated,
    r.BrokerFenced: _broker_fenced,
    r.BrokerUnfenced: _broker_unfenced,
    r.BrokerShutdownStarted: _broker_shutdown_started,
    r.BrokerUnregistered: _broker_unregistered,
    r.VolumeReleased: _volume_released,
    r.VolumeForgotten: _volume_forgotten,
    r.TopicCreated: _topic_created,
    r.PartitionsCreated: _partitions_created,
    r.PartitionsChanged: _partitions_changed,
    r.TopicConfigured: _topic_configured,
    r.TopicBound: _topic_bound,
    r.TopicOrphaned: _topic_orphaned,
    r.TopicRemoved: _topic_removed,
    r.ProducerIdsAllocated: _producer_ids_allocated,
    r.ReassignmentNoted: _reassignment_noted,
    r.ReassignmentForgotten: _reassignment_forgotten,
    r.RebalanceNoted: _rebalance_noted,
    r.RebalanceMovesAdded: _rebalance_moves_added,
    r.RebalanceAdvanced: _rebalance_advanced,
    r.RebalanceForgotten: _rebalance_forgotten,
    r.MovementLimited: _movement_limited,
    r.ListenersConfigured: _listeners_configured,
    r.RestartGranted: _restart_granted,
    r.RestartEnded: _restart_ended,
    r.HibernationSet: _hibernation_set,
    r.SnapshotTaken: _snapshot_taken,
    **security.APPLIERS,
}

"""Encodes an image as bytes, and decodes it, for snapshots of the metadata log and brokers' copies.

The encoding is canonical: equal images give equal bytes. Derived values are not stored. A
snapshot's format is its image's metadata version, so that a reader that does not know it refuses
the snapshot whole.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any
from uuid import UUID

import msgspec
from immutables import Map
from msgspec import UNSET, Meta, UnsetType

from plimsoll_core.cluster.image_indexes import (
    all_behind,
    all_spelled,
    count_preferred,
    move_hosted,
)
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import (
    MOVEMENT_BYTES_PER_SECOND,
    Broker,
    ClusterImage,
    ControllerTerm,
    DismissedCopy,
    Grant,
    HistoryRestored,
    Partition,
    PartitionKey,
    Reassignment,
    Rebalance,
    RebalanceMove,
    RebalanceRest,
    Topic,
)
from plimsoll_core.cluster.record_versions import check_known
from plimsoll_core.cluster.security_records import StoredSecurity, restored, stored
from plimsoll_core.ids import BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.quotas.state import QuotaRow, quotas_of
from plimsoll_core.security.inside import NOTHING_INSIDE, Inside
from plimsoll_core.security.state import NOTHING


class _Rest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The moves of a Rebalance that are not done, as a snapshot stores them. `active`: the numbers
    of the moves that run now."""

    uid: str
    moves: tuple[RebalanceMove, ...]
    active: tuple[int, ...]


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The format number of a snapshot. It is decoded first, to decide whether this software can
    decode the rest."""

    format: int


TOPIC_DEFAULTS = tuple(
    (one.name, one.default)
    for one in msgspec.structs.fields(Topic)
    if isinstance(one.default, str) and one.default
)


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A snapshot of an image, with the fields of its JSON. Derived values (`topic_ids`, the
    indexes) are not stored."""

    format: Annotated[int, Meta(ge=1)]
    cluster_id: UUID
    name: str
    controller_epoch: ControllerEpoch
    next_offset: MetadataOffset
    members: tuple[BrokerId, ...]
    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]
    partitions: tuple[Partition, ...]
    next_producer_id: int
    removals_ms: tuple[int, ...]
    reassignments: tuple[Reassignment, ...] = ()
    movement_bytes_per_second: int = MOVEMENT_BYTES_PER_SECOND
    grants: tuple[Grant, ...] = ()
    proven_revision: str = ""
    leaving: tuple[BrokerId, ...] = ()
    newcomers: tuple[BrokerId, ...] = ()
    released: tuple[tuple[str, BrokerId], ...] = ()
    rebalances: tuple[Rebalance, ...] = ()
    rebalance_rests: tuple[_Rest, ...] = ()
    # Not written while there is nothing: readers of older metadata versions know no such row.
    security: StoredSecurity | UnsetType = UNSET
    listeners: tuple[Listener, ...] | UnsetType = UNSET
    quotas: tuple[QuotaRow, ...] | UnsetType = UNSET
    inside: Inside | UnsetType = UNSET
    terms: tuple[ControllerTerm, ...] | UnsetType = UNSET
    restored: HistoryRestored | UnsetType = UNSET
    dismissed: tuple[DismissedCopy, ...] | UnsetType = UNSET
    hibernated: bool | UnsetType = UNSET


def encode_image(image: ClusterImage) -> bytes:
    """Encode the image as canonical JSON, for a snapshot."""
    snapshot = _Snapshot(
        format=image.metadata_version,
        cluster_id=image.cluster_id,
        name=image.name,
        controller_epoch=image.controller_epoch,
        next_offset=image.next_offset,
        members=image.members,
        brokers=tuple(broker for _, broker in sorted(image.brokers.items())),
        topics=tuple(_with_defaults(topic) for _, topic in sorted(image.topics.items())),
        partitions=tuple(partition for _, partition in sorted(image.partitions.items())),
        next_producer_id=image.next_producer_id,
        removals_ms=image.removals_ms,
        reassignments=tuple(row for _, row in sorted(image.reassignments.items())),
        movement_bytes_per_second=image.movement_bytes_per_second,
        grants=tuple(grant for _, grant in sorted(image.grants.items())),
        proven_revision=image.proven_revision,
        leaving=image.leaving,
        newcomers=image.newcomers,
        released=tuple(sorted(image.released.items())),
        rebalances=tuple(row for _, row in sorted(image.rebalances.items())),
        rebalance_rests=tuple(
            _Rest(
                uid=uid,
                moves=tuple(move for _, move in sorted(rest.moves.items())),
                active=tuple(sorted(rest.active.values())),
            )
            for uid, rest in sorted(image.rebalance_rests.items())
        ),
        security=UNSET if image.security == NOTHING else stored(image.security),
        listeners=image.listeners or UNSET,
        quotas=_quota_rows(image) or UNSET,
        inside=UNSET if image.inside == NOTHING_INSIDE else image.inside,
        terms=image.terms or UNSET,
        restored=UNSET if image.restored is None else image.restored,
        dismissed=image.dismissed or UNSET,
        hibernated=image.hibernated or UNSET,
    )
    return msgspec.json.encode(snapshot, enc_hook=_plain, order="deterministic")


def _with_defaults(topic: Topic) -> Topic:
    """Return the topic with the very objects that are the defaults of its fields: the encoder
    leaves a default out by its identity, and a decoded text equal to it has another."""
    same = {name: text for name, text in TOPIC_DEFAULTS if getattr(topic, name) == text}
    return msgspec.structs.replace(topic, **same)


def decode_image(data: bytes) -> ClusterImage:
    """Decode the image of a snapshot. Raise MetadataTooNew if its metadata version is unknown, and
    `msgspec.DecodeError` if it is malformed."""
    check_known(msgspec.json.decode(data, type=_Head).format)
    snapshot = msgspec.json.decode(data, type=_Snapshot, dec_hook=_typed)
    hosted: dict[BrokerId, list[PartitionKey]] = {}
    for partition in snapshot.partitions:
        for broker_id in partition.replicas:
            hosted.setdefault(broker_id, []).append(partition.key)
    topics = {topic.id: topic for topic in snapshot.topics}
    return ClusterImage(
        cluster_id=snapshot.cluster_id,
        name=snapshot.name,
        metadata_version=snapshot.format,
        controller_epoch=snapshot.controller_epoch,
        next_offset=snapshot.next_offset,
        members=snapshot.members,
        brokers=Map({broker.id: broker for broker in snapshot.brokers}),
        topics=Map(topics),
        topic_ids=Map({topic.name: topic.id for topic in snapshot.topics}),
        spellings=all_spelled(topic.name for topic in snapshot.topics),
        partitions=Map({partition.key: partition for partition in snapshot.partitions}),
        hosted=move_hosted(Map(), {}, hosted),
        preferred=count_preferred(Map(), Counter(p.replicas[0] for p in snapshot.partitions)),
        min_isr_behind=all_behind(topics, snapshot.partitions),
        next_producer_id=snapshot.next_producer_id,
        removals_ms=snapshot.removals_ms,
        reassignments=Map({row.object.uid: row for row in snapshot.reassignments}),
        movement_bytes_per_second=snapshot.movement_bytes_per_second,
        grants=Map({grant.broker_id: grant for grant in snapshot.grants}),
        proven_revision=snapshot.proven_revision,
        leaving=snapshot.leaving,
        newcomers=snapshot.newcomers,
        released=Map(snapshot.released),
        rebalances=Map({row.object.uid: row for row in snapshot.rebalances}),
        rebalance_rests=Map({row.uid: _rest(row) for row in snapshot.rebalance_rests}),
        security=NOTHING if snapshot.security is UNSET else restored(snapshot.security),
        listeners=() if snapshot.listeners is UNSET else snapshot.listeners,
        quotas=quotas_of(snapshot.quotas or ()),
        inside=NOTHING_INSIDE if snapshot.inside is UNSET else snapshot.inside,
        terms=() if snapshot.terms is UNSET else snapshot.terms,
        restored=None if snapshot.restored is UNSET else snapshot.restored,
        dismissed=() if snapshot.dismissed is UNSET else snapshot.dismissed,
        hibernated=snapshot.hibernated is True,
    )


def _quota_rows(image: ClusterImage) -> tuple[QuotaRow, ...]:
    """Return the image's quota rows in canonical order, so that equal images give equal bytes."""
    return tuple(sorted(image.quotas.rows.values(), key=lambda row: row.entity.order))


def _rest(row: _Rest) -> RebalanceRest:
    moves = {move.number: move for move in row.moves}
    active = {moves[number].key: number for number in row.active}
    return RebalanceRest(moves=Map(moves), active=Map(active))


def _plain(value: object) -> object:
    assert isinstance(value, Map), f"{type(value)} has no place in an image"
    return dict(value.items())


def _typed(wanted: Any, value: Any) -> Any:
    return Map(value)

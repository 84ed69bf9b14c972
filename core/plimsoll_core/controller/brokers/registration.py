"""Registers a broker, or rejects it, and ends its previous registration.

Called for RegisterBroker.  A broker that did not stop cleanly (its marker does not name exactly the
registered epoch), or has no metadata, is no longer trusted to hold what it acknowledged.  A broker
with an empty volume is rejected while it may have held the last complete copy of a partition: a
failed mount looks exactly like an empty disk.  It waits for another complete replica, or until a
user gives up what it held (`leader_elections.name_leaders`).
Sources: the registration rule of docs/protocol.md; KIP-631, KIP-966.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from plimsoll_core.cluster.model import AnnouncedEndpoint, Broker, Endpoint, Partition
from plimsoll_core.cluster.record_versions import release_of
from plimsoll_core.cluster.records import BrokerRegistered, BrokerUpdated
from plimsoll_core.controller.brokers.fencing import leave
from plimsoll_core.controller.kernel.decision import DecisionContext, note_flap
from plimsoll_core.controller.kernel.rack_rules import broker_has_a_rack
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.requests import Answer, RegisterBroker, Registered
from plimsoll_core.phrasing import brokers_text


def empty_volume_is_no_last_copy(turn: DecisionContext, request: RegisterBroker) -> Refusal | None:
    """Refuse a new process with an empty volume if the broker may hold the only complete copy of a
    partition, because a failed mount looks like an empty disk; record the broker in `soft.emptied`
    then. A process that is registered already is not refused, because it wrote its data after it
    started."""
    known = turn.image.brokers.get(request.broker_id)
    begun = known is not None and known.incarnation_id == request.incarnation_id
    if begun or not request.volume_is_empty:
        return None
    alone = [p for p in turn.hosted(request.broker_id) if _may_be_last(turn, p, request.broker_id)]
    if not alone:
        return None
    turn.soft.emptied.add(request.broker_id)
    first = min(alone, key=lambda p: (turn.image.topics[p.topic_id].name, p.index))
    return Refusal(
        reason=Reason.VolumeNotEmptied,
        message=(
            f"Broker {request.broker_id} cannot register, because its volume is empty, and its"
            f" former volume may have the only complete copy of {len(alone)} partitions, such as"
            f" {turn.image.name_of(first)}. Attach the former volume, or"
            " bring another complete replica back first, or give up the records of that volume by"
            " naming leaders in the Topics' spec.uncleanRecovery.elect."
        ),
    )


def _may_be_last(turn: DecisionContext, partition: Partition, broker_id: BrokerId) -> bool:
    """Return True if no other replica is in the partition's ISR or ELR, and no user has given up
    this broker's records by naming it as leader."""
    given_up = turn.soft.given_up.get(partition.key) == (broker_id, partition.leader_epoch)
    return not given_up and not {*partition.isr, *partition.elr} - {broker_id}


Check = Callable[[DecisionContext, RegisterBroker], Refusal | None]


def register(turn: DecisionContext, request: RegisterBroker) -> Answer | Refusal:
    for check in CHECKS:
        refusal = check(turn, request)
        if refusal:
            return refusal
    existing = turn.image.brokers.get(request.broker_id)
    if existing and existing.incarnation_id == request.incarnation_id:
        return _same_incarnation(turn, existing, request)
    return _new_incarnation(turn, existing, request)


def _same_incarnation(turn: DecisionContext, existing: Broker, request: RegisterBroker) -> Answer:
    """Update the registration and the contact of a process that registers again. The process keeps
    its broker epoch, and stays fenced or unfenced. If nothing changed, add no record."""
    record = BrokerUpdated(
        cause="registration",
        broker_id=request.broker_id,
        broker_epoch=existing.broker_epoch,
        directory_ids=request.directory_ids,
        endpoints=_as_committed(request.endpoints),
        rack=request.rack,
        pod_uid=request.pod_uid,
        revision=request.revision,
    )
    before = turn.image
    turn.add(record)
    if turn.image.brokers == before.brokers:
        turn.image = before
        turn.records.clear()
    _heard(turn, request, existing.broker_epoch)
    return Registered(broker_epoch=existing.broker_epoch)


def _new_incarnation(
    turn: DecisionContext, existing: Broker | None, request: RegisterBroker
) -> Answer:
    """Remove the broker from all ISRs, and from ELRs if its former process did not stop cleanly;
    then register the new process, fenced. If more than one slice of partitions is affected,
    `turn.again` continues, and the answer is void. The registration is recorded last: if the
    controller fails before it, the broker registers again."""
    clean = _stopped_cleanly(existing, request)
    how = "registration after " + ("a clean stop" if clean else "an unclean stop")
    if not leave(turn, request.broker_id, how, lost=not clean):
        turn.again = request
        return Registered(broker_epoch=BrokerEpoch(turn.image.next_offset))
    if existing and existing.active:
        note_flap(turn, request.broker_id)
    broker_epoch = BrokerEpoch(turn.image.next_offset)
    turn.add(
        BrokerRegistered(
            cause="registration" if existing is None else how,
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            directory_ids=request.directory_ids,
            endpoints=_as_committed(request.endpoints),
            rack=request.rack,
            pod_uid=request.pod_uid,
            revision=request.revision,
        )
    )
    soft = turn.soft
    soft.leaving.discard(request.broker_id)
    soft.emptied.discard(request.broker_id)
    soft.shutdown_offsets.pop(request.broker_id, None)
    _heard(turn, request, broker_epoch)
    return Registered(broker_epoch=broker_epoch)


def _stopped_cleanly(existing: Broker | None, request: RegisterBroker) -> bool:
    """Return True if the broker's former process was `existing`, stopped cleanly, and left a copy
    of the metadata. Without a copy nothing shows that the broker is still where the image has it:
    in a log that was restored to an earlier point, the registered epoch may be that of a lifetime
    after which the broker left ISRs or lost replicas."""
    remembers = request.position is None or request.position.nonce is not None
    return (
        existing is not None
        and request.previous_broker_epoch == existing.broker_epoch
        and remembers
        and not request.volume_is_empty
    )


def _heard(turn: DecisionContext, request: RegisterBroker, broker_epoch: BrokerEpoch) -> None:
    """Set the broker's contact to now, with the metadata versions that the request states. Keep the
    values that the same registration reported earlier in heartbeats."""
    known = turn.soft.contacts.get(request.broker_id)
    if known is None or known.broker_epoch != broker_epoch:
        known = Contact(broker_epoch=broker_epoch, last_ms=turn.now_ms)
    turn.soft.contacts[request.broker_id] = replace(
        known,
        last_ms=turn.now_ms,
        metadata_versions=request.metadata_versions,
        release=request.release,
    )


def _as_committed(endpoints: tuple[AnnouncedEndpoint, ...]) -> tuple[Endpoint, ...]:
    """Return the endpoints as they are committed: with the fields that this release knows."""
    return tuple(Endpoint(name=e.name, host=e.host, port=e.port) for e in endpoints)


# --- checks ------------------------------------------------------------------------------------


def cluster_is_declared(turn: DecisionContext, request: RegisterBroker) -> Refusal | None:
    if turn.image.name:
        return None
    return Refusal(
        reason=Reason.NotController,
        message=(
            "The broker cannot register yet: no LogCluster object has declared this cluster. The "
            "broker retries by itself."
        ),
    )


def cluster_id_is_ours(turn: DecisionContext, request: RegisterBroker) -> Refusal | None:
    if request.cluster_id == turn.image.cluster_id:
        return None
    return Refusal(
        reason=Reason.InconsistentClusterId,
        message=(
            f"Broker {request.broker_id}'s volume belongs to cluster {request.cluster_id}, this is"
            f" cluster {turn.image.cluster_id} ({turn.image.name}). Attach the right volume."
        ),
    )


def metadata_is_understood(turn: DecisionContext, request: RegisterBroker) -> Refusal | None:
    """Refuse a broker that does not support the finalised metadata version. An older broker cannot
    read the log; a newer one may have dropped support for the version."""
    oldest, newest = request.metadata_versions
    finalised = turn.image.metadata_version
    if oldest <= finalised <= newest:
        return None
    too_new = finalised > newest
    remedy = "a newer" if too_new else "an older"
    return Refusal(
        reason=Reason.MetadataTooNew if too_new else Reason.MetadataTooOld,
        message=(
            f"Broker {request.broker_id} runs release {request.release}, which understands the"
            f" metadata versions {release_of(oldest)} to {release_of(newest)}; this cluster's is"
            f" {release_of(finalised)}. Run {remedy} release on it; its data stays as it is."
        ),
    )


def id_is_a_member(turn: DecisionContext, request: RegisterBroker) -> Refusal | None:
    """Refuse a negative id, and a broker that is neither a member nor registered. A broker that is
    being removed may come back until it is unregistered. If no members are committed yet, any other
    id is accepted."""
    image = turn.image
    if request.broker_id < 0:
        return Refusal(
            reason=Reason.InvalidRegistration,
            message=f"A broker id must be 0 or more, not {request.broker_id}.",
        )
    known = request.broker_id in image.members or request.broker_id in image.brokers
    if known or not image.members:
        return None
    return Refusal(
        reason=Reason.InvalidRegistration,
        message=(
            f"Broker {request.broker_id} is not a member of this cluster; its members are "
            f"{brokers_text(image.members)}. Correct its broker id, or raise the number of brokers "
            "in the LogCluster."
        ),
    )


def directories_are_its_own(turn: DecisionContext, request: RegisterBroker) -> Refusal | None:
    ids = request.directory_ids
    if not ids or len(set(ids)) != len(ids):
        return Refusal(
            reason=Reason.InvalidRegistration,
            message=(
                f"The registration of broker {request.broker_id} is refused: it names no data "
                "directory, or one twice. Run the broker image of the operator's release."
            ),
        )
    for broker_id, broker in sorted(turn.image.brokers.items()):
        shared = set(ids) & set(broker.directory_ids)
        if broker_id != request.broker_id and shared:
            return Refusal(
                reason=Reason.InvalidRegistration,
                message=(
                    f"Broker {request.broker_id} cannot register, because its volume has the data"
                    f" directory {min(shared)}, which belongs to broker {broker_id}. Attach broker"
                    f" {request.broker_id}'s own volume."
                ),
            )
    return None


def no_other_process_lives(turn: DecisionContext, request: RegisterBroker) -> Refusal | None:
    """Refuse while another process of this broker has a session. An earlier process with the same
    directories is excepted: it has certainly ended, since the new process holds the lock of the
    directories."""
    existing = turn.image.brokers.get(request.broker_id)
    if (
        existing is None
        or existing.incarnation_id == request.incarnation_id
        or set(existing.directory_ids) == set(request.directory_ids)
        or not turn.has_session(existing)
    ):
        return None
    return Refusal(
        reason=Reason.DuplicateBrokerRegistration,
        message=(
            f"The process cannot register as broker {request.broker_id}, because a process with "
            "other data directories is registered as that broker. Stop the wrong one. This process "
            "retries until the other one has been silent for the session timeout."
        ),
    )


# Order matters: the owner of the volume is checked before its state.
CHECKS: tuple[Check, ...] = (
    cluster_id_is_ours,
    cluster_is_declared,
    metadata_is_understood,
    id_is_a_member,
    broker_has_a_rack,
    directories_are_its_own,
    no_other_process_lives,
    empty_volume_is_no_last_copy,
)

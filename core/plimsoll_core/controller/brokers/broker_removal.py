"""Removes brokers: marks them as leaving, unregisters them, and releases their volumes.

Called for SetLeaving, UnregisterBroker and VolumeGone.  A leaving broker serves as before but takes
no new replicas: not of new topics, not by growth, not by a move.  A removal that cannot finish is
refused here, with what would unblock it; the operator then moves the replicas away by a Rebalance
(`reconcile/cluster`).  A broker is unregistered only if it holds no replica.  The operator deletes
the claim of a released volume because the release is committed, by the claim's uid; so an old
decision never reaches the volume of a broker that came back.
Source: the rules of docs/protocol.md for removing and unregistering brokers.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_core.cluster.model import Broker, ClusterImage, Partition
from plimsoll_core.cluster.records import (
    BrokersLeaving,
    BrokerUnregistered,
    RestartEnded,
    VolumeForgotten,
    VolumeReleased,
)
from plimsoll_core.cluster.topic_names import INTERNAL_TOPICS
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import SetLeaving, UnregisterBroker, VolumeGone
from plimsoll_core.messages.requests import Answer, Done
from plimsoll_core.phrasing import brokers_text, sentence_start
from plimsoll_core.planner.placement import EXPLICIT


def set_leaving(turn: DecisionContext, request: SetLeaving) -> Answer | Refusal:
    """Replace the list of leaving brokers, which are to be emptied and removed, by the known
    brokers that the request names. Unknown ids are ignored. Refuse to add a broker if the brokers
    that stay could not hold the replicas: they are too few, an Explicit assignment names a leaving
    broker, or a required second rack would be lost. A broker can always be taken off the list."""
    image = turn.image
    known = {*image.members, *image.brokers}
    leaving = tuple(sorted(known.intersection(request.broker_ids)))
    if leaving == image.leaving:
        return Done()
    refusal = _check(turn, leaving) if set(leaving) - set(image.leaving) else None
    if refusal:
        return refusal
    turn.add(BrokersLeaving(cause="declared", broker_ids=leaving))
    return Done()


def all_stay(image: ClusterImage, brokers: Iterable[BrokerId]) -> Refusal | None:
    """Return a refusal if one of these brokers is registered but takes no new replicas, or None."""
    going = [b for b in sorted(set(brokers)) if b in image.brokers and not image.takes_replicas(b)]
    if not going:
        return None
    are, take = ("is", "takes") if len(going) == 1 else ("are", "take")
    return Refusal(
        reason=Reason.BrokerLeaving,
        message=(
            f"{sentence_start(brokers_text(going))} {are} leaving the cluster and {take} no new "
            "replicas: name other brokers for these replicas."
        ),
    )


def _check(turn: DecisionContext, leaving: tuple[BrokerId, ...]) -> Refusal | None:
    image = turn.image
    members = [b for b in image.members or sorted(image.brokers) if b in image.brokers]
    survivors = [b for b in members if b not in leaving]
    if not survivors:
        who = sentence_start(brokers_text(leaving))
        return Refusal(
            reason=Reason.InvalidRequest,
            message=(
                f"{who} cannot leave the cluster: no other broker would remain. Add brokers first."
            ),
        )
    held = _held(image, leaving)
    return (
        _too_many_replicas(image, held, len(survivors))
        or _stated(image, held, leaving)
        or _rack_lost(turn, held, members, survivors)
    )


def _held(image: ClusterImage, leaving: Iterable[BrokerId]) -> list[Partition]:
    """Return the partitions that have a target replica on a leaving broker, and so have to be
    moved."""
    keys = {key: None for b in leaving for key in sorted(image.hosted.get(b, ()))}
    found = (image.partitions[key] for key in keys)
    return [p for p in found if not set(leaving).isdisjoint(p.target)]


def _too_many_replicas(
    image: ClusterImage, held: Iterable[Partition], survivors: int
) -> Refusal | None:
    factors: dict[str, int] = {}
    for p in held:
        name = image.topics[p.topic_id].name
        # No object states how many replicas the brokers' own topics have: the controller takes away
        # those that would find no place (`internal_topics`).
        if len(p.target) > survivors and name not in INTERNAL_TOPICS:
            factors[name] = max(len(p.target), factors.get(name, 0))
    if not factors:
        return None
    name, factor = min(factors.items())
    more = len(factors) - 1
    others = f", as {more} more {'topic has' if more == 1 else 'topics have'}," if more else ""
    return Refusal(
        reason=Reason.NotEnoughBrokers,
        message=(
            f"Topic {name} has replication factor {factor}{others} and only {survivors}"
            f" {'broker' if survivors == 1 else 'brokers'} would remain: lower the replication"
            f" factor, or keep {max(factors.values())} brokers."
        ),
    )


def _stated(
    image: ClusterImage, held: Iterable[Partition], leaving: tuple[BrokerId, ...]
) -> Refusal | None:
    """Refuse if a leaving broker is named in the stated assignment of an Explicit topic. Only the
    topic's owner changes that assignment."""
    for p in held:
        topic = image.topics[p.topic_id]
        if topic.strategy == EXPLICIT:
            named = brokers_text(set(p.target).intersection(leaving))
            holder = topic.object
            do = (
                "move that partition"
                if holder is None
                else f"change spec.placement.assignment of Topic {holder.namespace}/{holder.name}"
            )
            return Refusal(
                reason=Reason.ExplicitPlacement,
                message=(
                    f"Topic {topic.name} has an explicit placement, which puts partition {p.index}"
                    f" on {named}. Before you remove {named}, {do}."
                ),
            )
    return None


def _rack_lost(
    turn: DecisionContext, held: list[Partition], members: list[BrokerId], survivors: list[BrokerId]
) -> Refusal | None:
    """Refuse if racks are required and the brokers that would remain are all in one rack, while the
    members now have two."""
    if turn.settings.rack_policy != "Required":
        return None
    brokers = turn.image.brokers
    racks = {brokers[b].rack for b in members} - {None}
    left = sorted(rack for rack in {brokers[b].rack for b in survivors} if rack)
    if len(racks) < 2 or len(left) >= 2 or all(len(p.target) < 2 for p in held):
        return None
    return Refusal(
        reason=Reason.NotEnoughBrokers,
        message=(
            f"{sentence_start(brokers_text({*members} - {*survivors}))} cannot leave the cluster: "
            "spec.racks requires replicas in two racks, and the brokers that would remain are all "
            f"in rack {', '.join(left) or '(none)'}. Add a broker in another rack first, or set "
            "spec.racks.policy to Preferred."
        ),
    )


def unregister(turn: DecisionContext, request: UnregisterBroker) -> Answer | Refusal:
    """Unregister a broker and end its restart grant. Its id is then free, and the volume with the
    claim `pvc_uid`, if given, is released for deletion. Refuse if the broker has another broker
    epoch, is a member, has a replica or is active. If the broker is not registered, do nothing."""
    broker = turn.image.brokers.get(request.broker_id)
    if broker is None:
        return Done()
    if broker.broker_epoch != request.broker_epoch:
        return Refusal(
            reason=Reason.StaleBrokerEpoch,
            message=f"Broker {broker.id} has restarted since this request was made (stale broker"
            " epoch), so it stays registered. The operator tries again to remove it.",
        )
    refusal = _check_unregister(turn, broker)
    if refusal:
        return refusal
    if broker.id in turn.image.grants:
        turn.add(RestartEnded(cause="removed", broker_id=broker.id))
    turn.add(
        BrokerUnregistered(cause="removed", broker_id=broker.id, broker_epoch=broker.broker_epoch)
    )
    if request.pvc_uid is not None:
        turn.add(VolumeReleased(cause="removed", broker_id=broker.id, pvc_uid=request.pvc_uid))
    turn.soft.forget_broker(broker.id)
    return Done()


def volume_gone(turn: DecisionContext, request: VolumeGone) -> Answer:
    if request.pvc_uid in turn.image.released:
        turn.add(VolumeForgotten(cause="its claim is gone", pvc_uid=request.pvc_uid))
    return Done()


def _check_unregister(turn: DecisionContext, broker: Broker) -> Refusal | None:
    """Refuse if the broker is a member, has a replica, is not fenced, or has a session without
    being in a controlled shutdown. Without replicas it is in no ISR and no ELR."""
    image = turn.image
    if broker.id in image.members:
        return Refusal(
            reason=Reason.InvalidRequest,
            message=f"Broker {broker.id} cannot be unregistered, because it is still a member of "
            "the cluster. Lower the number of brokers in the LogCluster, or exclude this one.",
        )
    if broker.id in image.hosted:
        return Refusal(
            reason=Reason.BrokerHoldsReplicas,
            message=(
                f"Broker {broker.id} cannot be unregistered, because it still has "
                f"{len(image.hosted[broker.id])} replicas. Move them to other brokers first."
            ),
        )
    if not broker.fenced or (turn.has_session(broker) and not broker.shutting_down):
        return Refusal(
            reason=Reason.BrokerLives,
            message=f"Broker {broker.id} cannot be unregistered while it is active. Stop it first.",
        )
    return None

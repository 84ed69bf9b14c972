"""The member ids of a cluster, and the unregistering of brokers.  Called for SetMembers and
UnregisterBroker, and by the operator to plan it.

A broker goes in steps, each committed before the next: it is leaving (`decommissioning`), it holds
nothing, it is no member, it has stopped, it is unregistered.  None of them is taken where it would
leave a replica without its broker.

Its volume may be released with the last step.  The operator then deletes the claim because that
is committed, by the claim's uid, and a successor finishes it; so nothing that was decided long ago
can reach the volume of a broker that came back.

Membership is sticky: an id leaves only when it is excluded or, when fewer are asked for, from the
top; lifting an exclusion removes no member, so that undoing an edit moves no data.
Source: the protocol's rules for removing brokers and for unregistration.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count as numbers

from plimsoll_core.cluster.model import Broker
from plimsoll_core.cluster.records import (
    BrokerUnregistered,
    MembersChanged,
    NewcomersSettled,
    RestartEnded,
    VolumeForgotten,
    VolumeReleased,
)
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.membership import SettleNewcomers, UnregisterBroker, VolumeGone
from plimsoll_core.messages.requests import Answer, Done, SetMembers
from plimsoll_core.phrasing import brokers_text, sentence_start


def next_members(
    current: Collection[BrokerId], count: int, excluded: Collection[int]
) -> tuple[BrokerId, ...]:
    """The `count` ids to have from now on, given those that are there."""
    kept = sorted(set(current) - set(excluded))[:count]
    free = (BrokerId(n) for n in numbers() if n not in excluded and n not in kept)
    return tuple(sorted([*kept, *(next(free) for _ in range(count - len(kept)))]))


def set_members(turn: DecisionContext, request: SetMembers) -> Answer | Refusal:
    wanted = tuple(sorted(set(request.broker_ids)))
    if not wanted:
        return Refusal(
            reason=Reason.InvalidRequest,
            message="A cluster has at least one broker; delete the LogCluster to stop it.",
        )
    if wanted == turn.image.members:
        return Done()
    refusal = _check_dropped(turn, wanted) or _check_new(turn, wanted)
    if refusal:
        return refusal
    turn.add(MembersChanged(cause="declared", broker_ids=wanted))
    return Done()


def _check_dropped(turn: DecisionContext, wanted: Collection[BrokerId]) -> Refusal | None:
    """Whether those that go hold nothing."""
    holding = sorted(broker_id for broker_id in turn.image.hosted if broker_id not in wanted)
    if not holding:
        return None
    count = len(turn.image.hosted[holding[0]])
    return Refusal(
        reason=Reason.BrokerHoldsReplicas,
        message=(
            f"{sentence_start(brokers_text(holding))} cannot be removed: broker {holding[0]} holds"
            f" {count} replicas. It stays a member until they are moved away."
        ),
    )


def _check_new(turn: DecisionContext, wanted: Collection[BrokerId]) -> Refusal | None:
    """An id starts on the volume that has its name, so one that is being deleted goes first."""
    early = sorted({*turn.image.released.values()}.intersection(wanted))
    if not early:
        return None
    who = brokers_text(early)
    volumes, are = ("volume", "is") if len(early) == 1 else ("volumes", "are")
    return Refusal(
        reason=Reason.VolumeInUse,
        message=(
            f"The {volumes} that {who} had before {are} being deleted; {who} may join again after"
            " that."
        ),
    )


def settle_newcomers(turn: DecisionContext, request: SettleNewcomers) -> Answer:
    left = tuple(b for b in turn.image.newcomers if b not in request.broker_ids)
    if left != turn.image.newcomers:
        turn.add(NewcomersSettled(cause="joined", broker_ids=request.broker_ids))
    return Done()


def unregister(turn: DecisionContext, request: UnregisterBroker) -> Answer | Refusal:
    """Only when nothing is left to lose: then its id is free, and its volume may go too."""
    broker = turn.image.brokers.get(request.broker_id)
    if broker is None:
        return Done()
    if broker.broker_epoch != request.broker_epoch:
        return Refusal(
            reason=Reason.StaleBrokerEpoch,
            message=f"Broker {broker.id} has begun another lifetime since.",
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
    """It has no replica, so it is in no ISR and no ELR either."""
    image = turn.image
    if broker.id in image.members:
        return Refusal(
            reason=Reason.InvalidRequest,
            message=f"Broker {broker.id} is a member; lower the count or exclude it first.",
        )
    if broker.id in image.hosted:
        return Refusal(
            reason=Reason.BrokerHoldsReplicas,
            message=f"Broker {broker.id} holds {len(image.hosted[broker.id])} replicas.",
        )
    if not broker.fenced or (turn.has_session(broker) and not broker.shutting_down):
        return Refusal(
            reason=Reason.BrokerLives,
            message=f"Broker {broker.id} still takes part; stop it first.",
        )
    return None

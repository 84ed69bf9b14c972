"""Unregisters a broker, and releases its volume: only when nothing is left to lose.

Called for UnregisterBroker and VolumeGone.  The operator deletes the claim of a released volume
because that is committed, by the claim's uid, and a successor finishes it; so nothing that was
decided long ago can reach the volume of a broker that came back.
Source: the protocol's rule for unregistration.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Broker
from plimsoll_core.cluster.records import (
    BrokerUnregistered,
    RestartEnded,
    VolumeForgotten,
    VolumeReleased,
)
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.membership import UnregisterBroker, VolumeGone
from plimsoll_core.messages.requests import Answer, Done


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

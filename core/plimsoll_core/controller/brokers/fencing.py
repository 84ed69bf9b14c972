"""Fences and unfences brokers, and elects leaders for the affected partitions.

Called for heartbeats, proofs of death and expired sessions (`session_expiry`). Proof fences at
once; without it the session timeout must pass. A fenced broker loses its ISR memberships and keeps
its registration. Source: the protocol's rules for fencing and unfencing; KIP-631, KIP-841."""

from __future__ import annotations

from plimsoll_core.cluster.model import Broker
from plimsoll_core.cluster.records import BrokerFenced, BrokerUnfenced
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.held_back_brokers import note_flap
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, BrokerProvenDead, Done


def leave(turn: DecisionContext, broker_id: BrokerId, cause: str, *, lost: bool = False) -> bool:
    """Remove a broker from the ISRs of at most one slice of partitions, and if `lost` also from
    their ELRs. Return True if none is left, False if the caller has to call again for more."""
    affected = [
        p for p in turn.hosted(broker_id) if broker_id in (*p.isr, *(p.elr if lost else ()))
    ]
    without = frozenset({broker_id})
    wishes = [
        (
            p,
            PartitionUpdate(
                isr=[member for member in p.isr if member != broker_id],
                lost=without if lost else frozenset(),
            ),
        )
        for p in affected[: turn.settings.slice_partitions_max]
    ]
    turn.change(wishes, cause, without=without)
    if len(affected) > len(wishes):
        turn.soft.leaving.add(broker_id)
        return False
    return True


def fence(turn: DecisionContext, broker: Broker, cause: str) -> bool:
    """Take a broker out of all ISRs, then record that it is fenced. Return False if a later turn
    has to continue, because more than one slice of partitions is affected.

    The fence is recorded last: if the controller fails before it, the next one fences the broker
    again.
    """
    if not leave(turn, broker.id, cause):
        return False
    turn.add(BrokerFenced(cause=cause, broker_id=broker.id, broker_epoch=broker.broker_epoch))
    turn.soft.leaving.discard(broker.id)
    return True


def unfence(turn: DecisionContext, broker: Broker) -> None:
    """Record that a broker is unfenced, and elect it for the leaderless partitions that it may
    lead. It joins no other ISR by this."""
    turn.add(
        BrokerUnfenced(cause="caught-up", broker_id=broker.id, broker_epoch=broker.broker_epoch)
    )
    turn.soft.expired.pop(broker.id, None)
    leaderless = [p for p in turn.hosted(broker.id) if p.leader is None]
    turn.change(
        [(p, PartitionUpdate()) for p in leaderless], f"elected after broker {broker.id} came back"
    )


def proven_dead(turn: DecisionContext, request: BrokerProvenDead) -> Answer | Refusal:
    """Fence a broker on proof that its process ended. Refuse a proof about another broker epoch:
    the broker has restarted since."""
    broker = turn.image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return Refusal(
            reason=Reason.StaleBrokerEpoch,
            message=f"Broker {request.broker_id} has since restarted (stale broker epoch).",
        )
    if broker.fenced:
        return Done()
    asked_to_leave = broker.shutting_down
    if not fence(turn, broker, f"fenced on proof: {request.evidence}"):
        turn.again = request
    elif not asked_to_leave:
        note_flap(turn, broker.id)
    return Done()

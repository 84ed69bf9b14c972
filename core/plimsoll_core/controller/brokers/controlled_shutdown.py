"""A broker's controlled shutdown: it hands its leaderships over, and stops when others know.

Called by `heartbeat`.  The flag is a record, so that it survives a failover; only a new lifetime
ends it.  Source: docs/protocol.md §3.5; KIP-841.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Broker
from plimsoll_core.cluster.records import BrokerShutdownStarted
from plimsoll_core.controller.brokers.fencing import leave
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Heartbeat


def leads(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """Whether it leads any partition: one that leads none may stop at once."""
    return any(p.leader == broker_id for p in turn.hosted(broker_id))


def begin_shutdown(turn: DecisionContext, broker: Broker, request: Heartbeat) -> None:
    turn.add(
        BrokerShutdownStarted(
            cause="shutdown", broker_id=broker.id, broker_epoch=broker.broker_epoch
        )
    )
    _hand_leaderships_over(turn, broker, request)


def go_on_shutting_down(turn: DecisionContext, broker: Broker, request: Heartbeat) -> bool:
    """Whether the broker may stop now: every active one has applied that it leads nothing."""
    if any(broker.id in p.isr for p in turn.hosted(broker.id)):
        _hand_leaderships_over(turn, broker, request)
        return False
    # A successor does not know when the shutdown began: everything so far is a safe bound.
    known = turn.soft.shutdown_offsets.setdefault(broker.id, turn.image.next_offset)
    for other in turn.active():
        contact = turn.soft.contacts.get(other)
        if contact is not None and contact.unknown_metadata:
            continue  # it never will
        applied = contact.applied_offset if contact else None
        if applied is None or applied < known:
            return False
    return True


def _hand_leaderships_over(turn: DecisionContext, broker: Broker, request: Heartbeat) -> None:
    if not leave(turn, broker.id, "shutdown"):
        turn.again = request
    else:
        turn.soft.leaving.discard(broker.id)
    turn.soft.shutdown_offsets[broker.id] = turn.image.next_offset

"""Answers a broker's heartbeat: fenced or active, caught up, and when a shutdown may end.

Called for Heartbeat.  The three states and their transitions are the table of docs/protocol.md
§3.2.  A heartbeat counts as contact even if nothing else changes.

A broker that is held back is unfenced early only if partitions need it: a leaderless partition
that it may lead, or an ISR below its minimum that reaches it with the broker. While held back, it
joins no other ISR (`partitions.alter_partition`), so that losing it again stalls no producer.

Controlled shutdown (§3.5): the broker hands its leaderships over and stops once the others have
applied that.  The flag is a record, so that it survives a failover; only a new registration clears
it.  Unknown metadata (§3.14): a broker that cannot decode committed metadata is fenced once another
active broker has applied more.  Sources: KIP-631, KIP-841 (controlled shutdown).
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Broker, Partition
from plimsoll_core.cluster.records import BrokerShutdownStarted
from plimsoll_core.controller.brokers.fencing import elect_back, fence, leave, unfence
from plimsoll_core.controller.brokers.metadata_finalization import finalize
from plimsoll_core.controller.kernel.decision import DecisionContext, is_held_back, stale_epoch
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.controller.partitions.failed_disks import hand_leaders_over
from plimsoll_core.controller.partitions.unclean_recovery import strategy_of, suspects, wake
from plimsoll_core.errors import Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, Heartbeat, HeartbeatAnswer


def return_helps(turn: DecisionContext, broker_id: BrokerId) -> bool:
    return any(_helps(turn, p, broker_id) for p in turn.hosted(broker_id))


def _helps(turn: DecisionContext, p: Partition, broker_id: BrokerId) -> bool:
    if p.leader is None:
        return _may_lead(turn, p, broker_id)
    if len(p.isr) >= p.effective_min_isr:
        return False
    # Several that are held back help together.  One that is dead for good does not count.
    able = {r for r in p.replicas if r in p.isr or r == broker_id or _is_here(turn, r)}
    return len(able) >= p.effective_min_isr


def _may_lead(turn: DecisionContext, p: Partition, broker_id: BrokerId) -> bool:
    """Return True if the broker's log of the leaderless partition is online, and the broker may be
    elected: as a member of its ISR or ELR, or by the topic's strategy for unclean recovery."""
    if turn.out_of_service(broker_id, p):
        return False
    if p.isr or p.elr:
        if broker_id in (*p.isr, *p.elr):
            return True
        return strategy_of(turn.image, p, turn.settings) == "Proactive"
    strategy = strategy_of(turn.image, p, turn.settings)
    if strategy == "Proactive":
        return True
    known = suspects(p)
    if broker_id not in known:
        return False
    # A person may name it at any time; a balanced recovery waits until all of them have reported.
    return strategy == "Manual" or all(r == broker_id or _is_here(turn, r) for r in known)


def _is_here(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """Return True if the broker is active, or fenced but sending heartbeats."""
    broker = turn.image.brokers.get(broker_id)
    return broker is not None and (turn.acceptable(broker_id) or turn.has_session(broker))


def others_know_more(turn: DecisionContext, broker: Broker, request: Heartbeat) -> bool:
    """Return True if this broker cannot decode committed metadata and another active broker has
    applied more of it.

    The broker is then fenced, and the others lead. While no broker can decode the metadata, all
    keep serving by what they have applied; to fence them would only end that.
    """
    if not request.unknown_metadata:
        return False
    for other in sorted(turn.active() - {broker.id}):
        contact = turn.soft.contacts.get(other)
        applied = contact.applied_offset if contact else None
        if applied is not None and applied > request.position.applied_offset:
            return True
    return False


def leads(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """Return True if the broker leads a partition. A broker that leads none may stop at once."""
    return any(p.leader == broker_id for p in turn.hosted(broker_id))


def begin_shutdown(turn: DecisionContext, broker: Broker, request: Heartbeat) -> None:
    turn.add(
        BrokerShutdownStarted(
            cause="shutdown", broker_id=broker.id, broker_epoch=broker.broker_epoch
        )
    )
    _hand_leaderships_over(turn, broker, request)


def go_on_shutting_down(turn: DecisionContext, broker: Broker, request: Heartbeat) -> bool:
    """Continue a controlled shutdown. While the broker is in an ISR, remove it from those of a
    further slice of partitions and return False. Return True, so that the broker may stop, once it
    is in none and every active broker that can decode the metadata has applied that."""
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


def heartbeat(turn: DecisionContext, request: Heartbeat) -> Answer | Refusal:
    refusal = stale_epoch(turn, request.broker_id, request.broker_epoch)
    if refusal:
        return refusal
    broker = turn.image.brokers[request.broker_id]
    turn.soft.contacts[broker.id] = Contact(
        broker_epoch=broker.broker_epoch,
        last_ms=turn.now_ms,
        applied_offset=request.position.applied_offset,
        metadata_versions=request.metadata_versions,
        release=request.release,
        unknown_metadata=request.unknown_metadata,
        groups=request.groups,
        figures=request.figures,
    )
    if broker.fenced:
        return _fenced(turn, broker, request)
    if broker.shutting_down:
        return _shutting_down(turn, broker, request)
    return _unfenced(turn, broker, request)


def _caught_up(request: Heartbeat) -> bool:
    """Return True if the broker has applied the record of its own registration. `applied_offset` is
    the number of records that it has applied; its broker epoch is the offset of that record."""
    return request.position.applied_offset > request.broker_epoch


def _fenced(turn: DecisionContext, broker: Broker, request: Heartbeat) -> Answer:
    caught_up = _caught_up(request)
    if request.want_shutdown:
        return HeartbeatAnswer(is_caught_up=caught_up, is_fenced=True, should_shut_down=True)
    behind = bool(request.unknown_metadata)
    may = caught_up and not request.want_fence and not broker.shutting_down and not behind
    if may and (not is_held_back(turn, broker.id) or return_helps(turn, broker.id)):
        unfence(turn, broker)
        _elect_back(turn, broker, request)
        # Clients that wait for a cluster's brokers use next what only newer metadata can hold.
        finalize(turn)
        return HeartbeatAnswer(is_caught_up=True, is_fenced=False, should_shut_down=False)
    return HeartbeatAnswer(is_caught_up=caught_up, is_fenced=True, should_shut_down=False)


def _elect_back(turn: DecisionContext, broker: Broker, request: Heartbeat) -> None:
    if not elect_back(turn, broker.id):
        turn.again = request
    else:
        wake(turn, broker.id)


def _unfenced(turn: DecisionContext, broker: Broker, request: Heartbeat) -> Answer:
    if request.want_fence or (request.want_shutdown and not leads(turn, broker.id)):
        return _leave_now(turn, broker, request)
    if not request.want_shutdown:
        if others_know_more(turn, broker, request):
            return _leave_now(turn, broker, request, "metadata it does not understand")
        if broker.id in turn.soft.electing:
            _elect_back(turn, broker, request)
        hand_leaders_over(turn, broker)
        return _carry_on(request)
    begin_shutdown(turn, broker, request)
    return _carry_on(request)


def _shutting_down(turn: DecisionContext, broker: Broker, request: Heartbeat) -> Answer:
    if go_on_shutting_down(turn, broker, request):
        return _leave_now(turn, broker, request, "shutdown")
    return _carry_on(request)


def _leave_now(
    turn: DecisionContext, broker: Broker, request: Heartbeat, cause: str = ""
) -> Answer:
    why = cause or ("shutdown" if request.want_shutdown else "fenced at the broker's own request")
    if not fence(turn, broker, why):
        turn.again = request
    return HeartbeatAnswer(
        is_caught_up=_caught_up(request),
        is_fenced=True,
        should_shut_down=request.want_shutdown or broker.shutting_down,
    )


def _carry_on(request: Heartbeat) -> Answer:
    return HeartbeatAnswer(
        is_caught_up=_caught_up(request), is_fenced=False, should_shut_down=False
    )

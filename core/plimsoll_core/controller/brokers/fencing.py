"""Fences and unfences brokers, and elects leaders for the affected partitions.

Called for heartbeats, proofs of death, and by ticks. Proof of death fences at once; without it the
session timeout must pass without a heartbeat. A fenced broker loses its ISR memberships and keeps
its registration. A tick that is itself late fences no broker. If most brokers fall silent at once,
it is more likely that this controller is cut off than that they died together: it hands over first,
and its successor fences. Source: the protocol's rules for fencing and unfencing; KIP-631, KIP-841.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import islice

from plimsoll_core.cluster.model import Broker, PartitionKey
from plimsoll_core.cluster.records import BrokerFenced, BrokerUnfenced
from plimsoll_core.controller.kernel.decision import DecisionContext, note_flap
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, BrokerProvenDead, Done, Tick


def leave(
    turn: DecisionContext,
    broker_id: BrokerId,
    cause: str,
    *,
    lost: bool = False,
    but: AbstractSet[PartitionKey] = frozenset(),
) -> bool:
    """Remove a broker from the ISRs, and if `lost` also from the ELRs, of at most one slice of
    partitions (not of those in `but`), and elect other leaders there. Return True if no such
    partition is left. Otherwise add the broker to `soft.leaving`, so that it is not elected, and
    return False: the caller has to call again."""
    affected = [
        p
        for p in turn.hosted(broker_id)
        if broker_id in (*p.isr, *(p.elr if lost else ())) and p.key not in but
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
    """Remove a broker from the ISRs of one slice of partitions. If no other partition is left,
    record that the broker is fenced and return True. Otherwise return False: a later turn has to
    call again.

    The fence is recorded last: if the controller fails before it, the next one fences the broker
    again.
    """
    if not leave(turn, broker.id, cause):
        return False
    turn.add(BrokerFenced(cause=cause, broker_id=broker.id, broker_epoch=broker.broker_epoch))
    turn.soft.leaving.discard(broker.id)
    return True


def unfence(turn: DecisionContext, broker: Broker) -> None:
    """Record that a broker is unfenced. The caller then calls `elect_back`."""
    turn.add(
        BrokerUnfenced(cause="caught-up", broker_id=broker.id, broker_epoch=broker.broker_epoch)
    )
    turn.soft.expired.pop(broker.id, None)


def elect_back(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """Elect leaders for at most one slice of the leaderless partitions of a broker that came back.
    It joins no other ISR. Return True if no such partition is left. Otherwise add the broker to
    `soft.electing` and return False: the caller has to call again."""
    most = turn.settings.slice_partitions_max
    leaderless = (p for p in turn.hosted(broker_id) if p.leader is None)
    able = (p for p in leaderless if any(turn.may_lead(b, p) for b in p.isr or p.elr))
    found = list(islice(able, most + 1))
    cause = f"elected after broker {broker_id} came back"
    turn.change([(p, PartitionUpdate()) for p in found[:most]], cause)
    if len(found) > most:
        turn.soft.electing.add(broker_id)
        return False
    turn.soft.electing.discard(broker_id)
    return True


def proven_dead(turn: DecisionContext, request: BrokerProvenDead) -> Answer | Refusal:
    """Fence a broker on proof that its process ended; if more than one slice of partitions is
    affected, `turn.again` continues. Do nothing if it is fenced already. Refuse if the broker is
    not registered, or registered with another broker epoch than the proof is about: it has
    restarted since."""
    broker = turn.image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        since = "was unregistered" if broker is None else "has restarted"
        return Refusal(
            reason=Reason.StaleBrokerEpoch,
            message=f"Broker {request.broker_id} {since} since this request was made (stale broker"
            " epoch), so it is not fenced. Nothing needs to be done.",
        )
    if broker.fenced:
        return Done()
    asked_to_leave = broker.shutting_down
    if not fence(turn, broker, f"fenced on proof: {request.evidence}"):
        turn.again = request
    elif not asked_to_leave:
        note_flap(turn, broker.id)
    return Done()


def silent_together(turn: DecisionContext, silent: dict[BrokerId, int]) -> set[BrokerId]:
    """Return the brokers that fell silent within one session timeout: unfenced ones without a
    heartbeat for more than half of it, and those fenced for silence within it. Return an empty set
    unless they are at least two and at least half of all brokers in `silent` and those just fenced.
    `silent` maps each unfenced broker to the milliseconds since its last heartbeat."""
    timeout_ms = turn.settings.session_timeout_ms
    just_fenced = {
        broker_id
        for broker_id, at in turn.soft.expired.items()
        if turn.now_ms - at < timeout_ms and broker_id not in silent
    }
    lost = {broker_id for broker_id, ms in silent.items() if 2 * ms > timeout_ms} | just_fenced
    watched = len(silent) + len(just_fenced)
    return lost if len(lost) >= 2 and 2 * len(lost) >= watched else set()


def may_judge_mass_loss(turn: DecisionContext) -> bool:
    """Return True if this controller may fence brokers that fell silent together. The first call
    records the time of their loss (`soft.mass_loss_since_ms`).

    Their loss more likely means that this controller is cut off, so it first hands over to another
    controller: False. A successor that sees the same may fence them (until
    `second_opinion_until_ms`). This controller may do so if no successor has taken over within a
    session timeout after the first call.
    """
    soft = turn.soft
    until = soft.second_opinion_until_ms
    if until is not None and turn.now_ms < until:
        return True
    if soft.mass_loss_since_ms is None:
        soft.mass_loss_since_ms = turn.now_ms
    return turn.now_ms - soft.mass_loss_since_ms >= turn.settings.session_timeout_ms


def end_sessions(turn: DecisionContext, late_ms: int) -> None:
    """Extend all sessions by `late_ms`, the delay of this tick in milliseconds. Then fence, of the
    brokers with an expired session or an unfinished fence, the one that has been silent longest. If
    others are left or the fence takes several slices, set `turn.again`. If brokers fell silent
    together and this controller may not judge that, fence none and set `turn.hand_over`."""
    _shift_deadlines(turn, late_ms)
    timeout_ms = turn.settings.session_timeout_ms
    silent = _silence_ms(turn)
    lost = silent_together(turn, silent)
    expired = sorted(
        (ms, broker_id)
        for broker_id, ms in silent.items()
        if ms >= timeout_ms or _is_being_fenced(turn, broker_id)
    )
    if not lost:
        turn.soft.mass_loss_since_ms = None
    if not expired:
        return
    if lost and not may_judge_mass_loss(turn):
        turn.hand_over = True
        return
    ms, broker_id = expired[-1]
    done = fence(turn, turn.image.brokers[broker_id], f"fenced after {ms} ms of silence")
    if done:
        turn.soft.expired[broker_id] = turn.now_ms
        note_flap(turn, broker_id)
    if not done or len(expired) > 1:
        turn.again = Tick()


def _is_being_fenced(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """Return True if the broker is being fenced in slices and is still in some of its partitions'
    ISRs. A heartbeat does not stop the fence: otherwise the broker would stay ineligible in some
    partitions only."""
    leaving = broker_id in turn.soft.leaving
    return leaving and not turn.image.brokers[broker_id].shutting_down


def _shift_deadlines(turn: DecisionContext, late_ms: int) -> None:
    """Extend all sessions by the delay of this tick, because heartbeats may have arrived that are
    not read yet."""
    if late_ms <= 0:
        return
    for contact in turn.soft.contacts.values():
        contact.last_ms = min(contact.last_ms + late_ms, turn.now_ms)


def _silence_ms(turn: DecisionContext) -> dict[BrokerId, int]:
    """Return the milliseconds since the last heartbeat of each unfenced broker. For a registration
    that has sent nothing in this term, record a contact now and return 0."""
    silence: dict[BrokerId, int] = {}
    for broker_id, broker in turn.image.brokers.items():
        if broker.fenced:
            continue
        contact = turn.soft.contacts.get(broker_id)
        if contact is None or contact.broker_epoch != broker.broker_epoch:
            contact = Contact(broker_epoch=broker.broker_epoch, last_ms=turn.now_ms)
            turn.soft.contacts[broker_id] = contact
        silence[broker_id] = turn.now_ms - contact.last_ms
    return silence

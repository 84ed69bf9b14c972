"""Fences and unfences brokers: session expiry, proof of death, and the elections that follow.

Called for heartbeats, ticks and proofs.  Quick with proof, patient without: silence fences only
after the session timeout, never because this controller itself was late, and never most brokers at
once on one controller's word.  Fencing costs a broker its ISR memberships, not its lifetime.
Source: the protocol's rules for fencing and unfencing; KIP-631, KIP-841.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Broker
from plimsoll_core.cluster.records import BrokerFenced, BrokerUnfenced
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.controller.kernel.volatile_state import Contact, VolatileState
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, BrokerProvenDead, Done, Tick


def leave(turn: DecisionContext, broker_id: BrokerId, cause: str, *, lost: bool = False) -> bool:
    """Take a broker out of its ISRs (`lost`: and out of its ELRs).  False: more are left to do."""
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
    """The record comes last: a crash before it leaves a broker that will be fenced again."""
    if not leave(turn, broker.id, cause):
        return False
    turn.add(BrokerFenced(cause=cause, broker_id=broker.id, broker_epoch=broker.broker_epoch))
    turn.soft.leaving.discard(broker.id)
    return True


def unfence(turn: DecisionContext, broker: Broker) -> None:
    """Never adds to an ISR; elects the broker where it is complete and there is no leader."""
    turn.add(
        BrokerUnfenced(cause="caught-up", broker_id=broker.id, broker_epoch=broker.broker_epoch)
    )
    turn.soft.expired.pop(broker.id, None)
    leaderless = [p for p in turn.hosted(broker.id) if p.leader is None]
    turn.change(
        [(p, PartitionUpdate()) for p in leaderless], f"elected after broker {broker.id} came back"
    )


# --- flapping ----------------------------------------------------------------------------------


def note_flap(turn: DecisionContext, broker_id: BrokerId) -> None:
    """The broker fell out without being asked to."""
    since = turn.now_ms - turn.settings.flap_window_ms
    kept = [at for at in turn.soft.flaps.get(broker_id, []) if at > since]
    turn.soft.flaps[broker_id] = [*kept[-15:], turn.now_ms]


def held_back_until_ms(
    soft: VolatileState, broker_id: BrokerId, now_ms: int, *, back_ms: int, wait_ms_max: int
) -> int:
    """Until when a broker that keeps falling out stays fenced: min(2^k s, max) after the last time.

    `back_ms`: how far back it counts; `wait_ms_max`: the longest wait.
    """
    recent = [at for at in soft.flaps.get(broker_id, []) if at > now_ms - back_ms]
    if not recent:
        return now_ms
    return recent[-1] + min(1_000 << len(recent), wait_ms_max)


# --- silence -----------------------------------------------------------------------------------


def end_sessions(turn: DecisionContext, late_ms: int) -> None:
    """Fence one broker whose session is over; more of them, or more partitions, come again."""
    _shift_deadlines(turn, late_ms)
    timeout_ms = turn.settings.session_timeout_ms
    silent = _silence_ms(turn)
    lost = _lost(turn, silent)
    expired = sorted(
        (ms, broker_id)
        for broker_id, ms in silent.items()
        if ms >= timeout_ms or _is_being_fenced(turn, broker_id)
    )
    if not lost:
        turn.soft.mass_loss_since_ms = None
    if not expired:
        return
    if lost and not _may_judge_mass_loss(turn):
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
    """In slices, perhaps with heartbeats between them: half a fence would leave it unelectable."""
    leaving = broker_id in turn.soft.leaving
    return leaving and not turn.image.brokers[broker_id].shutting_down


def _shift_deadlines(turn: DecisionContext, late_ms: int) -> None:
    """A scan that ran late says nothing about the brokers: what they sent may still be unread."""
    if late_ms <= 0:
        return
    for contact in turn.soft.contacts.values():
        contact.last_ms = min(contact.last_ms + late_ms, turn.now_ms)


def _silence_ms(turn: DecisionContext) -> dict[BrokerId, int]:
    """For how long each unfenced broker has not been heard; a new term starts all at 0."""
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


def _lost(turn: DecisionContext, silent: dict[BrokerId, int]) -> set[BrokerId]:
    """The brokers that fell silent within one session timeout, if two and at least half; or
    none."""
    timeout_ms = turn.settings.session_timeout_ms
    just_fenced = {
        broker_id
        for broker_id, at in turn.soft.expired.items()
        if turn.now_ms - at < timeout_ms and broker_id not in silent
    }
    lost = {broker_id for broker_id, ms in silent.items() if 2 * ms > timeout_ms} | just_fenced
    watched = len(silent) + len(just_fenced)
    return lost if len(lost) >= 2 and 2 * len(lost) >= watched else set()


def _may_judge_mass_loss(turn: DecisionContext) -> bool:
    """It is more likely that this controller is cut off than that most brokers died at once.

    Another controller that sees the same may fence them; so may this one when none took over
    within one more session timeout.
    """
    soft = turn.soft
    until = soft.second_opinion_until_ms
    if until is not None and turn.now_ms < until:
        return True
    if soft.mass_loss_since_ms is None:
        soft.mass_loss_since_ms = turn.now_ms
    return turn.now_ms - soft.mass_loss_since_ms >= turn.settings.session_timeout_ms


# --- proof -------------------------------------------------------------------------------------


def proven_dead(turn: DecisionContext, request: BrokerProvenDead) -> Answer | Refusal:
    """Proof names a lifetime: late news about an old one must not touch its successor."""
    broker = turn.image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return Refusal(
            reason=Reason.StaleBrokerEpoch,
            message=f"Broker {request.broker_id} has begun another lifetime since.",
        )
    if broker.fenced:
        return Done()
    asked_to_leave = broker.shutting_down
    if not fence(turn, broker, f"fenced on proof: {request.evidence}"):
        turn.again = request
    elif not asked_to_leave:
        note_flap(turn, broker.id)
    return Done()

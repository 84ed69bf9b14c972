"""Fences brokers whose session has expired: silent for the session timeout, without proof.

Called by ticks.  Never because this controller itself was late; `mass_silence` decides when most
are silent at once.  Source: the protocol's rule for fencing; KIP-631.
"""

from __future__ import annotations

from plimsoll_core.controller.brokers.fencing import fence
from plimsoll_core.controller.brokers.mass_silence import may_judge_mass_loss, silent_together
from plimsoll_core.controller.brokers.unfencing_wait import note_flap
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Tick


def end_sessions(turn: DecisionContext, late_ms: int) -> None:
    """Fence one broker whose session is over; more of them, or more partitions, come again."""
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

"""Whether this controller may fence brokers although most fell silent at once.

Called by `session_expiry`.  It is more likely that this controller is cut off than that most
brokers died together, so it hands over first.
"""

from __future__ import annotations

from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.ids import BrokerId


def silent_together(turn: DecisionContext, silent: dict[BrokerId, int]) -> set[BrokerId]:
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


def may_judge_mass_loss(turn: DecisionContext) -> bool:
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

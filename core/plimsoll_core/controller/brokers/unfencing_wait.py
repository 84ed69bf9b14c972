"""For how long a broker that keeps falling out stays fenced.

Called for heartbeats, and by what fences.  Each fall within the window doubles the wait, up to a
maximum; falling out on request does not count.  What cannot be written without the broker does not
wait (docs/protocol.md 3.2).
"""

from __future__ import annotations

from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.ids import BrokerId


def note_flap(turn: DecisionContext, broker_id: BrokerId) -> None:
    """The broker fell out without being asked to."""
    since = turn.now_ms - turn.settings.flap_window_ms
    kept = [at for at in turn.soft.flaps.get(broker_id, []) if at > since]
    turn.soft.flaps[broker_id] = [*kept[-15:], turn.now_ms]


def is_waited_for(turn: DecisionContext, broker_id: BrokerId) -> bool:
    """Whether a partition with a replica on the broker has no leader, or too few in sync.

    Falling out again costs such a partition nothing: nobody writes to it meanwhile.
    """
    return any(p.leader is None or len(p.isr) < p.effective_min_isr for p in turn.hosted(broker_id))


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

"""For how long a broker that keeps falling out is held back.

Noted by whatever fences a broker or finds that it crashed; asked for heartbeats (it stays fenced),
proposed ISRs and new partitions (it joins none that has enough members without it).  Each fall
within the window doubles the wait, up to a maximum; falling out on request does not count.
Source: docs/protocol.md 3.2.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.ids import BrokerId


def note_flap(turn: DecisionContext, broker_id: BrokerId) -> None:
    """The broker fell out without being asked to."""
    kept = _recent(turn.soft, broker_id, turn.now_ms, turn.settings)
    turn.soft.flaps[broker_id] = [*kept[-15:], turn.now_ms]


class HoldBack(NamedTuple):
    """`times`: how often the broker fell out within the window, the last time at `last_ms`; for
    that it is held back for `wait_ms` from then on."""

    times: int
    last_ms: int
    wait_ms: int


def held_back(
    soft: VolatileState, broker_id: BrokerId, now_ms: int, settings: Settings
) -> HoldBack | None:
    """Return None if the broker is not held back for its recent failures."""
    recent = _recent(soft, broker_id, now_ms, settings)
    wait_ms = min(1_000 << len(recent), settings.flap_wait_ms_max)
    if not recent or now_ms >= recent[-1] + wait_ms:
        return None
    return HoldBack(len(recent), recent[-1], wait_ms)


def is_held_back(turn: DecisionContext, broker_id: BrokerId) -> bool:
    return held_back(turn.soft, broker_id, turn.now_ms, turn.settings) is not None


def _recent(soft: VolatileState, broker_id: BrokerId, now_ms: int, settings: Settings) -> list[int]:
    """Return the times within the window at which the broker fell out."""
    since = now_ms - settings.flap_window_ms
    return [at for at in soft.flaps.get(broker_id, []) if at > since]

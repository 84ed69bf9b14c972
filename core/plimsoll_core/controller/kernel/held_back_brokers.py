"""Computes for how long a broker with repeated failures is held back from ISRs.

A fence, and a registration after a crash, record a failure here. While a broker is held back, it
stays fenced, and it joins no ISR that has enough members without it: neither a proposed ISR nor
that of a new partition. Each failure within the window doubles the wait, up to a maximum; a
requested stop does not count. Source: docs/protocol.md 3.2.
"""

from __future__ import annotations

from typing import NamedTuple

from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.ids import BrokerId


def note_flap(turn: DecisionContext, broker_id: BrokerId) -> None:
    """Record that a broker failed now. A requested stop is not recorded."""
    kept = _recent(turn.soft, broker_id, turn.now_ms, turn.settings)
    turn.soft.flaps[broker_id] = [*kept[-15:], turn.now_ms]


class HoldBack(NamedTuple):
    """The reason why a broker is held back. `times`: the number of its failures within the window.
    `last_ms`: the time of the last one; from then on the broker is held back for `wait_ms`."""

    times: int
    last_ms: int
    wait_ms: int


def held_back(
    soft: VolatileState, broker_id: BrokerId, now_ms: int, settings: Settings
) -> HoldBack | None:
    """Return the reason why the broker is held back at `now_ms`, or None if it is not."""
    recent = _recent(soft, broker_id, now_ms, settings)
    wait_ms = min(1_000 << len(recent), settings.flap_wait_ms_max)
    if not recent or now_ms >= recent[-1] + wait_ms:
        return None
    return HoldBack(len(recent), recent[-1], wait_ms)


def is_held_back(turn: DecisionContext, broker_id: BrokerId) -> bool:
    return held_back(turn.soft, broker_id, turn.now_ms, turn.settings) is not None


def _recent(soft: VolatileState, broker_id: BrokerId, now_ms: int, settings: Settings) -> list[int]:
    """Return the instants (milliseconds) of the broker's failures within the window, oldest
    first."""
    since = now_ms - settings.flap_window_ms
    return [at for at in soft.flaps.get(broker_id, []) if at > since]

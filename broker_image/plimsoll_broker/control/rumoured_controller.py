"""When a broker follows up a peer's word that there is a newer controller.

Asked by `controller_client` with each heartbeat.  Source: the protocol's rule for Fetch, the
leader's side ("Controller epoch").
"""

from __future__ import annotations

from plimsoll_broker.monotonic_clock import monotonic_ms
from plimsoll_core.ids import ControllerEpoch

RUMOUR_MS = 5_000
"""Least time between two looks for a controller of which peers tell."""


class RumouredController:
    """What peers say, until it is followed up."""

    def __init__(self) -> None:
        # The greatest epoch that a peer named since the last look; 0: none.
        self._epoch = ControllerEpoch(0)
        # Before that the next look is not due.
        self._next_look_ms = 0

    def heard_of(self, epoch: ControllerEpoch) -> None:
        """A peer says that it follows a controller of this epoch.

        That is a reason to look for it with the next heartbeat, and no more: only a controller
        itself says which epoch it has, or one made-up number would leave this broker, and whoever
        hears it from here, without any controller.
        """
        self._epoch = max(self._epoch, epoch)

    def is_due(self, highest_epoch: ControllerEpoch) -> bool:
        """Whether a peer's word is to be followed up now: what nobody confirms is asked for
        seldom, so that whoever makes epochs up does not keep us busy.

        `highest_epoch`: of the controllers that have answered here."""
        if self._epoch <= highest_epoch or monotonic_ms() < self._next_look_ms:
            return False
        self._next_look_ms = monotonic_ms() + RUMOUR_MS
        self._epoch = ControllerEpoch(0)
        return True

"""RumouredController: when a broker follows up a peer's report of a newer controller.

Asked by `controller_client` with each heartbeat. Source: the protocol's rule for Fetch, the
leader's side ("Controller epoch").
"""

from __future__ import annotations

from plimsoll_broker.monotonic_clock import monotonic_ms
from plimsoll_core.ids import ControllerEpoch

RUMOUR_MS = 5_000
"""The least time between two looks for a controller that peers report."""


class RumouredController:
    """The peers' reports, until they are followed up."""

    def __init__(self) -> None:
        # The highest epoch that a peer named since the last look; 0: none.
        self._epoch = ControllerEpoch(0)
        # No look is due before this.
        self._next_look_ms = 0

    def heard_of(self, epoch: ControllerEpoch) -> None:
        """Note that a peer follows a controller of this epoch.

        It only causes a look with the next heartbeat. Only a controller itself can prove its epoch;
        otherwise one made-up number would leave this broker, and its peers, without any controller.
        """
        self._epoch = max(self._epoch, epoch)

    def is_due(self, highest_epoch: ControllerEpoch) -> bool:
        """Return True if a report is to be followed up now. Looks are rare, so that made-up epochs
        do not keep the broker busy. `highest_epoch`: of controllers that have answered."""
        if self._epoch <= highest_epoch or monotonic_ms() < self._next_look_ms:
            return False
        self._next_look_ms = monotonic_ms() + RUMOUR_MS
        self._epoch = ControllerEpoch(0)
        return True

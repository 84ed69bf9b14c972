"""Injects into this broker the faults that the controller orders for a drill.

`node.heartbeats` passes each order on. An order is obeyed once, only if the broker was started with
drills allowed, and only by switches in memory: of the links to brokers and controllers (`inside`),
and of the disk. A timer of this broker ends the fault; the controller need not be reachable. A
restart ends it, too.
"""

from __future__ import annotations

import asyncio
import logging

from plimsoll_broker.inside import InsidePeers
from plimsoll_broker.storage.disk import Disk
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.drills import ORDER_MS_MAX, DrillOrder

logger = logging.getLogger("plimsoll.drill")

DELAY_S = 0.5
"""By how many seconds SlowLinks delays each request to a broker, and each reply to one."""


class DrillFaults:
    """The faults of drills in this broker, one at a time. `number`: that of the newest order taken,
    0 if there is none. `allowed`: False if orders are ignored."""

    def __init__(
        self, broker_id: BrokerId, inside: InsidePeers, disk: Disk, *, allowed: bool
    ) -> None:
        self.number = 0
        self._broker_id = broker_id
        self._inside = inside
        self._disk = disk
        self._allowed = allowed
        # The order taken last, until its fault begins; None from then on.
        self._taken: DrillOrder | None = None
        self._end: asyncio.TimerHandle | None = None
        # The name of the fault that began last, for log lines.
        self._fault = ""

    def ordered(self, order: DrillOrder) -> bool:
        """Take a new order and return True, so that a heartbeat reports its number at once. Return
        False for any other. The fault begins when the order comes a second time: the controller has
        heard the number then, and CutLinks would keep it from hearing it later."""
        if not self._allowed or order.broker_id != self._broker_id or order.number < self.number:
            return False
        if order.number > self.number:
            self.close()
            self.number, self._taken = order.number, order
            return True
        if self._taken is not None:
            self._taken = None
            self._begin(order)
        return False

    def close(self) -> None:
        """End the fault now; do nothing if there is none."""
        if self._end is None:
            return
        self._end.cancel()
        self._end = None
        if self._inside.is_cut:
            self._inside.mend()
        self._inside.delay_s = 0.0
        self._disk.is_full = False
        logger.warning(
            "the fault %s, which a Verification injected into this broker on purpose (drill "
            "order %d), has ended; nothing needs to be done",
            *(self._fault, self.number),
        )

    def _begin(self, order: DrillOrder) -> None:
        left_s = min(order.left_ms, ORDER_MS_MAX) / 1000
        logger.warning(
            "a Verification injects a fault into this broker on purpose (drill order %d): %s, "
            "for %g s; it ends by itself, and nothing needs to be done",
            *(order.number, order.fault, left_s),
        )
        self._fault = order.fault
        self._end = asyncio.get_running_loop().call_later(left_s, self.close)
        match order.fault:
            case "CutLinks":
                self._inside.cut()
            case "SlowLinks":
                self._inside.delay_s = DELAY_S
            case "FillDisk":
                self._disk.is_full = True

"""The order of a drill: a fault that one broker injects into itself for a limited time.

A controller sends it with every answer while it lasts, a broker takes it once. It is kept in memory
only, on both sides, and the broker ends the fault by its own clock, so nothing is left behind
whichever process dies.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from plimsoll_core.ids import BrokerId

BrokerFault = Literal["CutLinks", "SlowLinks", "FillDisk"]
ORDER_MS_MAX = 60_000
"""The longest time in ms for which a broker injects a fault into itself."""


class DrillOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order to one broker. `number`: identifies the order, above 0; `left_ms`: for how many
    milliseconds from now the fault lasts. CutLinks: the broker has no connection to other brokers
    and controllers. SlowLinks: its requests to other brokers, and its replies to them, are late.
    FillDisk: it can write no record, as on a full disk."""

    broker_id: BrokerId
    number: Annotated[int, Meta(ge=1)]
    fault: BrokerFault
    left_ms: Annotated[int, Meta(ge=0, le=ORDER_MS_MAX)]

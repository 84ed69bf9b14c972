"""The parts of its world that a secured cluster uses."""

from __future__ import annotations

from typing import Protocol

from plimsoll_sim.cluster.run_options import RunOptions
from plimsoll_sim.desired.objects import AppliedObjects
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.oracle.committed import MetadataGhost


class SecuredParts(Protocol):
    """Implemented by `World`."""

    options: RunOptions
    loop: SimLoop
    ghost: MetadataGhost
    objects: AppliedObjects
    brokers: dict[int, BrokerHost]

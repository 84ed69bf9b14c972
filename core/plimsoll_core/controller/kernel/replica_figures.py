"""For how many replicas each broker has memory and file descriptors, by its heartbeats.

Called where replicas are placed or moved. A broker that has not reported it is left out."""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.ids import BrokerId


def replicas_max(soft: VolatileState, broker_id: BrokerId) -> int | None:
    """Return the number that a broker reported (`BrokerFigures.partitions_max`), or None."""
    contact = soft.contacts.get(broker_id)
    figures = None if contact is None else contact.figures
    return None if figures is None else figures.partitions_max


def most_replicas(image: ClusterImage, soft: VolatileState) -> dict[BrokerId, int]:
    """Return the number that each registered broker reported."""
    told = ((broker_id, replicas_max(soft, broker_id)) for broker_id in sorted(image.brokers))
    return {broker_id: most for broker_id, most in told if most is not None}

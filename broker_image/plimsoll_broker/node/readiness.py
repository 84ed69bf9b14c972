"""`is_settled`: whether a partition's min ISR waits for this broker, so that its pod is not ready.

Called by `Serving`; `BrokerNode.ready` adds that the broker runs and is unfenced. While a pod is
not ready the PodDisruptionBudget permits no eviction of another one.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId


def is_settled(image: ClusterImage, own_id: BrokerId) -> bool:
    """Return True if the broker is in the ISR of each of its partitions whose ISR is at or below
    min ISR, and is not about to be restarted. Otherwise its pod counts as unavailable, and no other
    one is evicted."""
    if image.restart_granted(own_id):
        return False
    for key in image.hosted.get(own_id) or ():
        partition = image.partitions[key]
        short = len(partition.isr) <= partition.effective_min_isr
        if short and own_id not in partition.isr:
            return False
    return True

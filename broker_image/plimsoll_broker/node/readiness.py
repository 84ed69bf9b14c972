"""Whether the min ISR of a partition waits for this broker, so that its pod must not be ready yet.

Called by `Serving`; `Broker.ready` adds that the broker runs and is unfenced.  While a pod is not
ready the PodDisruptionBudget permits no eviction of another one.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId


def is_settled(image: ClusterImage, own_id: BrokerId) -> bool:
    """In the ISR of every own partition whose ISR is at or below its min ISR, and not about to be
    restarted: while this pod counts as unavailable, no other one is evicted."""
    if image.restart_granted(own_id):
        return False
    for key in image.hosted.get(own_id) or ():
        partition = image.partitions[key]
        short = len(partition.isr) <= partition.effective_min_isr
        if short and own_id not in partition.isr:
            return False
    return True

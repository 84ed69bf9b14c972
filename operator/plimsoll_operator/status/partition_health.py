"""The health of one partition: its margin above min ISR, and whether nothing is amiss.  Pure.

Called for statuses and metrics.  Whether an action may lower the margin is the controller's
`availability_margin`.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, Topic


def partitions_of(image: ClusterImage, topic: Topic) -> list[Partition]:
    """A topic's partitions, in order."""
    return [image.partitions[PartitionKey(topic.id, index)] for index in range(topic.partitions)]


def margin(partition: Partition) -> int:
    """How many more members may leave before writes with acks=all stop."""
    return len(partition.isr) - partition.effective_min_isr


def is_healthy(partition: Partition) -> bool:
    """Led, with every replica in sync."""
    return partition.leader is not None and len(partition.isr) == len(partition.replicas)


def have(partitions: int) -> str:
    return "1 partition has" if partitions == 1 else f"{partitions} partitions have"

"""The results of a request's partitions, grouped by topic as responses have them.

Called by ElectLeaders and AlterPartitionReassignments, whose fields have other names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey
from plimsoll_core.messages.elections import ElectionAnswer
from plimsoll_core.messages.reassignments import TargetAnswer

PartitionAnswer = ElectionAnswer | TargetAnswer


def results_by_topic(
    answers: Iterable[PartitionAnswer], index_field: str
) -> dict[str, list[dict[str, Any]]]:
    """Return the results by topic. `index_field`: the response's field for a partition's index."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in answers:
        result = {
            index_field: each.index,
            "error_code": each.code,
            "error_message": each.message or None,
        }
        found.setdefault(each.topic, []).append(result)
    return found


def partition_of(image: ClusterImage, answer: PartitionAnswer) -> Partition | None:
    """Return the partition, or None if this broker does not know it."""
    topic_id = image.topic_ids.get(answer.topic)
    return None if topic_id is None else image.partitions.get(PartitionKey(topic_id, answer.index))

"""The size of each partition's ISR, as Prometheus reads it: the longest part of a scrape.

Called for metrics.  The lines of a cluster are made once for each image and kept as bytes; the
client library would take them apart and escape each label anew with every scrape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.status.metric_rows import ISR_SIZE

PARTITIONS_SHOWN_MAX = 2_000
_HEAD = f"# HELP {ISR_SIZE.name} {ISR_SIZE.text}\n# TYPE {ISR_SIZE.name} {ISR_SIZE.kind}\n".encode()


@dataclass(frozen=True, slots=True)
class _Lines:
    """Of one cluster, and what they were made of: values, so they stay true of these."""

    partitions: object
    topics: object
    text: bytes


class IsrSizes:
    """Of all clusters that are led here."""

    def __init__(self) -> None:
        self._made: dict[Key, _Lines] = {}

    def text(self, led: Iterable[tuple[Key, ClusterImage]]) -> bytes:
        """In the text format of Prometheus; what was led before is forgotten."""
        self._made = {key: self._lines(key, image) for key, image in led}
        return b"".join((_HEAD, *(lines.text for lines in self._made.values())))

    def _lines(self, key: Key, image: ClusterImage) -> _Lines:
        made = self._made.get(key)
        if made and made.partitions is image.partitions and made.topics is image.topics:
            return made
        return _Lines(image.partitions, image.topics, _written(key, image))


def _written(key: Key, image: ClusterImage) -> bytes:
    """Nothing of a cluster that has too many partitions.  Names of Kubernetes and of Kafka have no
    character that would have to be escaped."""
    if len(image.partitions) > PARTITIONS_SHOWN_MAX:
        return b""
    namespace, cluster = key
    begun = {
        topic_id: f'{ISR_SIZE.name}{{namespace="{namespace}",cluster="{cluster}",'
        f'topic="{topic.name}",partition="'
        for topic_id, topic in image.topics.items()
    }
    return "".join(
        f'{begun[partition.topic_id]}{partition.index}"}} {len(partition.isr)}.0\n'
        for partition in image.partitions.values()
        if partition.topic_id in begun
    ).encode()

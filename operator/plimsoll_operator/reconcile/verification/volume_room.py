"""Decides if the records of a Verification fit on the brokers' volumes. Pure.

Called by `reconcile` before the driver starts. A broker whose disk is unknown is taken to have
room. Compressed records may be much smaller than stated, so they are not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import bytes_text
from plimsoll_core.planner.disk_room import DiskRoom
from plimsoll_operator.api.verification import VerificationSpec
from plimsoll_operator.status.cluster_counts import partitions_of

RECORD_BYTES_DEFAULT = 1024
RECORD_OVERHEAD_BYTES = 16
"""Bytes of a record beside its value: key, offset, time, lengths, and its part of the batch."""


def why_no_room(
    spec: VerificationSpec, image: ClusterImage, disks: Mapping[BrokerId, DiskRoom]
) -> str | None:
    """Return a sentence if the records cannot fit on the volumes of the topic's replicas, else
    None; also None if nothing is written, the records are compressed, or the topic does not exist.
    Records are taken to spread evenly over the partitions. `disks`: the free room of each broker
    that has reported it."""
    produce, store = spec.produce, spec.evidence
    if produce is None or (store is not None and store.resume is not None):
        return None  # it writes nothing
    topic_id = None if spec.topic is None else image.topic_ids.get(spec.topic)
    if topic_id is None or produce.compression not in (None, "None"):
        return None
    partitions = list(partitions_of(image, image.topics[topic_id]))
    held = Counter(broker for partition in partitions for broker in partition.replicas)
    size = (produce.record_bytes or RECORD_BYTES_DEFAULT) + RECORD_OVERHEAD_BYTES
    per_replica = produce.total * size // max(1, len(partitions))
    over = [
        (per_replica * replicas - disks[broker].free_bytes, broker)
        for broker, replicas in held.items()
        if broker in disks and per_replica * replicas > disks[broker].free_bytes
    ]
    if not over:
        return None
    worst = max(over)[1]
    whole = produce.total * size * sum(held.values()) // max(1, len(partitions))
    return (
        f"The Verification's records do not fit on the disks: {produce.total} records of "
        f"{size - RECORD_OVERHEAD_BYTES} bytes take {bytes_text(whole)} on all replicas of topic "
        f"{spec.topic}, of which {bytes_text(per_replica * held[worst])} fall on broker {worst}, "
        f"which has {bytes_text(disks[worst].free_bytes)} free. No driver pod was started. Set "
        "fewer or smaller records, or enlarge storage.size."
    )

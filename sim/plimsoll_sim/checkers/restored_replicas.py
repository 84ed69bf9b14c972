"""Checks brokers and replicas after a person restored the metadata from a chosen history.

The committed history of the run has ended there, so the controller's image takes its place. All
faults are over and no volume is lost: every member serves, every partition is led and has all of
its replicas in sync, and these have the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_core.cluster.model import ClusterImage, Partition
from plimsoll_core.ids import BrokerId
from plimsoll_sim.checkers.copies import READ_BYTES
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.hosts.operators import OperatorHost
from plimsoll_sim.oracle.partition_ghost import Violation
from plimsoll_wire.batches import iter_headers


class RestoredCluster(Protocol):
    """The brokers and operators of a simulated cluster with a restored history."""

    brokers: dict[int, BrokerHost]
    operators: list[OperatorHost]


def unsettled(world: RestoredCluster) -> list[str]:
    """Return sentences about what is unfinished; empty if the cluster has converged."""
    image = next((host.image for host in world.operators if host.active), None)
    if image is None:
        return ["no operator leads"]
    return [*_brokers(world.brokers, image), *_partitions(world.brokers, image)]


def _brokers(hosts: Mapping[int, BrokerHost], image: ClusterImage) -> Iterator[str]:
    for broker_id in image.members:
        host, broker = hosts.get(int(broker_id)), image.brokers.get(broker_id)
        if host is None or not host.serving or broker is None or broker.fenced:
            yield f"broker {broker_id} does not serve"
        elif host.manager is None or host.manager.image != image:
            yield f"broker {broker_id} has other metadata than the controller"


def _partitions(hosts: Mapping[int, BrokerHost], image: ClusterImage) -> Iterator[str]:
    for key, partition in image.partitions.items():
        name = f"{image.topics[key.topic_id].name}-{key.index}"
        if partition.leader is None or set(partition.isr) != set(partition.replicas):
            yield f"{name}: leader {partition.leader}, ISR {partition.isr} of {partition.replicas}"
            continue
        found = _replicas(hosts, partition)
        if len(found) < len(partition.replicas):
            yield f"{name}: only {sorted(found)} host it"
        elif len(ends := {one.log.log_end_offset for one in found.values()}) > 1:
            yield f"{name}: ends differ: {sorted(ends)}"


def _replicas(hosts: Mapping[int, BrokerHost], partition: Partition) -> dict[BrokerId, Hosted]:
    found = {replica: hosts[int(replica)].hosted(partition.key) for replica in partition.replicas}
    return {replica: hosted for replica, hosted in found.items() if hosted is not None}


def check_agreement(world: RestoredCluster) -> None:
    """Check that all replicas of a partition have the same batches, from the greatest of their log
    starts on. A cleaner may have removed different ones."""
    image = next(host.image for host in world.operators if host.active)
    assert image is not None
    for partition in image.partitions.values():
        found = _replicas(world.brokers, partition)
        if any(one.log.holes for one in found.values()):
            continue
        first = max(one.log.log_start_offset for one in found.values())
        told = {replica: _batches(hosted, first) for replica, hosted in found.items()}
        if any(each != told[partition.replicas[0]] for each in told.values()):
            name = f"{image.topics[partition.topic_id].name}-{partition.index}"
            raise Violation("RestoredReplicas", f"{name}: replicas differ: {told}")


def _batches(hosted: Hosted, first: int) -> list[tuple[int, int, int, int]]:
    """Return base offset, last offset, leader epoch and CRC of each batch that ends behind
    `first`."""
    found: list[tuple[int, int, int, int]] = []
    log, offset = hosted.log, first
    while offset < log.log_end_offset and (
        data := log.read(offset, READ_BYTES, log.log_end_offset)
    ):
        for header in iter_headers(data):
            offset = header.next_offset
            found.append((header.base_offset, header.last_offset, header.leader_epoch, header.crc))
    return found

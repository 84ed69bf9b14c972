"""Checks that replaced leaders stop answering, in clusters that ask for StopServing.

`LeaseChecker.look` is called with each broker that did something in a step. From then on it records
every read and every write with acks=0/1 that this broker answers as leader. It checks that at that
time no other broker has led the partition for longer than a lease lasts, except after unclean
elections. Source: docs/protocol.md §7.2.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_broker.replication.hosted_partitions import Hosted
from plimsoll_broker.replication.replica_manager import ReplicaManager
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import Violation


class LeaseChecker:
    """Checks all brokers of a world."""

    def __init__(self, ghost: MetadataGhost, now_us: Callable[[], int]) -> None:
        self._ghost = ghost
        self._now_us = now_us
        self._watched: dict[int, ReplicaManager] = {}
        self._violation: Violation | None = None
        self.served = 0

    def look(self, host: BrokerHost) -> None:
        if self._violation is not None:
            raise self._violation
        manager = host.manager
        if manager is None or self._watched.get(host.id) is manager:
            return
        if not manager.stops_serving:
            return
        self._watched[host.id] = manager
        self._listen(host.id, manager)

    def _listen(self, broker_id: int, manager: ReplicaManager) -> None:
        may_serve = manager.may_serve

        def heard(hosted: Hosted) -> bool:
            may = may_serve(hosted)
            if may:
                self._check(broker_id, manager, hosted)
            return may

        manager.may_serve = heard

    def _check(self, broker_id: int, manager: ReplicaManager, hosted: Hosted) -> None:
        self.served += 1
        leader, lease = hosted.replica.leader, manager.serving.lease
        ghost = self._ghost.partitions.get(hosted.key)
        if leader is None or ghost is None or self._ghost.restored:
            return
        if ghost.unclean_epoch > leader.epoch:
            return
        for epoch, since in ghost.led.items():
            for other, since_us in since.items():
                silent_ms = (self._now_us() - since_us) // 1_000
                newer = epoch > leader.epoch and other != broker_id
                if newer and silent_ms > lease.window_ms and self._violation is None:
                    # The client must not catch it: raised after the step.
                    self._violation = Violation(
                        "NoStaleServing",
                        f"{ghost.name}: {broker_id} answers as leader of LE {leader.epoch}, "
                        f"{silent_ms} ms after {other} began to lead at LE {epoch}",
                    )

"""What all clusters of one operator process share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.controller.server import ControllerServer
from plimsoll_operator.kube.client import Kube
from plimsoll_operator.objects import Key, Objects
from plimsoll_operator.options import Options
from plimsoll_operator.status.metrics import Controllers, Metrics

if TYPE_CHECKING:
    from plimsoll_operator.leader import Leader


@dataclass(slots=True, kw_only=True)
class Parts:
    """`kube` reads and applies; Lease renewals and status writes never wait behind it."""

    options: Options
    kube: Kube
    lease_kube: Kube
    status_kube: Kube
    watch_kube: Kube
    objects: Objects
    server: ControllerServer
    metrics: Metrics
    leaders: dict[Key, Leader] = field(default_factory=dict)

    def known(self) -> list[Key]:
        """Every LogCluster that was seen."""
        return sorted(found.key for found in self.objects.clusters)

    def controllers(self) -> Controllers:
        """The controllers that run here."""
        return [(key, leader.controller) for key, leader in sorted(self.leaders.items())]

    def failures(self) -> Mapping[str, int]:
        """Bugs of ours that were met, by where."""
        return self.server.failures.counts

    def blocked(self) -> list[tuple[Key, list[BlockedAction]]]:
        """What waits in the clusters that are led here."""
        return [
            (key, [row for rows in leader.term.blocked.values() for row in rows])
            for key, leader in sorted(self.leaders.items())
        ]

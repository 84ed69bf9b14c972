"""What all clusters of one operator process share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.controller.runtime import Controller
from plimsoll_operator.controller.server import ControllerServer
from plimsoll_operator.kube.cache import Key, Objects
from plimsoll_operator.kube.port import KubeApi, Transport
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.reconcile.context import Term, Work
from plimsoll_operator.status.metrics import Controllers, Metrics


class Led(Protocol):
    """A cluster that is led here, as far as the rest of the process looks into it."""

    @property
    def controller(self) -> Controller: ...

    @property
    def term(self) -> Term: ...

    def offer(self, work: Work) -> None: ...


@dataclass(slots=True, kw_only=True)
class Parts:
    """`kube` reads and applies; Lease renewals and status writes never wait behind it.

    `log_transport` makes the connections of one cluster's metadata log, whose they then are."""

    options: OperatorOptions
    kube: KubeApi
    lease_kube: KubeApi
    status_kube: KubeApi
    watch_kube: KubeApi
    log_transport: Callable[[], Transport]
    objects: Objects
    server: ControllerServer
    metrics: Metrics
    leaders: dict[Key, Led] = field(default_factory=dict)

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

"""Parts that all clusters of one operator process share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from plimsoll_core.controller.brokers.membership import next_members
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.controller.controller_server import ControllerServer
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.history.archive import Archive
from plimsoll_operator.history.keeper import HistoryKeeper
from plimsoll_operator.kube.port import KubeApi
from plimsoll_operator.kube.seen_objects import Key, Objects
from plimsoll_operator.leadership.isr_departures import PodLook
from plimsoll_operator.metalog.interface import MetadataLog
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.pki.expiry import ListenerCertificate
from plimsoll_operator.reconcile.cluster.authorities import certificate_times
from plimsoll_operator.reconcile.cluster.logcluster_status import unclean_recovery_of
from plimsoll_operator.reconcile.reconcile_term import Term, Work
from plimsoll_operator.reconcile_times import ReconcileTimes
from plimsoll_operator.status.gauges import members_of
from plimsoll_operator.status.operator_metrics import Controllers, Metrics
from plimsoll_operator.status.unclean_recovery_condition import UncleanElections


class Led(Protocol):
    """A cluster that is led here, as far as the rest of the process looks into it."""

    @property
    def controller(self) -> Controller: ...

    @property
    def term(self) -> Term: ...

    @property
    def times(self) -> ReconcileTimes: ...

    async def settle_history(self) -> bool:
        """What is committed by now is in the archive of the history; False: it could not be, or
        none is kept."""

    @property
    def history(self) -> HistoryKeeper | None:
        """None: none is kept."""

    def offer(self, work: Work, after_ms: int = 0) -> None: ...


@dataclass(slots=True, kw_only=True)
class Parts:
    """`kube` reads and applies; Lease renewals and status writes never wait behind it.

    `metadata_log` makes the log of one cluster, which closes what it opened."""

    options: OperatorOptions
    kube: KubeApi
    lease_kube: KubeApi
    status_kube: KubeApi
    watch_kube: KubeApi
    metadata_log: Callable[[Key, UUID], MetadataLog]
    objects: Objects
    server: ControllerServer
    metrics: Metrics
    # The process's wall clock: milliseconds since 1970.
    now_ms: Callable[[], int]
    # Its monotonic clock, in milliseconds.
    monotonic_ms: Callable[[], int]
    # For how long the event loop waited for a processor since the process began.
    waited_ms: Callable[[], int] = lambda: 0
    # Whether nobody else can lead these clusters: the next term begins as soon as one has ended,
    # and that the log is locked by this process is proof enough of leading.
    alone: bool = False
    # The archive of the history of a cluster's leaders and ISRs; None: none is kept.
    history: Callable[[Key, UUID], Archive] | None = None
    # Where that is when it is a directory of this machine; empty: it is on the API server.
    history_directory: str = ""
    leaders: dict[Key, Led] = field(default_factory=dict)
    # Whether a pod was evicted, for counters alone; None: pods here are none of Kubernetes'.
    pod_look: PodLook | None = None

    def known(self) -> dict[Key, frozenset[BrokerId]]:
        """Every LogCluster that was seen, with its brokers: as declared, and as committed."""
        found: dict[Key, frozenset[BrokerId]] = {}
        for cluster in sorted(self.objects.clusters, key=lambda cluster: cluster.key):
            led = self.leaders.get(cluster.key)
            ids = set(members_of(led.controller.image)) if led is not None else set()
            declared = next_members(ids, cluster.count, cluster.excluded_ids)
            found[cluster.key] = frozenset({*declared, *ids})
        return found

    def reconciling(self) -> list[tuple[Key, ReconcileTimes]]:
        """How the reconcilers of the clusters that are led here do."""
        return [(key, leader.times) for key, leader in sorted(self.leaders.items())]

    def controllers(self) -> Controllers:
        """The controllers that run here."""
        return [(key, leader.controller) for key, leader in sorted(self.leaders.items())]

    def certificates(self) -> list[tuple[Key, Iterable[ListenerCertificate]]]:
        """When those of the listeners end, of the clusters that are led here."""
        return [
            (key, certificate_times(leader.term).shown())
            for key, leader in sorted(self.leaders.items())
        ]

    def histories(self) -> list[tuple[Key, HistoryKeeper]]:
        """Of the clusters that are led here."""
        led = sorted(self.leaders.items())
        return [(key, leader.history) for key, leader in led if leader.history is not None]

    def unclean_recoveries(self) -> list[tuple[Key, UncleanElections]]:
        """Of the last day, of the clusters that are led here."""
        return [
            (key, unclean_recovery_of(leader.term).elections(self.now_ms()))
            for key, leader in sorted(self.leaders.items())
            if leader.controller.active
        ]

    def failures(self) -> Mapping[str, int]:
        """Bugs of ours that were met, by where."""
        return self.server.failures.counts

    def met(self, error: Exception) -> None:
        """A bug in a part of the metrics."""
        self.server.failures.met("Metrics", error, "a scrape one part of it")

    def peers_refused(self) -> Mapping[str, int]:
        """Connections to the controllers' port that were not let in, by reason."""
        return {} if self.server.inside is None else self.server.inside.refusals.counts

    def blocked(self) -> list[tuple[Key, list[BlockedAction]]]:
        """What waits in the clusters that are led here."""
        return [
            (key, [row for rows in leader.term.blocked.values() for row in rows])
            for key, leader in sorted(self.leaders.items())
        ]

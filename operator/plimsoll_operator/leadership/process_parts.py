"""Parts that all clusters of one operator process share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from uuid import UUID

from plimsoll_core.controller.brokers.membership import next_members
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.backup.backup_place import MakeBucket
from plimsoll_operator.backup.backup_writer import BackupState
from plimsoll_operator.controller.controller_server import ControllerServer
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.history.archive import Archive
from plimsoll_operator.history.keeper import HistoryKeeper
from plimsoll_operator.kube.api_outage import ApiOutage
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.seen_objects import Key, Objects
from plimsoll_operator.leadership.isr_departures import PodLook
from plimsoll_operator.metalog.interface import MetadataLog
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.pki.expiry import ListenerCertificate
from plimsoll_operator.reconcile.cluster.authorities import certificate_times
from plimsoll_operator.reconcile.cluster.logcluster_status import cluster_memory
from plimsoll_operator.reconcile.reconcile_term import Term, Work
from plimsoll_operator.reconcile_times import ReconcileTimes
from plimsoll_operator.status.gauges import members_of
from plimsoll_operator.status.operator_metrics import Controllers, Metrics, ShownBackup
from plimsoll_operator.status.unclean_recovery_condition import UncleanElections


class Led(Protocol):
    """A cluster that this process leads, in the form in which the metrics and the HTTP server read
    it."""

    @property
    def controller(self) -> Controller: ...

    @property
    def term(self) -> Term: ...

    @property
    def times(self) -> ReconcileTimes: ...

    async def settle_history(self) -> bool:
        """Wait until all changes committed so far are stored in the history archive, and return
        True. Return False if that takes too long or no history is kept."""

    @property
    def history(self) -> HistoryKeeper | None:
        """Return the writer of the cluster's history, or None if no history is kept."""

    @property
    def backup(self) -> BackupState | None:
        """Return what is known of the cluster's backup, or None if none is wanted."""

    def offer(self, work: Work, after_ms: int = 0) -> None: ...


@dataclass(slots=True, kw_only=True)
class Parts:
    """Parts that all clusters of one operator process share, created once at its start.

    `kube` reads and applies objects. Lease renewals, status writes and watches have API clients of
    their own and never wait behind it.

    `metadata_log` creates the metadata log of one cluster. The log closes the clients that it
    opens.
    """

    options: OperatorOptions
    kube: KubeApi
    lease_kube: KubeApi
    status_kube: KubeApi
    watch_kube: KubeApi
    metadata_log: Callable[[Key, UUID], MetadataLog]
    objects: Objects
    server: ControllerServer
    metrics: Metrics
    # Wall clock of the process: milliseconds since 1970.
    now_ms: Callable[[], int]
    # Monotonic clock of the process, in milliseconds.
    monotonic_ms: Callable[[], int]
    # Total time for which the event loop has waited for a processor since the process started, in
    # milliseconds.
    waited_ms: Callable[[], int] = lambda: 0
    # True if no other process can lead these clusters: the next term begins as soon as one has
    # ended, and this process's lock of the log is proof enough of leading.
    alone: bool = False
    # Archive of a cluster's history of leaders and ISRs; None if none is kept.
    history: Callable[[Key, UUID], Archive] | None = None
    # Volume that this process mounts for backups of metadata; None if it mounts none.
    backup_directory: Path | None = None
    # Makes the store for a backup in a bucket; None if there are none.
    make_bucket: MakeBucket | None = None
    # Directory of the archive on this machine; empty if it is on the API server.
    history_directory: str = ""
    leaders: dict[Key, Led] = field(default_factory=dict)
    # Cluster ids of LogClusters that continue another cluster than their spec and uid say.
    continued: dict[Key, UUID] = field(default_factory=dict)
    # Outages of the API server that drills cause; None if there are none.
    outage: ApiOutage | None = None
    # Reads whether a pod was evicted, for counters; None if brokers do not run in Kubernetes pods.
    pod_look: PodLook | None = None

    def known(self) -> dict[Key, frozenset[BrokerId]]:
        """Return every LogCluster that the watches delivered, sorted by key, with the ids of its
        brokers: those that its spec declares and, if this process leads it, also those in the
        committed image."""
        found: dict[Key, frozenset[BrokerId]] = {}
        for cluster in sorted(self.objects.clusters, key=lambda cluster: cluster.key):
            led = self.leaders.get(cluster.key)
            ids = set(members_of(led.controller.image)) if led is not None else set()
            declared = next_members(ids, cluster.id_ranges, cluster.excluded_ids)
            found[cluster.key] = frozenset({*declared, *ids})
        return found

    def reconciling(self) -> list[tuple[Key, ReconcileTimes]]:
        """Return the durations and outcomes of reconcile passes, for each cluster led here."""
        return [(key, leader.times) for key, leader in sorted(self.leaders.items())]

    def controllers(self) -> Controllers:
        return [(key, leader.controller) for key, leader in sorted(self.leaders.items())]

    def certificates(self) -> list[tuple[Key, Iterable[ListenerCertificate]]]:
        """Return the listener certificates with their expiry times, for each cluster led here."""
        return [
            (key, certificate_times(leader.term).shown())
            for key, leader in sorted(self.leaders.items())
        ]

    def histories(self) -> list[tuple[Key, HistoryKeeper]]:
        led = sorted(self.leaders.items())
        return [(key, leader.history) for key, leader in led if leader.history is not None]

    def backups(self) -> list[tuple[Key, ShownBackup]]:
        """Return the figures of the backup of each cluster led here that has one."""
        found, now_ms = [], self.now_ms()
        for key, leader in sorted(self.leaders.items()):
            if (backup := leader.backup) is not None:
                figures = ShownBackup(
                    behind_ms=backup.behind_ms(self.monotonic_ms()),
                    stored_ms=backup.stored_ms,
                    bytes=backup.bytes,
                    proven_ms=backup.proven_ms,
                    overdue_ms=backup.overdue_ms(now_ms),
                )
                found.append((key, figures))
        return found

    def unclean_recoveries(self) -> list[tuple[Key, UncleanElections]]:
        """Return the unclean elections of the last day, for each cluster with an active controller
        here."""
        return [
            (key, cluster_memory(leader.term).unclean.elections(self.now_ms()))
            for key, leader in sorted(self.leaders.items())
            if leader.controller.active
        ]

    def failures(self) -> Mapping[str, int]:
        """Return the number of the operator's bugs since the process started, by metric label."""
        return self.server.failures.counts

    def met(self, error: Exception) -> None:
        """Count and log a bug in collecting a part of the metrics."""
        self.server.failures.met("Metrics", error, "one part of the answer to a scrape")

    def peers_refused(self) -> Mapping[str, int]:
        """Return the number of rejected connections to the controllers' port, by reason; empty
        without TLS."""
        return {} if self.server.inside is None else self.server.inside.refusals.counts

    def blocked(self) -> list[tuple[Key, list[BlockedAction]]]:
        """Return the actions that wait for a condition, for each cluster led here."""
        return [
            (key, [row for rows in leader.term.shown.blocked.values() for row in rows])
            for key, leader in sorted(self.leaders.items())
        ]

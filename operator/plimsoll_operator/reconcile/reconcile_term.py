"""State that all reconcilers of one cluster share during a term.

A term begins with the Lease and ends with it or with the controller. All state here is memory: lost
with the term, and rebuilt by the next one from the log and the objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from plimsoll_core.cluster.model import ClusterImage, Topic
from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, Refused, Request
from plimsoll_core.release import RELEASE
from plimsoll_core.security.inside import InsideMode
from plimsoll_net.inside_identity import InsideIdentity
from plimsoll_operator.api import topic as api
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition, Conditions
from plimsoll_operator.api.reassignment import ReassignmentStatus
from plimsoll_operator.api.rebalance import PlanStatus, RebalanceStatus
from plimsoll_operator.api.verification import VerificationStatus
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.kube.seen_objects import Key, Objects
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.reconcile.blocked_actions import row_of, with_pod_causes
from plimsoll_operator.reconcile.stall_causes import (
    Cause,
    StallCauses,
    StallSource,
    stall_conditions,
)
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.copy_meter import Meter
from plimsoll_operator.status.events import Occurrence
from plimsoll_operator.status.status_writer import Status, Target

Kept = TypeVar("Kept")
Shown = TypeVar("Shown", ReassignmentStatus, RebalanceStatus, VerificationStatus)


class Task(Enum):
    """Kinds of work."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    ABSENT_TOPICS = "absent topics"
    REASSIGNMENT = "reassignment"
    REBALANCE = "rebalance"
    VERIFICATION = "verification"
    USER = "user"
    BROKER = "broker"
    ROLLS = "rolls"
    LOG = "metadata log"


@dataclass(frozen=True, slots=True)
class Work:
    """One key of the reconcile queue."""

    task: Task
    key: Key

    def __str__(self) -> str:
        return f"{self.task.value} {self.key[0]}/{self.key[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFailure:
    """A bug in the last pass over an object."""

    # The object that shows it, and its uid; the LogCluster if the object is deleted.
    target: Target
    uid: str
    # The exception's class and its place in our source.
    where: str


async def _nowhere() -> None:
    pass


@dataclass(slots=True, kw_only=True)
class Term:
    """State of one cluster. The reconciler named in a dictionary's comment writes it."""

    # Namespace and name of the LogCluster.
    key: Key
    cluster_id: UUID
    controller: Controller
    kube: KubeApi
    # User objects as last seen.
    objects: Objects
    options: OperatorOptions
    # The Lease of this term; its annotations state since when CRDs count (`crd_age`).
    lease_name: str
    # Queue work, now or after so many milliseconds.
    add: Callable[[Work], None]
    add_later: Callable[[Work, int], None]
    # Render and write the status of an object, which may have changed.
    mark: Callable[[Target], None]
    # The host's wall clock: milliseconds since 1970.
    now_ms: Callable[[], int]
    # The host's monotonic clock in milliseconds, for durations.
    monotonic_ms: Callable[[], int]
    # Render and write the LogCluster's status now.
    write_status: Callable[[], Awaitable[object]] = _nowhere
    # Write an Event at the LogCluster.
    tell: Callable[[Occurrence], None] = lambda _: None
    # Set the identity that the controller shows the cluster's brokers.
    show_inside: Callable[[InsideIdentity], None] = lambda _: None
    # Condition of a refused Topic, by the Topic's key.
    refusals: dict[Key, Condition] = field(default_factory=dict)
    # Generation of the LogCluster's or Topic's spec that was reconciled last.
    observed: dict[Target, int] = field(default_factory=dict)
    # Status of a Reassignment, Rebalance or Verification at its last pass, and the generation of
    # its spec.
    statuses: dict[Target, tuple[int, Status]] = field(default_factory=dict)
    # Faults that only a person can fix; each source writes its own slot only.
    stall_causes: StallCauses = field(default_factory=dict)
    # Bugs in handling objects, by activity; only `ObjectFailures` writes it.
    failures: dict[str, ObjectFailure] = field(default_factory=dict)
    # The condition `ControllerAvailable`, if this term ended an outage.
    outage: Condition | None = None
    # Waits of voluntary actions: each reconciler writes the rows of its own key.
    blocked: dict[str, tuple[BlockedAction, ...]] = field(default_factory=dict)
    # The plan that a Rebalance (by uid) shows, and the hashes of all plans it has shown.
    plans: dict[str, PlanStatus] = field(default_factory=dict)
    plan_hashes: dict[str, deque[str]] = field(default_factory=dict)
    # Copy rates of a Topic (by its id), Reassignment or Rebalance (by uid).
    meters: dict[str, Meter] = field(default_factory=dict)
    # Why a broker's pod does not start.
    troubles: dict[BrokerId, str] = field(default_factory=dict)
    # Size of the smallest volume.
    volume_size: str | None = None
    # Children as this term applied them last, by kind and name.
    applied: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    # resourceVersion of a child as this term applied it, by kind and name.
    unchanged_at: dict[tuple[str, str], str] = field(default_factory=dict)
    # Members that the spec asks for now, and since when (`monotonic_ms`).
    settling: tuple[tuple[BrokerId, ...], int] | None = None
    # Creation times of the Topics and Users seen, by uid; shared by all terms of a process.
    seen_uids: dict[str, str] = field(default_factory=dict)
    # Those of the Lease's annotations that this term has read or written.
    crds_noted: set[str] = field(default_factory=set)
    # Release of the brokers if the spec states none.
    pinned: str | None = None
    # Mode of internal TLS: the spec's, else the one decided for a spec that states none.
    pinned_inside: InsideMode | None = None
    # True if the spec asks for a release that must not run.
    version_refused: bool = False
    # State that one kind's reconciler keeps, by its type (see `kept`).
    _kept: dict[type, object] = field(default_factory=dict, init=False)
    # Last input of the children; the LogCluster is never changed in place.
    _context: Context | None = field(default=None, init=False)
    # Waits under the previous operator.
    _blocked_before: tuple[BlockedAction, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self._blocked_before = self._shown_blocked()

    def server_ms(self) -> int:
        """Return the API server's clock by its last answer, else the host's. The next leading
        operator shares the API server's clock."""
        said_ms = self.kube.answered_ms
        return self.now_ms() if said_ms is None else said_ms

    def kept(self, kind: type[Kept], make: Callable[[], Kept]) -> Kept:
        """Return the state that one kind's reconciler keeps in this term, created at the first
        call."""
        if kind not in self._kept:
            self._kept[kind] = make()
        return cast("Kept", self._kept[kind])

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def cluster(self) -> LogCluster | None:
        """The LogCluster as last seen; None if it is deleted or being deleted."""
        found = self.objects.clusters.get(self.key)
        return None if found is None or found.metadata.deletion_timestamp else found

    @property
    def missing(self) -> frozenset[str]:
        """Unreadable fields of the LogCluster's spec without a known earlier value."""
        return self.objects.clusters.missing(self.key)

    @property
    def context(self) -> Context | None:
        """Input of the children's manifests; None if the spec is incomplete or asks for a refused
        version."""
        cluster = self.cluster
        if cluster is None or self.missing or self.version_refused:
            return None
        version = self.version
        if version not in self.options.images:
            return None
        known = self._context
        if known is not None and known.cluster is cluster and known.version == version:
            return known
        self._context = Context(
            cluster=cluster,
            cluster_id=self.cluster_id,
            version=version,
            broker_image=self.options.images[version],
            image_pull_policy=self.options.image_pull_policy,
            image_pull_secrets=self.options.image_pull_secrets,
            set_user=self.options.set_user,
            controllers=self.options.controllers,
            operator_namespace=self.options.namespace,
            server_names=self.options.server_names,
            metrics_from=self.options.metrics_from,
        )
        return self._context

    @property
    def version(self) -> str:
        """The release for the brokers: the spec's, else the previous one."""
        cluster = self.cluster
        stated = cluster.spec.version if cluster is not None else None
        return stated or self.pinned or RELEASE

    async def ask(self, request: Request) -> Answer:
        """Return the controller's answer. Raises `Retry` while it is not the active controller."""
        answer = await self.controller.request(request)
        if isinstance(answer, Refused) and answer.known_reason is Reason.NotController:
            raise Retry(answer.message, after_ms=500)
        return answer

    def topic_named(self, name: str) -> Topic | None:
        """Return the committed topic of that name, whatever object declares it."""
        topic_id = self.image.topic_ids.get(name)
        return None if topic_id is None else self.image.topics.get(topic_id)

    def bound_topic(self, found: api.Topic) -> Topic | None:
        """Return the committed topic that this very object declares."""
        topic = self.topic_named(found.topic_name)
        holder = topic.object if topic else None
        if holder is None or holder.uid != found.metadata.uid:
            return None
        return topic if (holder.namespace, holder.name) == found.key else None

    @property
    def notes(self) -> dict[str, Condition]:
        """Return the LogCluster's conditions that do not follow from the image, by type."""
        outage = {} if self.outage is None else {self.outage.type: self.outage}
        return outage | stall_conditions(self.stall_causes)

    def stall(self, source: StallSource, cause: Cause) -> None:
        """Set a cause that only a person can fix, in place of the last one of the same source."""
        if self.stall_causes.get(source) != cause:
            self.stall_causes[source] = cause
            self.mark_cluster()

    def unstall(self, source: StallSource) -> None:
        """Clear the cause of `source`; other causes stay."""
        if self.stall_causes.pop(source, None) is not None:
            self.mark_cluster()

    def block(self, action: str, rows: Iterable[BlockedAction]) -> None:
        """Set the waits of one kind of voluntary actions. Each keeps its start time, also from the
        previous operator."""
        known = self.blocked.get(action, self._blocked_before)
        before = {_waits_for(row): row for row in known}
        now = [_since(before.get(_waits_for(row)), row) for row in rows]
        if tuple(now) == self.blocked.get(action, ()):
            return
        for row in now:
            if _waits_for(row) not in before:
                self.tell(_blocked(row))
        self.blocked[action] = tuple(now)
        self.mark_cluster()

    def _shown_blocked(self) -> tuple[BlockedAction, ...]:
        """Return the waits that the LogCluster shows, of all kinds; used until this term has its
        own."""
        shown = self.objects.clusters.choices(self.key).get("blocked") or ()
        try:
            return msgspec.convert(shown, tuple[BlockedAction, ...])
        except msgspec.ValidationError:
            return ()

    def mark_cluster(self) -> None:
        self.mark(Target(LOG_CLUSTERS, *self.key))

    def show(self, target: Target, generation: int, status: Status) -> None:
        """Set an object's status, for the spec of `generation`. A True condition Blocked is shown
        in the LogCluster too."""
        shown = with_pod_causes(status.conditions, self.troubles)
        self.statuses[target] = (generation, replace(status, conditions=shown))
        self._follow_blocked(target, shown)
        self.mark(target)

    def shows_no_more(self, target: Target) -> None:
        """Drop the status and waits of a deleted object."""
        if self.statuses.pop(target, None) is not None:
            self._follow_blocked(target, ())
            self.blocked.pop(_source(target), None)

    def _follow_blocked(self, target: Target, shown: Conditions) -> None:
        kind, name = target.kind.kind, f"{target.namespace}/{target.name}"
        source, rows = _source(target), row_of(kind, name, shown, timestamp(self.now_ms()))
        if rows or source in self.blocked:
            self.block(source, rows)

    def status_of(self, target: Target, kind: type[Shown]) -> Shown | None:
        """Return the status of the last call of `show`."""
        found = self.statuses.get(target)
        return found[1] if found is not None and isinstance(found[1], kind) else None


def _source(target: Target) -> str:
    """Return the key of an object's waits."""
    return f"{target.kind.kind} {target.namespace}/{target.name}"


def _waits_for(row: BlockedAction) -> tuple[object, ...]:
    """Return what identifies a wait. An object's sentence may count down; the wait stays the same
    while its reason does."""
    until = row.until if row.object is None else ""
    return (row.action, row.object, row.broker, row.topic, row.partition, row.reason, until)


def _since(before: BlockedAction | None, row: BlockedAction) -> BlockedAction:
    return row if before is None else replace(row, since=before.since)


def _blocked(row: BlockedAction) -> Occurrence:
    return Occurrence(
        key=f"blocked-{row.action}-{row.object or row.broker}-{row.reason}",
        reason=f"{row.action}Blocked",
        message=row.sentence,
        warning=True,
    )

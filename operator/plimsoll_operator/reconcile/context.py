"""What the handlers of one cluster share while this process leads it.

A term begins with the Lease and ends with it or with the controller.  Everything here is memory:
lost with the term, and rebuilt by the next one from the log and the objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar, cast
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage, Topic
from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.requests import Answer, Refused, Request
from plimsoll_core.release import RELEASE
from plimsoll_operator.api import topic as api
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.reassignment import ReassignmentStatus
from plimsoll_operator.api.rebalance import PlanStatus, RebalanceStatus
from plimsoll_operator.api.verification import VerificationStatus
from plimsoll_operator.controller.runtime import Controller
from plimsoll_operator.kube.cache import Key, Objects
from plimsoll_operator.kube.port import KubeApi
from plimsoll_operator.kube.resources import (
    LOG_CLUSTERS,
    REASSIGNMENTS,
    REBALANCES,
    TOPICS,
    VERIFICATIONS,
)
from plimsoll_operator.manifests.context import Context
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.move_progress import Meter
from plimsoll_operator.status.record_events import Occurrence
from plimsoll_operator.status.writer import Target

Kept = TypeVar("Kept")


class Task(Enum):
    """Kinds of work."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    ABSENT_TOPICS = "absent topics"
    REASSIGNMENT = "reassignment"
    REBALANCE = "rebalance"
    VERIFICATION = "verification"
    ROLLS = "rolls"
    LOG = "metadata log"


@dataclass(frozen=True, slots=True)
class Work:
    """One key of the reconcile queue."""

    task: Task
    key: Key

    def __str__(self) -> str:
        return f"{self.task.value} {self.key[0]}/{self.key[1]}"


@dataclass(slots=True, kw_only=True)
class Term:
    """`refusals`: why an object is not as its owner wants it.  `observed`: which generation of an
    object the controller was last asked about.  `notes`: further conditions of the LogCluster, by
    type.  `stalls`: what no waiting mends, by reason.  `blocked`: what voluntary actions wait for,
    by action.
    `reassignments`, `rebalances`: what these objects show, with the generation that it speaks of;
    `meters`: how fast they are; `plans`: what Rebalances show of theirs; `plan_hashes`: all that
    were.  `seen_uids`: the Topic objects seen, and when each was made.  `tell`: an Event at the
    LogCluster.  `settling`: which members the spec asks for now, and since when.  `applied`:
    children, by kind and name, as they were last made in this term.  `troubles`: why brokers do
    not come up; `volume_size`: of the smallest volume.  `pinned`: the release that the
    brokers run when the spec does not say; `version_refused`: that must not be run."""

    key: Key
    cluster_id: UUID
    controller: Controller
    kube: KubeApi
    objects: Objects
    options: OperatorOptions
    lease_name: str
    add: Callable[[Work], None]
    add_later: Callable[[Work, int], None]
    mark: Callable[[Target], None]
    tell: Callable[[Occurrence], None] = lambda _: None
    refusals: dict[Key, Condition] = field(default_factory=dict)
    observed: dict[Key, int] = field(default_factory=dict)
    notes: dict[str, Condition] = field(default_factory=dict)
    stalls: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, tuple[BlockedAction, ...]] = field(default_factory=dict)
    reassignments: dict[Key, tuple[int, ReassignmentStatus]] = field(default_factory=dict)
    rebalances: dict[Key, tuple[int, RebalanceStatus]] = field(default_factory=dict)
    plans: dict[str, PlanStatus] = field(default_factory=dict)
    plan_hashes: dict[str, deque[str]] = field(default_factory=dict)
    meters: dict[str, Meter] = field(default_factory=dict)
    troubles: dict[BrokerId, str] = field(default_factory=dict)
    volume_size: str | None = None
    applied: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    verifications: dict[Key, VerificationStatus] = field(default_factory=dict)
    settling: tuple[tuple[BrokerId, ...], int] | None = None
    seen_uids: dict[str, str] = field(default_factory=dict)
    crd_noted: bool = False
    pinned: str | None = None
    version_refused: bool = False
    _kept: dict[type, object] = field(default_factory=dict, init=False)

    def kept(self, kind: type[Kept], make: Callable[[], Kept]) -> Kept:
        """What one kind's reconciler remembers in this term; made when it is first asked for."""
        if kind not in self._kept:
            self._kept[kind] = make()
        return cast("Kept", self._kept[kind])

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def cluster(self) -> LogCluster | None:
        """The LogCluster as last seen; None when it is going or gone."""
        found = self.objects.clusters.get(self.key)
        return None if found is None or found.metadata.deletion_timestamp else found

    @property
    def missing(self) -> frozenset[str]:
        """The fields of the LogCluster's spec that cannot be read and are not known from before."""
        return self.objects.clusters.missing(self.key)

    @property
    def context(self) -> Context | None:
        """What children are made from; None when the spec is not whole, or asks for a version that
        must not be run."""
        cluster = self.cluster
        if cluster is None or self.missing or self.version_refused:
            return None
        if self.version not in self.options.images:
            return None
        return Context(
            cluster=cluster,
            cluster_id=self.cluster_id,
            version=self.version,
            broker_image=self.options.images[self.version],
            image_pull_policy=self.options.image_pull_policy,
            controllers=self.options.controllers,
            operator_namespace=self.options.namespace,
            metrics_from=self.options.metrics_from,
        )

    @property
    def version(self) -> str:
        """Which release the brokers are to run: what the spec says, else what they ran before."""
        cluster = self.cluster
        stated = cluster.spec.version if cluster is not None else None
        return stated or self.pinned or RELEASE

    async def ask(self, request: Request) -> Answer:
        """The controller's answer; `Retry` while it is not (or no longer) the controller."""
        answer = await self.controller.request(request)
        if isinstance(answer, Refused) and answer.reason == Reason.NotController.name:
            raise Retry(answer.message, after_ms=500)
        return answer

    def bound_topic(self, found: api.Topic) -> Topic | None:
        """The topic that this very object declares, as committed."""
        topic_id = self.image.topic_ids.get(found.topic_name)
        topic = None if topic_id is None else self.image.topics.get(topic_id)
        holder = topic.object if topic else None
        if holder is None or holder.uid != found.metadata.uid:
            return None
        return topic if (holder.namespace, holder.name) == found.key else None

    def note(self, type_: str, status: bool, reason: str, message: str) -> None:
        """A condition of the LogCluster, shown from now on."""
        new = condition(type_, status, reason, message)
        if self.notes.get(type_) != new:
            self.notes[type_] = new
            self.mark_cluster()

    def drop_note(self, type_: str) -> None:
        if self.notes.pop(type_, None) is not None:
            self.mark_cluster()

    def stall(self, reason: str, message: str) -> None:
        """Something that only a human ends; several may be at once."""
        self.stalls[reason] = message
        self._show_stalls()

    def unstall(self, reason: str) -> None:
        if self.stalls.pop(reason, None) is not None:
            self._show_stalls()

    def _show_stalls(self) -> None:
        if self.stalls:
            self.note("Stalled", True, next(iter(self.stalls)), " ".join(self.stalls.values()))
        else:
            self.drop_note("Stalled")

    def block(self, action: str, rows: Iterable[BlockedAction]) -> None:
        """What voluntary actions of one kind wait for now; each says for how long already."""
        before = {_waits_for(row): row for row in self.blocked.get(action, ())}
        now = [before.get(_waits_for(row), row) for row in rows]
        if tuple(now) == self.blocked.get(action, ()):
            return
        for row in now:
            if _waits_for(row) not in before:
                self.tell(_blocked(row))
        self.blocked[action] = tuple(now)
        self.mark_cluster()

    def mark_cluster(self) -> None:
        self.mark(Target(LOG_CLUSTERS, *self.key))

    def mark_topic(self, key: Key) -> None:
        self.mark(Target(TOPICS, *key))

    def mark_reassignment(self, key: Key) -> None:
        self.mark(Target(REASSIGNMENTS, *key))

    def mark_rebalance(self, key: Key) -> None:
        self.mark(Target(REBALANCES, *key))

    def mark_verification(self, key: Key) -> None:
        self.mark(Target(VERIFICATIONS, *key))


def _waits_for(row: BlockedAction) -> tuple[object, ...]:
    return (row.action, row.broker, row.topic, row.partition, row.reason, row.until)


def _blocked(row: BlockedAction) -> Occurrence:
    return Occurrence(
        key=f"blocked-{row.action}-{row.broker}-{row.reason}",
        reason=f"{row.action}Blocked",
        message=row.sentence,
        warning=True,
    )

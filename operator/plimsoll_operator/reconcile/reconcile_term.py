"""Term: what the reconcilers of one cluster read while one controller leads it, and what they ask.

A term begins with the Lease and ends with it or with the controller. All state here is memory: lost
with the term, and rebuilt by the next one from the log and the objects. Each kind keeps its own
(`kept`), and only its reconciler writes it. What statuses show is in `ShownState`, which
`TermEffects` alone writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar, cast
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.errors import Reason
from plimsoll_core.messages.requests import Answer, Refused, Request
from plimsoll_net.inside_identity import InsideIdentity
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.seen_objects import Key, Objects
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.reconcile.shown_state import ShownState
from plimsoll_operator.reconcile.work_queue import Retry

Kept = TypeVar("Kept")


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


async def _nowhere() -> None:
    pass


@dataclass(slots=True, kw_only=True)
class Term:
    """One cluster while one controller leads it."""

    # Namespace and name of the LogCluster.
    key: Key
    cluster_id: UUID
    # The Lease of this term; its annotations state since when CRDs count (`object_absence`).
    lease_name: str
    options: OperatorOptions
    # Decides what reconcilers ask.
    controller: Controller
    kube: KubeApi
    # User objects as last seen.
    objects: Objects
    # Creation times of the Topics and Users seen, by uid; shared by all terms of a process.
    seen_uids: dict[str, str] = field(default_factory=dict)
    # The host's wall clock: milliseconds since 1970.
    now_ms: Callable[[], int]
    # The host's monotonic clock in milliseconds, for durations.
    monotonic_ms: Callable[[], int]
    # Render and write the LogCluster's status now.
    write_status: Callable[[], Awaitable[object]] = _nowhere
    # Set the identity that the controller shows the cluster's brokers.
    show_inside: Callable[[InsideIdentity], None] = lambda _: None
    shown: ShownState = field(default_factory=ShownState)
    # What each kind keeps, by its type.
    _kept: dict[type, object] = field(default_factory=dict, init=False)

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

    async def ask(self, request: Request) -> Answer:
        """Return the controller's answer. Raises `Retry` while it is not the active controller."""
        answer = await self.controller.request(request)
        if isinstance(answer, Refused) and answer.known_reason is Reason.NotController:
            raise Retry(answer.message, after_ms=500)
        return answer

"""`Term`: the state and the helpers of the reconcilers of one cluster, while this operator leads
it.

A term begins when the operator wins the cluster's Lease, and ends with the Lease or the controller.
All state here is in memory. It is lost with the term, and the next term rebuilds it from the
metadata log and the objects. A kind of object keeps its own state (`kept`), which only its
reconciler writes. What statuses show is in `ShownState`, which `TermEffects` alone writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar, cast
from uuid import UUID

import msgspec

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.errors import Reason
from plimsoll_core.messages.requests import Answer, Refused, Request
from plimsoll_net.inside_identity import InsideIdentity
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.backup.backup_writer import BackupState
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.seen_objects import Key, Objects
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.reconcile.shown_state import ShownState
from plimsoll_operator.reconcile.work_queue import Retry

Kept = TypeVar("Kept")


class Task(Enum):
    """Kinds of work in the reconcile queue: one for each kind of object, and ABSENT_TOPICS (topics
    without their object), ROLLS (rolling restarts) and LOG (repair of the metadata log)."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    ABSENT_TOPICS = "absent topics"
    REASSIGNMENT = "reassignment"
    REBALANCE = "rebalance"
    VERIFICATION = "verification"
    VERIFICATION_SCHEDULE = "verification schedule"
    USER = "user"
    BROKER = "broker"
    ROLLS = "rolls"
    LOG = "metadata log"


class Work(msgspec.Struct, frozen=True):
    """A key of the reconcile queue: the task, and the namespace and name of the object to reconcile
    (of the LogCluster for ABSENT_TOPICS, ROLLS and LOG)."""

    task: Task
    key: Key

    def __str__(self) -> str:
        return f"{self.task.value} {self.key[0]}/{self.key[1]}"


def turn_of(work: Work) -> str | None:
    """Return the namespace with which the work takes turns; None for the LogCluster's own, which
    goes first."""
    return None if work.task in (Task.CLUSTER, Task.ROLLS, Task.LOG) else work.key[0]


async def _nowhere() -> None:
    pass


@dataclass(slots=True, kw_only=True)
class Term:
    """State and helpers of one cluster's reconcilers while this operator leads it. Every reconcile
    pass gets it as its argument. `key`: namespace and name of the LogCluster; `objects`: the users'
    objects as last seen; `seen_uids`: creation times of the Topics and Users seen, by uid; `now_ms`
    and `monotonic_ms`: the host's wall clock and monotonic clock."""

    # Namespace and name of the LogCluster.
    key: Key
    cluster_id: UUID
    # The Lease of this term. Its annotations state since when each CRD has existed
    # (`object_absence`).
    lease_name: str
    options: OperatorOptions
    # Decides and commits the requests of reconcilers.
    controller: Controller
    kube: KubeApi
    # Users' objects of all kinds, as the watches and lists saw them last.
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
    # End this term; the next one begins soon, in this process or another.
    end_term: Callable[[], None] = lambda: None
    # Keep this process from the API server for so many milliseconds; None if it has no such means.
    cut_api: Callable[[int], None] | None = None
    # What is known of the cluster's backup; None if none is wanted.
    backup: Callable[[], BackupState | None] = lambda: None
    shown: ShownState = field(default_factory=ShownState)
    # State that the reconcilers keep (`kept`), by its class.
    _kept: dict[type, object] = field(default_factory=dict, init=False)

    def server_ms(self) -> int:
        """Return the API server's wall clock at its last answer, in milliseconds since 1970. Return
        the host's clock if there was no answer yet. Times stored for the next leading operator use
        this clock, since both see the same one."""
        said_ms = self.kube.answered_ms
        return self.now_ms() if said_ms is None else said_ms

    def kept(self, kind: type[Kept], make: Callable[[], Kept]) -> Kept:
        """Return the state of class `kind` that one reconciler stores in this term. The first call
        for `kind` creates and stores it by `make`."""
        if kind not in self._kept:
            self._kept[kind] = make()
        return cast("Kept", self._kept[kind])

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def cluster(self) -> LogCluster | None:
        """Return the LogCluster as last seen; None if it is deleted or being deleted."""
        found = self.objects.clusters.get(self.key)
        return None if found is None or found.metadata.deletion_timestamp else found

    @property
    def missing(self) -> frozenset[str]:
        """Return the names of fields of the LogCluster's spec that cannot be decoded, and for which
        no earlier value is known."""
        return self.objects.clusters.missing(self.key)

    async def ask(self, request: Request) -> Answer:
        """Send a request to the controller and return its answer once its records are committed; a
        refusal is an answer, too. Raise `Retry` (after 500 ms) if this operator's controller is not
        active."""
        answer = await self.controller.request(request)
        if isinstance(answer, Refused) and answer.known_reason is Reason.NotController:
            raise Retry(answer.message, after_ms=500)
        return answer

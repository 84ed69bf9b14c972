"""What a cluster's objects show while it is led here: drafts for the status writer.

Called by the leader's writer when an object's turn comes.  Everything is a projection of the
committed image, and of what the handlers of the term have to say.
"""

from __future__ import annotations

import msgspec

from plimsoll_core.cluster.model import Topic
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api.cluster_status import BLOCKED_MAX, BlockedAction, LogClusterStatus
from plimsoll_operator.api.conditions import condition, unready
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.topic import TopicStatus
from plimsoll_operator.kube.cache import Key
from plimsoll_operator.kube.resources import LOG_CLUSTERS, TOPICS
from plimsoll_operator.reconcile.blocked_actions import that_wait, worst_first
from plimsoll_operator.reconcile.cluster.versions import versions
from plimsoll_operator.reconcile.context import Term
from plimsoll_operator.reconcile.registry import draft_of, unread_as_such
from plimsoll_operator.reconcile.restarts.memory import restarts_of
from plimsoll_operator.reconcile.restarts.render import (
    rolls_condition,
    settling_condition,
    troubles_text,
)
from plimsoll_operator.reconcile.topic import placement
from plimsoll_operator.status.move_progress import Meter
from plimsoll_operator.status.projection import (
    Sight,
    blocked_condition,
    cluster_conditions,
    cluster_status,
    partitions_of,
    topic_status,
)
from plimsoll_operator.status.unclean import TYPE as UNCLEAN
from plimsoll_operator.status.unclean import UncleanRecovery
from plimsoll_operator.status.unhealthy import Unhealthy
from plimsoll_operator.status.writer import StatusDraft, Target


class Drafts:
    """One term's."""

    def __init__(self, term: Term) -> None:
        self.term = term
        self.unhealthy = Unhealthy()
        self.unclean = UncleanRecovery()

    def draft(self, target: Target) -> StatusDraft | None:
        """None when there is nothing to say of it."""
        if target.kind is LOG_CLUSTERS:
            draft = self._render_cluster()
        elif target.kind is TOPICS:
            draft = self._render_topic((target.namespace, target.name))
        else:
            draft = draft_of(self.term, target)
        return unread_as_such(self.term, target, draft)

    def _render_cluster(self) -> StatusDraft | None:
        found = self.term.cluster
        if found is None:
            return None
        image = self.term.image
        if not image.controller_epoch:
            return self._without_log(found)
        status = msgspec.structs.replace(
            cluster_status(image, found),
            blocked=tuple(self._blocked()[:BLOCKED_MAX]),
            versions=versions(self.term),
            volume_size=self.term.volume_size,
        )
        troubles = troubles_text(self.term.troubles)
        found_so = cluster_conditions(image, status, troubles)
        shown = {c.type: c for c in (*found_so, *self._notes())}
        rolling = restarts_of(self.term).rolling
        if rolling is not None:
            shown["Reconciling"] = rolls_condition(rolling)
        elif self.term.settling is not None and shown["Reconciling"].status == "False":
            shown["Reconciling"] = settling_condition(self.term.settling[0])
        if (stalled := shown.get("Stalled")) and stalled.status == "True":
            shown["Ready"] = unready(shown["Ready"], stalled)
            if shown["Reconciling"].status != "True":
                text = "Not all is as the spec says: see the condition Stalled."
                shown["Reconciling"] = condition("Reconciling", False, "Stalled", text)
        return StatusDraft(
            uid=found.metadata.uid,
            status=msgspec.structs.replace(status, conditions=tuple(shown.values())),
            generation=self.term.observed.get(found.key, 0),
            shown=self.term.objects.clusters.conditions(found.key),
        )

    def _without_log(self, found: LogCluster) -> StatusDraft | None:
        """The log was not read: nothing is known, but why it is not led."""
        if not self.term.notes:
            return None
        led = None if self.term.controller.stalled is None else kafka_id(self.term.cluster_id)
        return StatusDraft(
            uid=found.metadata.uid,
            status=LogClusterStatus(cluster_id=led, conditions=tuple(self.term.notes.values())),
            generation=found.metadata.generation,
            shown=self.term.objects.clusters.conditions(found.key),
        )

    def _blocked(self) -> list[BlockedAction]:
        return worst_first(row for _, rows in sorted(self.term.blocked.items()) for row in rows)

    def _notes(self) -> list[Condition]:
        """The conditions that are always shown, and what the handlers have to say."""
        notes = {
            "Blocked": condition("Blocked", False, "NothingWaits", "No voluntary action waits."),
            "Stalled": condition("Stalled", False, "NothingToDo", "No human action is needed."),
            UNCLEAN: self.unclean.condition(self.term.now_ms()),
        } | self.term.notes
        if rows := that_wait(self._blocked()):
            notes["Blocked"] = blocked_condition(rows)
        return list(notes.values())

    def _render_topic(self, key: Key) -> StatusDraft | None:
        found = self.term.objects.topics.get(key)
        if found is None or found.cluster_key != self.term.key or key not in self.term.observed:
            return None
        refusal = self.term.refusals.get(key)
        bound = self.term.bound_topic(found)
        if bound is not None:
            sight = Sight(outlook=self.term.controller.outlook, since_ms=self.unhealthy.since_ms)
            status = self._with_place(bound, topic_status(self.term.image, bound, sight, refusal))
        elif refusal is not None:
            status = TopicStatus(topic_name=found.topic_name, conditions=(refusal,))
        else:
            return None
        return StatusDraft(
            uid=found.metadata.uid,
            status=status,
            generation=self.term.observed[key],
            shown=self.term.objects.topics.conditions(key),
        )

    def _with_place(self, bound: Topic, status: TopicStatus) -> TopicStatus:
        """Where its replicas are, and where they go."""
        image, meters = self.term.image, self.term.meters
        partitions = partitions_of(image, bound)
        moving = [p for p in partitions if p.moving]
        if not moving:
            meters.pop(str(bound.id), None)
        meter = meters.setdefault(str(bound.id), Meter()) if moving else Meter()
        policy = self.term.controller.settings.rack_policy
        count = placement.drifted(image, bound, partitions, policy)
        more = (placement.reconciling(moving), placement.drift(image, count, len(partitions)))
        copies, now_ms = self.term.controller.soft.copies, self.term.monotonic_ms()
        return msgspec.structs.replace(
            status,
            drifted=count,
            move=placement.move(moving, meter, copies, now_ms),
            conditions=(*status.conditions, *more),
        )

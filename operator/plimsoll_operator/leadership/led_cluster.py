"""Leadership of one LogCluster: runs the controller and all tasks that serve the cluster.

`run` is one term: it begins when the Lease is won, ends with the controller, and is cancelled when
the Lease is lost. A bug on the commit path, in the queue or in the status writer ends the term and
is raised to the process. A bug in handling one object fails only the pass over that object
(`object_failures`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import (
    RESTORED_CAUSE,
    BrokerUnfenced,
    ControllerChanged,
    MembersChanged,
    Record,
    TopicRemoved,
)
from plimsoll_core.ids import BrokerId
from plimsoll_net.dialling import advice
from plimsoll_net.inside_identity import InsideIdentity
from plimsoll_operator.api.broker_configs import settings_of
from plimsoll_operator.api.cluster_ids import cluster_id as cluster_id_of
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.labels import RESTORE_METADATA
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.maintenance_windows import HoursClock
from plimsoll_operator.api.meta import Condition, ObjectMeta
from plimsoll_operator.backup.backup_writer import BackupState
from plimsoll_operator.controller.controller_options import ControllerOptions
from plimsoll_operator.controller.controller_term import Controller, Outcome
from plimsoll_operator.history.keeper import HistoryKeeper
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.resources import LOG_CLUSTERS, TOPICS
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.leadership.broker_watch import brokers_changed, look_at_brokers
from plimsoll_operator.leadership.cluster_backup import ClusterBackup
from plimsoll_operator.leadership.cluster_remains import brokers_with_volumes
from plimsoll_operator.leadership.isr_departures import IsrDepartures
from plimsoll_operator.leadership.object_failures import MadeStatuses, ObjectFailures
from plimsoll_operator.leadership.pod_evidence import evidence_of
from plimsoll_operator.leadership.process_parts import Parts
from plimsoll_operator.leadership.rack_lookup import RackFinder
from plimsoll_operator.leadership.state_change_requests import StateChangeRequests
from plimsoll_operator.metalog.interface import MetadataLog, OpenedLog
from plimsoll_operator.reconcile import registry
from plimsoll_operator.reconcile.cluster import inside, unrestored
from plimsoll_operator.reconcile.cluster.logcluster_status import cluster_memory
from plimsoll_operator.reconcile.cluster.reconcile import MEMBERSHIP
from plimsoll_operator.reconcile.effects import TermEffects
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work, turn_of
from plimsoll_operator.reconcile.shared import pinned_choices
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.topic.topic_memory import topics_of
from plimsoll_operator.reconcile.work_queue import ReconcileQueue, Retry
from plimsoll_operator.reconcile_times import ReconcileTimes
from plimsoll_operator.status.commit_counters import (
    fencings,
    isr_changes,
    leader_changes,
    unclean_elections,
)
from plimsoll_operator.status.events import Events, Occurrence
from plimsoll_operator.status.metadata_restored_condition import (
    restored_condition,
    shown_condition,
    way_out,
)
from plimsoll_operator.status.record_events import occurrences
from plimsoll_operator.status.status_writer import StatusWriter, Target

logger = logging.getLogger("plimsoll.leader")

RESYNC_SECONDS = 30
OUTAGE_MS_MIN = 8_000
"""Shortest time without a leading operator that is reported, in milliseconds. It is longer than a
standby's take-over."""
CLUSTER_STATUS_MS = 1_000
RESTLESS_SECONDS = 2
BRING_UP_SECONDS = 1
BESIDE_SECONDS = 30
"""Pause in seconds after which a task that no commit waits for is started again after a bug."""
SHOW_SECONDS = 0.5
"""Seconds between the first two attempts to read the internal CA."""


class LedCluster:
    """One LogCluster for which this process may lead: its controller, reconcile queue and status
    writer. The `Candidate` calls `run` for each term; it returns why the controller stopped."""

    def __init__(
        self, parts: Parts, found: LogCluster, cluster_id: UUID, log: MetadataLog, lease_name: str
    ) -> None:
        self._parts = parts
        # History of the cluster's leaders and ISRs; None if none is kept.
        self.history = _history_of(parts, found.key, cluster_id)
        self._backup = ClusterBackup(parts, self._seen, cluster_id, self._backup_changed)
        self.controller = Controller(
            cluster_id=cluster_id,
            name=found.metadata.name,
            log=log,
            settings=settings_of(found, parts.options.settings),
            identity=parts.options.identity,
            options=ControllerOptions(
                always_confirmed=parts.alone,
                waited_ms=parts.waited_ms,
                topic_id_key=parts.options.topic_id_key,
                on_open=self._opened,
                restore_choice=self._restore_choice,
                read_backup=self._backup.read,
                point_asked=lambda: self._backup.point_asked,
                backup_asked=lambda: self._backup.asked,
                on_restoring=self._restoring,
                expects_copies=self._expects_copies,
            ),
        )
        self._backup.follow(self.controller)
        # The brokers with volumes, if the metadata log is empty although there are some.
        self._unrestored: frozenset[BrokerId] = frozenset()
        # Durations and outcomes of the cluster's reconcile passes, for metrics.
        self.times = ReconcileTimes(parts.metrics.reconciles, lambda: parts.monotonic_ms() / 1000)
        self._queue: ReconcileQueue[Work] = ReconcileQueue(
            self._handle, times=self.times, task_of=lambda work: work.task.value, turn_of=turn_of
        )
        self._departures = IsrDepartures(found.key, parts.metrics.commits, parts.pod_look)
        self._requests = StateChangeRequests(found.key, parts.metrics.commits, parts.monotonic_ms)
        self._events = Events(parts.status_kube, parts.options.identity, parts.now_ms)
        self._cluster_due: asyncio.TimerHandle | None = None
        self._stalled_for = ("", "")
        # The end of a term that a drill has asked for; None before.
        self._ending: asyncio.Future[None] | None = None
        # The metadata log as this term opened it; None after the term's first commit.
        self._found_log: OpenedLog | None = None
        # `seen_uids` is one dict for all terms; everything else of a term ends with it.
        self._new_term = partial(
            Term,
            key=found.key,
            cluster_id=cluster_id,
            controller=self.controller,
            kube=parts.kube,
            objects=parts.objects,
            options=parts.options,
            lease_name=lease_name,
            write_status=self._write_status,
            show_inside=partial(_show_inside, parts, cluster_id),
            end_term=self._end_term,
            cut_api=None if parts.outage is None else parts.outage.begin,
            backup=lambda: self._backup.state,
            now_ms=parts.now_ms,
            monotonic_ms=parts.monotonic_ms,
            seen_uids={},
        )
        self._begin()
        self.controller.hours = HoursClock(lambda: self.term.cluster, parts.now_ms)
        if self.history is not None:
            self.controller.subscribe(self.history.committed)
            self.controller.snapshotter.before_release = self.history.settle
        self.controller.subscribe(self._committed)

    async def run(self, vacant_ms: int = 0) -> Outcome:
        """Run one term and return why its controller stopped. `vacant_ms` is for how long no
        operator led before it."""
        self._begin()
        parts, term = self._parts, self.term
        evidence = evidence_of(parts.kube, *term.key)
        parts.server.add(self.controller, evidence, self._racks.fill_in)
        if parts.server.inside is not None:
            parts.server.inside.committed[term.cluster_id] = partial(unrestored.admitted, term)
            parts.server.inside.demands_tls[term.cluster_id] = partial(unrestored.demands_tls, term)
            parts.server.inside.tell[term.cluster_id] = self._tell_refused
        parts.leaders[term.key] = self
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(self._queue.run()),
                    group.create_task(self._writer.run()),
                    group.create_task(self._resync(vacant_ms)),
                    *(group.create_task(self._beside(*task)) for task in self._tasks_beside()),
                ]
                if self.history is not None:
                    helpers.append(group.create_task(self.history.run()))
                outcome = await group.create_task(self.controller.run())
                await self._say_last(outcome)
                for helper in helpers:
                    helper.cancel()
            return outcome
        finally:
            term.shown.stall_causes.clear()  # the term has ended
            del parts.leaders[term.key]
            await parts.server.remove(term.cluster_id)

    async def stop(self) -> None:
        """Stop the controller, which ends the term: `run` then returns. Called before the
        connections of its brokers are closed."""
        await self.controller.stop()

    def _end_term(self) -> None:
        self._ending = asyncio.ensure_future(self.controller.stop())

    def _begin(self) -> None:
        """Create the state of a new term. Nothing is taken from the previous term, since another
        operator may have led meanwhile."""
        self.term = self._new_term()
        self.effects = TermEffects(
            term=self.term,
            add=self._queue.add,
            add_later=self._queue.add_later,
            mark=partial(self._mark, urgent=True),
            tell=self._tell,
        )
        self._failures = ObjectFailures(self.effects, self._parts.server.failures)
        self._writer = self._new_writer()
        if self.history is not None:
            self.history.begin()
        self._racks = RackFinder(self.effects)

    def _new_writer(self) -> StatusWriter:
        render = partial(registry.draft_of, self.term)
        failures = MadeStatuses(self.term, self._failures)
        return StatusWriter(self._parts.status_kube, render, self._parts.now_ms, failures)

    def _tasks_beside(self) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
        """Return the tasks of a term for which no commit waits, each with its name. The
        LogCluster's status names a task that met a bug."""
        look = self._failures.of_look
        return (
            ("the writing of Events", self._events.run),
            ("the backup of the metadata", self._backup.write),
            ("the drills of the backup's restore", self._backup.drill),
            ("the start of brokers that hold the metadata", self._bring_up),
            ("the first read of the internal CA", self._show_inside_at_once),
            ("the check of unhealthy partitions", self._look_at_restless),
            ("the check of brokers", partial(look_at_brokers, self.term, self._mark, look)),
            ("the count of replicas leaving ISRs", self._departures.run),
        )

    async def _beside(self, what: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run the task `run`, for which no commit waits. After a bug it is reported under the name
        `what`, and starts again after `BESIDE_SECONDS`."""
        while True:
            ended = False
            with self._failures.of_look(what, self._target):
                await run()
                ended = True
            if ended:
                return
            await asyncio.sleep(BESIDE_SECONDS)
            self._failures.over(what)

    @property
    def _target(self) -> Target:
        return Target(LOG_CLUSTERS, *self.term.key)

    async def say(self, cause: Cause) -> None:
        """Write `cause`, why this operator does not lead the LogCluster, into the LogCluster's
        status at once."""
        await self._say(StallSource.LEADERSHIP, cause)

    async def _say(self, source: StallSource, cause: Cause) -> None:
        self.term.shown.stall_causes[source] = cause
        await self._write_status()

    async def _write_status(self) -> None:
        await self._writer.write(self._target)

    def _tell(self, occurrence: Occurrence) -> None:
        if (found := self.term.cluster) is not None:
            self._events.add(found, occurrence)

    def _tell_refused(self, why: str) -> None:
        """Write an Event that says that a peer was rejected at the controllers' port. `why`: the
        cause. `Events.add` limits the Events to one a minute for each cause."""
        text = (
            f"The operator rejected a connection to the controllers' port ({why}): {advice(why)}. "
            "Clients of topics do not use this port."
        )
        self._tell(Occurrence(key=f"peer-{why}", reason="PeerRefused", message=text, warning=True))

    def _seen(self) -> LogCluster | None:
        return self.term.cluster

    def _backup_changed(self) -> None:
        self._mark(self._target)

    @property
    def backup(self) -> BackupState | None:
        return self._backup.state

    def _restore_choice(self) -> str:
        found = self.term.cluster
        return "" if found is None else found.metadata.annotations.get(RESTORE_METADATA, "")

    def _restoring(self, why: str) -> None:
        """Report in the status that the controller restores its log by itself. What the last
        attempt has not restored stays shown instead (`logcluster_status`)."""
        text = f"{why} The operator is restoring the metadata log from the brokers' copies."
        self.effects.stall(StallSource.CONTROLLER, unrestored.restoring(text))

    def _show_restore(
        self, begun: ControllerChanged, image: ClusterImage, shown: Iterable[Condition]
    ) -> None:
        """Report in the status that the metadata log was restored, now or within a week, and no
        longer that it could not be used."""
        self._stalled_for = ("", "")
        self.term.shown.stall_causes.pop(StallSource.CONTROLLER, None)
        if begun.cause == RESTORED_CAUSE:
            self.term.shown.restored = restored_condition(begun.restored)
        else:
            self.term.shown.restored = shown_condition(image, shown, self.term.now_ms())

    def _tell_outage(self, lasted_ms: int) -> None:
        """Report in the status and in an Event that no operator led the cluster for `lasted_ms`."""
        text = (
            f"No operator led this cluster for {lasted_ms / 1000:.0f} s. Brokers kept serving "
            "with their last metadata; elections, ISR changes and topic changes had to wait."
        )
        self.term.shown.outage = condition(
            "ControllerAvailable", True, "RecoveredAfterOutage", text
        )
        self.effects.mark_cluster()
        key = f"outage-{lasted_ms}"
        self._tell(Occurrence(key=key, reason="ControllerOutage", message=text, warning=True))

    def _tell_continued(self) -> None:
        """If a new LogCluster turned out to be a former cluster, write an Event with that one's id.
        A LogCluster is new until it shows conditions."""
        found, cluster_id = self.term.cluster, self.term.cluster_id
        known = self.term.objects.clusters.conditions(self.term.key)
        if found is None or known or cluster_id == cluster_id_of(found):
            return
        text = (
            f"This LogCluster continues cluster {kafka_id(cluster_id)}, which left volumes under "
            "its name. Topics, groups, users and records are those of that cluster."
        )
        self._tell(Occurrence(key="continued", reason="ClusterContinued", message=text))

    async def settle_history(self) -> bool:
        return self.history is not None and await self.history.settle()

    def offer(self, work: Work, after_ms: int = 0) -> None:
        """Queue `work` for an object that a watch or a resync saw, at once or after `after_ms`
        milliseconds. The uid of a Topic or User in the cache is first added to the term's
        `seen_uids`."""
        objects = self.term.objects
        if work.task is Task.CLUSTER:
            self.controller.look_at_choice()
        if work.task is Task.TOPIC and (topic := objects.topics.get(work.key)):
            self._note_seen(topic.metadata)
        if work.task is Task.USER and (user := objects.users.get(work.key)):
            self._note_seen(user.metadata)
        if after_ms:
            self._queue.add_later(work, after_ms)
        else:
            self._queue.add(work)

    def _forget_unneeded(self) -> None:
        """Keep in `seen_uids` the objects that exist, and those of committed topics and users."""
        term, image, seen = self.term, self.term.image, self.term.seen_uids
        declared = [t.object for t in image.topics.values() if t.object is not None]
        needed = {one.uid for one in declared}
        needed |= {row.object.uid for row in image.security.users.values()}
        needed |= {one.metadata.uid for one in (*term.objects.topics, *term.objects.users)}
        for uid in [uid for uid in seen if uid not in needed]:
            del seen[uid]

    def _note_seen(self, meta: ObjectMeta) -> None:
        self.term.seen_uids[meta.uid] = meta.creation_timestamp or ""

    # --- work -----------------------------------------------------------------------------------

    async def _look_at_restless(self) -> None:
        """Mark topics with a partition that has no leader or is moving, every `RESTLESS_SECONDS`.
        Their status changes without a commit, by what brokers report."""
        await self.controller.wait_active()
        while True:
            for topic_id in topics_of(self.term).unhealthy.restless_topics(self.term.image):
                self._mark_topic(self.term.image, topic_id)
            await asyncio.sleep(RESTLESS_SECONDS)

    async def _resync(self, vacant_ms: int) -> None:
        """Queue the reconciliation of every object every `RESYNC_SECONDS`, so that no correctness
        depends on a watch event. First report an outage if no operator led for `vacant_ms`, at
        least `OUTAGE_MS_MIN`."""
        await self.controller.wait_active()
        if vacant_ms >= OUTAGE_MS_MIN:
            self._tell_outage(vacant_ms)
        self._tell_continued()
        while True:
            self._forget_unneeded()
            look = partial(self._failures.of_look, target=self._target)
            for work in registry.all_work(self.term, look):
                self.offer(work)
            await asyncio.sleep(RESYNC_SECONDS)

    async def _expects_copies(self) -> frozenset[BrokerId]:
        """Return the brokers with volumes: these may hold what an empty log lost. Called by the
        controller before it begins such a log. Return none if this operator is alone: it runs the
        brokers itself, from a list that is not in the log, and they report what the log lost."""
        while not self._parts.alone:
            found = self.term.cluster
            try:
                if found is not None:
                    kube, cluster_id = self._parts.kube, self.term.cluster_id
                    self._unrestored = await brokers_with_volumes(kube, found, cluster_id)
                return self._unrestored
            except ApiError as error:
                logger.info(
                    "LogCluster %s: the operator cannot list the brokers' volumes and tries "
                    "again: %s",
                    self.controller.name,
                    error,
                )
            await asyncio.sleep(BRING_UP_SECONDS)
        return frozenset()

    async def _bring_up(self) -> None:
        """Until the controller is active, start the brokers that hold the metadata, if the log is
        empty: the controller waits for their copies."""
        while not self.controller.active:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BRING_UP_SECONDS):
                    await self.controller.wait_active()
            if not self._unrestored or self.controller.active:
                continue
            self.effects.stall(StallSource.CONTROLLER, unrestored.cause(self._unrestored))
            try:
                self.effects.carry_out(await unrestored.bring_up(self.term, self._unrestored))
            except (ApiError, Retry) as error:
                logger.warning(
                    "LogCluster %s: the metadata log is empty, and the operator restores it from "
                    "the brokers' copies, but it cannot start these brokers; it tries again: %s",
                    *(self.controller.name, error),
                )
        if self._unrestored:
            self.effects.unstall(StallSource.CONTROLLER)
            self._unrestored = frozenset()

    async def _show_inside_at_once(self) -> None:
        """Read the cluster's internal CA and present the controller's certificate, and retry until
        that succeeds. Brokers that only speak TLS cannot reach the controller without it, also not
        to restore its metadata log."""
        await self.controller.wait_reachable()
        delay_s = SHOW_SECONDS
        while True:
            try:
                self.effects.carry_out(await inside.show_at_once(self.term))
                return
            except (ApiError, Retry) as error:
                logger.warning(
                    "the operator cannot write the controller's certificate for internal TLS and "
                    "tries again; until then brokers that require TLS cannot connect to the "
                    "controller: %s",
                    error,
                )
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, RESYNC_SECONDS)

    async def _handle(self, work: Work) -> None:
        if not self.controller.active:
            text = "this operator does not lead the cluster as its controller at present"
            raise Retry(text, after_ms=500)
        with self._failures.of_pass(work):
            await pinned_choices.read(self.term)
            if work.task is Task.CLUSTER and (found := self.term.cluster) is not None:
                self.controller.settings = settings_of(found, self._parts.options.settings)
            self.effects.carry_out(await registry.reconcile(self.term, work))
            if work.task is Task.CLUSTER:
                self._racks.review()

    # --- after each commit ----------------------------------------------------------------------

    def _opened(self, log: OpenedLog) -> None:
        self._found_log = log
        if self.history is not None:
            self.history.opened(log)

    def _committed(self, old: ClusterImage, new: ClusterImage, records: tuple[Record, ...]) -> None:
        self._count(old, new, records)
        happened, now_ms = list(occurrences(old, new, records)), self.term.now_ms()
        unhealthy, unclean = topics_of(self.term).unhealthy, cluster_memory(self.term).unclean
        if begun := [r for r in records if isinstance(r, ControllerChanged)]:
            shown = self.term.objects.clusters.conditions(self.term.key)
            unhealthy.begin(new, now_ms)
            self._show_restore(begun[-1], new, shown)
            unclean.begin(new, shown, now_ms, self._found_log)
            self._found_log = None
        leaderless = unhealthy.update(old, new, records, now_ms)
        unclean.update(records, happened, now_ms)
        for occurrence in happened:
            self._tell(occurrence)
        for topic_id in {r.topic_id for r in records if hasattr(r, "topic_id")}:
            self._mark_topic(new, topic_id, urgent=topic_id in leaderless)
        if any(isinstance(r, BrokerUnfenced | MembersChanged | TopicRemoved) for r in records):
            for key in topics_of(self.term).refusals:
                self._queue.add(Work(Task.TOPIC, key))
        if any(isinstance(r, MEMBERSHIP) for r in records):
            self._queue.add(Work(Task.CLUSTER, self.term.key))
        brokers_changed(self.effects, records, now_ms)
        self._mark(self._target)

    def _count(self, old: ClusterImage, new: ClusterImage, records: tuple[Record, ...]) -> None:
        key, counters = self.term.key, self._parts.metrics.commits
        changes = isr_changes(old, new, records)
        self._departures.add(old, changes.shrinks)
        counters.joined_isrs(key, changes.joined)
        counters.elected(key, leader_changes(old, records), unclean_elections(records))
        self._requests.committed(old, new, records)
        for fenced in fencings(records):
            counters.fenced(key, fenced)

    # --- status ---------------------------------------------------------------------------------

    def _mark(self, target: Target, *, urgent: bool = False) -> None:
        """Have the status writer write the status of `target`, which may have changed. For the
        LogCluster this happens a second later, once for all requests until then, since its status
        counts all partitions."""
        if target.kind is not LOG_CLUSTERS:
            self._writer.mark(target, urgent=urgent)
        elif self._cluster_due is None:
            loop = asyncio.get_running_loop()
            self._cluster_due = loop.call_later(CLUSTER_STATUS_MS / 1000, self._mark_cluster)

    def _mark_topic(self, image: ClusterImage, topic_id: UUID, *, urgent: bool = False) -> None:
        known = image.topics.get(topic_id)
        if known is not None and known.object is not None:
            target = Target(TOPICS, known.object.namespace, known.object.name)
            self._mark(target, urgent=urgent)

    def _mark_cluster(self) -> None:
        self._cluster_due = None
        self._writer.mark(self._target)

    async def _say_last(self, outcome: Outcome) -> None:
        """If the controller cannot use its metadata log, write the reason into the LogCluster's
        status before the term ends, and an Event if the reason is new. Does nothing if the
        controller was stopped, was deposed, or handed over."""
        refusal = self.controller.stalled
        if outcome in (Outcome.STALLED, Outcome.TOO_NEW) and refusal is not None:
            message = refusal.message + way_out(self.term.key, self.controller.choice)
            why = (refusal.reason, message)
            cause = Cause(reason=refusal.reason, message=message, serves=False)
            shown = self.term.objects.clusters.conditions(self.term.key)
            known = why == self._stalled_for or any(
                one.type == "Ready" and (one.reason, one.message) == why for one in shown
            )
            await self._say(StallSource.CONTROLLER, cause)
            if not known:
                self._stalled_for = why
                self._tell(Occurrence(key=why[0], reason=why[0], message=why[1], warning=True))
                await self._events.flush()


def _history_of(parts: Parts, key: Key, cluster_id: UUID) -> HistoryKeeper | None:
    if parts.history is None:
        return None

    def agreed_ms() -> int:
        """Return the earlier time of this host's clock and the API server's: a clock that is ahead
        would end the whole history."""
        now_ms, told_ms = parts.now_ms(), parts.kube.answered_ms
        return now_ms if told_ms is None else min(now_ms, told_ms)

    return HistoryKeeper(parts.history(key, cluster_id), cluster_id, parts.now_ms, agreed_ms)


def _show_inside(parts: Parts, cluster_id: UUID, identity: InsideIdentity) -> None:
    if parts.server.inside is not None:
        parts.server.inside.show(cluster_id, identity)

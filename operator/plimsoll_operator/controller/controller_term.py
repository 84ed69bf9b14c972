"""One cluster's controller: opens its metadata log, takes over, decides, commits, answers.

The server calls `request` for brokers, and reconcilers call it for objects;
`plimsoll_core.controller` decides. A term begins with a committed `ControllerChanged` and ends at
the first failure of the log, when everything uncommitted is dropped. Speculative state never leaves
the process, and no answer is based on it before its commit. Source: ARCHITECTURE.md, "The
controller" and "The metadata log lives on the Kubernetes API".
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import replace
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID

from plimsoll_core.cluster.model import ClusterImage, HistoryRestored, Partition
from plimsoll_core.cluster.record_versions import RESTORES_SINCE, TERMS_SINCE
from plimsoll_core.cluster.records import RESTORED_CAUSE, ControllerChanged, Record
from plimsoll_core.controller.brokers.dismissed_copies import logs_to_keep
from plimsoll_core.controller.decide import decide
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import VolatileState, unsee
from plimsoll_core.controller.kernel.voluntary_work import ALWAYS, Hours
from plimsoll_core.controller.partitions.unclean_recovery import Outlook, outlook
from plimsoll_core.errors import Reason
from plimsoll_core.ids import BrokerId, ControllerEpoch
from plimsoll_core.messages.brokers import DismissCopy
from plimsoll_core.messages.metadata_copy import CopyWanted, OfferMetadataCopy
from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataUpdate
from plimsoll_core.messages.requests import (
    Activated,
    Answer,
    BrokerProvenDead,
    Done,
    Heartbeat,
    Refused,
    RegisterBroker,
    Request,
    Tick,
)
from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.control_failures import DecisionFailed
from plimsoll_operator.controller.client_turns import ClientTurns, client_of
from plimsoll_operator.controller.commit_queue import (
    Committer,
    Journal,
    LogUnusable,
    Restored,
    Subscriber,
    TermEnded,
)
from plimsoll_operator.controller.controller_options import ControllerOptions
from plimsoll_operator.controller.controller_stats import ControllerStats
from plimsoll_operator.controller.decision_clock import Clock, tick_forever
from plimsoll_operator.controller.drill_orders import DrillOrders
from plimsoll_operator.controller.metadata_regression_claims import (
    Claims,
    is_dismissed,
    is_foreign,
)
from plimsoll_operator.controller.metadata_restoration import (
    BackupOffer,
    Restoration,
    read_in_time,
)
from plimsoll_operator.controller.metadata_tail import MetadataTail, update_for
from plimsoll_operator.controller.refusals import (
    NOT_LEADING,
    answered,
    dismissed,
    not_controller,
    refused,
    too_new,
    unusable,
)
from plimsoll_operator.controller.restore_decision import NotRestored, Restore, StoredLog
from plimsoll_operator.controller.snapshot_writing import Snapshotter
from plimsoll_operator.metalog.interface import (
    AppendConflict,
    MetadataLog,
    MetadataLogError,
    SnapshotRequired,
    UnknownRecord,
)
from plimsoll_process.hang_watch import is_starved
from plimsoll_process.waits import cancelled, heard, set_within

NOT_ACTIVE = "This operator is not the cluster's active controller; ask another operator."


class Outcome(Enum):
    """Reason for which `Controller.run` returned."""

    STOPPED = "stopped"
    DEPOSED = "another controller wrote to the metadata log"
    HANDED_OVER = (
        "half of the brokers went silent at once; another operator takes over to confirm it"
    )
    STALLED = "the metadata log went back in time"
    TOO_NEW = "a newer release has written to the metadata log"


T = TypeVar("T")
logger = logging.getLogger("plimsoll.controller")

TAKE_OVER_ATTEMPTS = 5
ACTIVATE_AGAIN_MS = 200
STOP_MS_MAX = 2_000
STARVED_MS = 60_000
"""For how many milliseconds a controller counts as starved of processor time after a tick interval
in which `is_starved` holds. A starved controller does not hand over: the next controller would
observe the same, and each take-over costs processor time that is missing. It decides by its own
observation, one session timeout later (`fencing` of the core)."""


class _HandOver(Exception):
    """Raised to end the term if many brokers fell silent at once, so that another operator takes
    over and checks whether those brokers are silent to it too."""


class _Regressed(Exception):
    """Raised if a broker holds committed metadata that this log lacks."""


class _Emptied(_Regressed):
    """Raised if the log is empty although the brokers `expected` have volumes of this cluster, or
    with none if there may be a backup."""

    def __init__(self, expected: frozenset[BrokerId]) -> None:
        what = (
            "there may be a backup. The operator looks for it and restores the log from it by "
            "itself"
        )
        if expected:
            volumes = f"volumes of {brokers_text(sorted(expected))} exist"
            what = (
                f"{volumes}. The operator restores the log by itself from their copies of it, so "
                "start brokers that are down"
            )
        super().__init__(
            f"The metadata log is empty, but {what}. Until the log is restored, the controller "
            "commits no changes; running brokers serve clients."
        )
        self.expected = expected


class Controller:
    """The controller of one cluster: takes over its metadata log, decides requests, commits and
    answers. `run` is its only task; all other methods are called from the same event loop."""

    def __init__(
        self,
        *,
        cluster_id: UUID,
        name: str,
        log: MetadataLog,
        settings: Settings,
        identity: str,
        options: ControllerOptions | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.name = name
        self.options = options or ControllerOptions()
        self.stats = ControllerStats()
        self.stalled: Refused | None = None
        # Why the log was not restored in the last run, and what a person may confirm.
        self.not_restored: NotRestored | None = None
        # The restore that no term has committed yet.
        self._just_restored: Restore | None = None
        # Outcome of the last `run`; None before the first one has returned and while one runs.
        self.outcome: Outcome | None = None
        self._settings = settings
        # Tells when voluntary work may begin; asked for each decision.
        self.hours: Callable[[], Hours] = lambda: ALWAYS
        self._identity = identity
        self._clock = Clock()
        journal = Journal(log, cluster_id, self._clock.now_ms, self.options.on_open)
        self._committer = Committer(journal, self._clock, self.stats, self._never_happened)
        self._clients = ClientTurns()
        self.soft = VolatileState(topic_id_key=self.options.topic_id_key)
        self._log = log
        self._restoration: Restoration | None = None
        # True once every broker with a volume has shown that it holds no metadata.
        self._begins_anew = False
        # Set while brokers may reach this controller: it is active, or restores its log.
        self._reachable = asyncio.Event()
        self._claims = Claims(
            self._clock, claim_ms=self.options.claim_ms, listen_ms=self.options.listen_ms
        )
        self._ended: asyncio.Future[None] | None = None
        # Set by `stop`, until `run` has returned.
        self._stopping = asyncio.Event()
        # Set while the controller is active, which nothing else says: a task that finds it inactive
        # and waits for it must never get an answer at once.
        self._activated = asyncio.Event()
        self._opinion_until_ms = 0
        # `ControllerOptions.waited_ms` at the last tick.
        self._waited_ms = 0
        # Until this time the process is starved of processors, so another controller would observe
        # the same and no hand-over is made.
        self._starved_until_ms = 0
        self._background: asyncio.Task[None] | None = None
        self.snapshotter = Snapshotter(self, log)
        self.drill_orders = DrillOrders(self._clock.now_ms)

    # --- what others read ---------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """Return the settings by which decisions are made now, with the hours of this instant."""
        hours = self.hours()
        if self.image.hibernated and not hours.hibernated:
            hours = replace(hours, hibernated=True)
        if hours != self._settings.hours:
            self._settings = replace(self._settings, hours=hours)
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def image(self) -> ClusterImage:
        """Return the committed image."""
        return self._committer.queue.committed

    @property
    def now_ms(self) -> int:
        """Return the time on the clock of decisions, in milliseconds (`decision_clock`)."""
        return self._clock.now_ms()

    def outlook(self, partition: Partition) -> Outlook:
        """Return why the partition is unhealthy, and the brokers that it waits for, by the
        committed image and by what brokers have reported."""
        now_ms = self._clock.now_ms()
        turn = DecisionContext(
            image=self.image, soft=self.soft, now_ms=now_ms, settings=self.settings
        )
        return outlook(turn, partition)

    @property
    def active(self) -> bool:
        """Return True between a completed take-over and the end of the term."""
        return self._activated.is_set()

    @property
    def epoch(self) -> ControllerEpoch:
        return self.image.controller_epoch

    @property
    def tail(self) -> MetadataTail:
        """Return the newest committed batches, as kept for the brokers' metadata streams."""
        return self._committer.tail

    @property
    def waiting(self) -> int:
        """Return the number of decisions that are not committed yet."""
        return self._committer.queue.queued

    @property
    def clients_waiting(self) -> int:
        """Return the number of clients' requests that wait for their turn to be decided."""
        return self._clients.waiting

    @property
    def unconfirmed(self) -> bool:
        """Return True if nothing has proven within the last `confirmed_ms` that this is still the
        active controller. Its answers then extend no broker's lease."""
        if self.options.always_confirmed:
            return False
        return self._clock.now_ms() - self._committer.confirmed_at_ms > self.options.confirmed_ms

    def confirm(self, started_ms_ago: int = 0) -> None:
        """Record that this was the active controller `started_ms_ago` milliseconds ago, when the
        call began that has now renewed the operator's Lease."""
        self._committer.confirm(started_ms_ago)

    def subscribe(self, callback: Subscriber) -> None:
        """Call `callback` after each commit, with (image before, image after, records). It must not
        block."""
        self._committer.subscribers.append(callback)

    async def wait_active(self) -> None:
        """Wait until the controller has taken over. Waits forever if it never does."""
        await self._activated.wait()

    async def wait_reachable(self) -> None:
        """Wait until the controller has taken over, or restores its log from brokers' copies."""
        await self._reachable.wait()

    @property
    def choice(self) -> str:
        """Return the history that a person may confirm to restore, if the last run ended for want
        of it."""
        return "" if self.not_restored is None else self.not_restored.choice

    @property
    def restores(self) -> bool:
        """Return True while the metadata log is being restored from brokers' copies."""
        return self._restoration is not None

    # --- requests -----------------------------------------------------------------------------

    def hear_restoring(self, request: Request, controller_epoch: ControllerEpoch) -> Refused:
        """Note what a broker reports while the metadata log is being restored, and return the
        refusal that has it offer its copy of the metadata."""
        assert self._restoration is not None, "asked first"
        assert self.stalled is not None, "a log that is restored is not used"
        self._restoration.hear(request, controller_epoch)
        return self.stalled

    def look_at_choice(self) -> None:
        """Have a restore that waits for brokers decide again, as a person may have confirmed a
        history. Called when the LogCluster has changed."""
        if self._restoration is not None:
            self._restoration.look_again()

    async def offered(self, offer: OfferMetadataCopy) -> CopyWanted:
        """Return what is wanted of the copy that a broker offers, or of its rest."""
        if self._restoration is None:
            return CopyWanted()
        return await self._restoration.offered(offer)

    async def request(self, request: Request) -> Answer:
        """Decide a request as `submit` does, and wait for its answer."""
        return await self.submit(request)

    def submit(self, request: Request) -> asyncio.Future[Answer]:
        """Decide a request at once and queue its records. The future returns the answer once
        everything queued up to the decision is committed. It returns a refusal if this is not the
        active controller, if the term ends first, or if the request reports metadata that
        contradicts this log, which ends the term. Raises `DecisionFailed` after a bug, which ends
        the term too."""
        if not self.active:
            self._claims.hear_between_terms(request)
            if self._restoration is not None:
                self._restoration.hear(request, ControllerEpoch(0))
            return answered(self.stalled or not_controller(NOT_ACTIVE))
        if (dismissal := self._dismissal(request)) is not None:
            return dismissal
        if not self._consistent(request):
            return answered(
                not_controller(
                    "The controller checks its metadata log, because a broker reported other "
                    "metadata; retry."
                )
            )
        if isinstance(request, BrokerProvenDead):
            text = (
                "LogCluster %s: the process of broker %d has ended, so the controller fences "
                "the broker at once: %s"
            )
            logger.info(text, self.name, request.broker_id, request.evidence)
        return self._decide(request)

    def _decide(self, request: Request) -> asyncio.Future[Answer]:
        if client_of(request) is not None and not self._clients.free:
            return asyncio.ensure_future(self._clients.slices(request, None, self._decided))
        decided = self._decided(request)
        if decided is None:
            return answered(not_controller(f"{NOT_LEADING}; retry."))
        committed, again = decided
        if again is None:
            return committed
        return asyncio.ensure_future(self._clients.slices(again, committed, self._decided))

    def _decided(self, request: Request) -> tuple[asyncio.Future[Answer], Request | None] | None:
        """Decide a request and queue its records. Return (future of the answer, follow-up request
        or None). Return None if this is not the active controller any more, or if the decision is
        to hand over to another one, which ends the term; while this process is starved of processor
        time it decides by itself instead. Raises `DecisionFailed` after a bug, which ends the term
        too."""
        if not self.active:
            return None
        now_ms, queue = self._clock.now_ms(), self._committer.queue
        try:
            decision = decide(queue.speculative, self.soft, request, now_ms, self.settings)
            if decision.hand_over and now_ms >= self._starved_until_ms:
                self._end(_HandOver())
                return None
            before = queue.bytes_queued
            committed = queue.add(decision.records, decision.answer, decision.image)
            if client_of(request) is not None:
                self._clients.queued(queue.bytes_queued - before, committed)
        except Exception as error:  # a bug in a decision must end the controller, not hide
            self._end(error)
            raise DecisionFailed(
                "the controller met an internal error when it decided on the request "
                f"{type(request).__name__}; please report it: {error!r}"
            ) from error
        return committed, decision.again

    def _never_happened(self, records: tuple[Record, ...]) -> None:
        unsee(self.soft, self.image, records, self._clock.now_ms())

    def _dismissal(self, request: Request) -> asyncio.Future[Answer] | None:
        """Return the answer to a broker that reports the end of a copy which a person gave up, or
        None for any other request. The broker gives up records by it, so only a controller tells it
        that has proven to be the active one, and only if its log lacks that end."""
        known = self.image.dismissed
        if not is_dismissed(known, request) or not is_foreign(self.tail, request):
            return None
        if self.unconfirmed:
            return answered(
                not_controller(
                    "This operator may no longer be the active controller, so it did not carry out "
                    "the request; retry."
                )
            )
        assert isinstance(request, RegisterBroker | Heartbeat), "it reports a position"
        return asyncio.ensure_future(self._dismissed(request.broker_id))

    async def _dismissed(self, broker_id: BrokerId) -> Answer:
        """Commit that the logs which the broker is to set aside do not count as complete, then
        return the refusal that tells it so. Return another refusal if that cannot be committed."""
        prepared = await self._decide(DismissCopy(broker_id=broker_id))
        if isinstance(prepared, Refused):
            return prepared
        return dismissed(logs_to_keep(self.image, broker_id))

    def _consistent(self, request: Request) -> bool:
        """Return True if the request reports no metadata position of a broker, or one that can come
        from this log. Otherwise end the term and return False."""
        claim = self._claims.hear(request, self.tail, self.epoch)
        if claim is None:
            return True
        if claim.controller_epoch > self.epoch:
            self._end(
                AppendConflict(
                    "a broker already follows another operator as its controller, with the newer "
                    f"epoch {claim.controller_epoch}"
                )
            )
        else:
            self._end(TermEnded("a broker holds metadata that the metadata log lacks"))
        return False

    async def commit_own(self, records: tuple[Record, ...]) -> Answer:
        """Commit records of the controller itself, which need no decision (`SnapshotTaken`). Return
        Done after the commit. Return a refusal if this is not the active controller, if the records
        are too large, or if the term ends first."""
        if not self.active:
            return not_controller(NOT_ACTIVE)
        return await self._committer.queue.add(records, Done())

    async def fetch_metadata(self, fetch: FetchMetadata) -> MetadataUpdate | Refused:
        """Return the metadata batches from offset `fetch.offset` on, or a snapshot of the image if
        the oldest of them are no longer kept. Without new metadata wait as long as the request
        allows, then return an update without batches. Return a refusal if this is not the active
        controller, or the broker's position contradicts this log."""
        if not self.active:
            return self.stalled or not_controller(NOT_ACTIVE)
        return await update_for(fetch, self)

    # --- the life of a controller -------------------------------------------------------------

    async def run(self) -> Outcome:
        """Take over and serve, and take over again, after a growing pause, if the metadata log
        fails for now. Return the reason once the controller was stopped, was deposed, handed over,
        or cannot use the log. Raises a bug. May be called again afterwards."""
        self.outcome = None
        try:
            self.outcome = await self._run()
            return self.outcome
        finally:
            # Cleared only here: a stop before the first step is meant for this run.
            self._stopping.clear()

    async def _run(self) -> Outcome:
        backoff_ms = self.options.backoff_ms
        while not self._stopping.is_set():
            try:
                await self._take_over()
                backoff_ms = self.options.backoff_ms
                await self._serve()
            except AppendConflict as error:
                logger.warning(
                    "LogCluster %s: another operator wrote to the metadata log, so this one "
                    "stops leading the cluster; one of them takes over by itself: %s",
                    *(self.name, error),
                )
                return Outcome.DEPOSED
            except _HandOver:
                # The next controller, in any process, judges for itself.
                self._opinion_until_ms = self._clock.now_ms() + self.options.opinion_ms
                return Outcome.HANDED_OVER
            except (_Regressed, LogUnusable, UnknownRecord) as error:
                newer = isinstance(error, UnknownRecord)
                why = too_new(error) if newer else unusable(error)
                self.stalled = why
                logger.error(
                    "LogCluster %s: this operator cannot lead the cluster; brokers serve as "
                    "before, and the condition Stalled of the LogCluster says what happens next: "
                    "%s",
                    *(self.name, why.message),
                )
                if newer:
                    return Outcome.TOO_NEW
                if not await self._restored(error, why):
                    return Outcome.STOPPED if self._stopping.is_set() else Outcome.STALLED
            except (MetadataLogError, OSError, TermEnded) as error:
                if not self._stopping.is_set():
                    logger.warning(
                        "LogCluster %s: an error stopped this controller (%r); it reads the "
                        "metadata log again and continues by itself",
                        *(self.name, error),
                    )
                self._drop(f"{NOT_LEADING}: {error}")
                await set_within(self._stopping, backoff_ms / 1000)
                backoff_ms = min(backoff_ms * 2, self.options.backoff_ms_max)
            finally:
                self._drop(f"{NOT_LEADING}; retry.")
        return Outcome.STOPPED

    async def _restored(self, error: Exception, why: Refused) -> bool:
        """Restore the metadata log, which cannot be used by `error`, from the brokers' copies.
        Return True if it was restored and can be opened; otherwise `stalled` says why not."""
        if why.known_reason is not Reason.MetadataRegressed:
            return False
        expected = error.expected if isinstance(error, _Emptied) else frozenset()
        options = self.options.empty_log if expected else self.options.restoration
        self.options.on_restoring(why.message)
        self._restoration = restoration = Restoration(
            self.cluster_id,
            self._log,
            self._clock,
            self.options.restore_choice,
            replace(
                options,
                read_backup=self.options.read_backup,
                point_asked=self.options.point_asked,
            ),
            expected,
        )
        try:
            log = await self._stored(error)
            self._reachable.set()
            found = await self._unless_stopped(restoration.run(log))
            if isinstance(found, Restore):
                self.stalled = None
            self._begins_anew = restoration.holds_nothing
        except (MetadataLogError, OSError) as failure:
            text = f"{why.message} The metadata log could not be restored: {failure}."
            self.stalled, self.not_restored = refused(Reason.MetadataRegressed, text), None
            return False
        finally:
            self._restoration = None
            self._reachable.clear()
        if isinstance(found, Restore):
            self._just_restored = found
            return True
        if self._begins_anew:
            logger.info(
                "LogCluster %s: there is no metadata log yet, and no broker has a volume with an "
                "earlier one, so the controller begins a new log",
                self.name,
            )
            return True
        if found is not None:
            self.stalled = refused(Reason.MetadataRegressed, f"{why.message} {found.sentence}")
            self.not_restored = found
        return False

    async def _stored(self, error: Exception) -> StoredLog:
        if isinstance(error, _Regressed):
            return StoredLog(opened=await self._log.open())
        return StoredLog(
            batches=await self._log.remains(),
            damage=str(error),
            snapshot=await self._log.newest_snapshot(),
        )

    async def _unless_stopped(
        self, work: Coroutine[Any, Any, Restore | NotRestored]
    ) -> Restore | NotRestored | None:
        """Return the result of `work`, or None if the controller is stopped first."""
        working, stopping = (
            asyncio.ensure_future(work),
            asyncio.ensure_future(self._stopping.wait()),
        )
        try:
            watched: set[asyncio.Future[Any]] = {working, stopping}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            for task in (working, stopping):
                await cancelled(task)

    async def stop(self) -> None:
        """Stop deciding at once, wait up to `STOP_MS_MAX` milliseconds for queued decisions to be
        committed, drop the others, and end `run`. A take-over that is under way ends without a
        decision."""
        self._stopping.set()
        self._activated.clear()
        # Callers clean up after a cancellation: there `asyncio.timeout` of Python 3.11.2 raises
        # CancelledError.
        loop = asyncio.get_running_loop()
        until_s = loop.time() + STOP_MS_MAX / 1000
        try:
            while self._committer.queue.queued and self._ended and not self._ended.done():
                if loop.time() >= until_s:
                    break
                await asyncio.wait([self._ended], timeout=0.02)
        finally:
            self._end(TermEnded("stopped"))

    def _drop(self, why: str) -> None:
        self._activated.clear()
        self._reachable.clear()
        self._committer.queue.drop(why)

    def _end(self, error: Exception) -> None:
        """End the present term by the exception `error`, which `run` handles."""
        self._activated.clear()
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # mark as retrieved: a cancelled `run` never reads it

    async def _take_over(self) -> None:
        """Begin a term: read the log to its end, and commit `ControllerChanged` with a higher epoch
        in a batch of its own. If another controller wrote in between, read again, at most
        `TAKE_OVER_ATTEMPTS` times in all. Raises the errors of `Committer`, and `_Regressed`."""
        self._ended = asyncio.get_running_loop().create_future()
        began_ms = self._clock.now_ms()
        for attempts_left in reversed(range(TAKE_OVER_ATTEMPTS)):
            restored = await self._committer.open()
            if not _begins_with(restored, self._just_restored):
                self._just_restored = None
            given_up = () if self._just_restored is None else self._just_restored.dismissed
            self._claims.dismiss((*self.image.dismissed, *given_up))
            await self._settle_claims(restored.tail)
            is_empty = self.image.next_offset == 0 and not self._begins_anew
            if is_empty:
                await self._refuse_emptied()
            highest = max(self.epoch, restored.epoch, self._claims.highest_epoch)
            epoch = ControllerEpoch(highest + 1)
            change = ControllerChanged(
                cause=RESTORED_CAUSE if restored.fresh else "TakeOver",
                controller_epoch=epoch,
                identity=self._identity,
                term_id=_new_term_id(self.image),
                restored=self._restored_row() if restored.fresh else None,
            )
            try:
                await self._committer.commit_alone((change,))
                break
            except (AppendConflict, SnapshotRequired) as error:
                # Another controller wrote after our read: during a take-over, read on.
                if attempts_left == 0:
                    raise
                if isinstance(error, SnapshotRequired):
                    await self.snapshotter.make_room(restored, self._committer)
        self._begins_anew = False  # the log has a record from now on: an empty one lost it
        self.soft = VolatileState(topic_id_key=self.options.topic_id_key)
        if restored.fresh:
            await self._skip_lost()
        self.stalled, self.not_restored, self._just_restored = None, None, None
        if self._stopping.is_set():
            raise TermEnded("stopped")
        self._reachable.set()
        opinion = self._clock.now_ms() < self._opinion_until_ms
        self._opinion_until_ms = 0
        activation = Activated(cluster_name=self.name, second_opinion=opinion)
        # Its first turn is before those of tasks that wait for the activation.
        self._background = asyncio.ensure_future(self._activate(activation))
        self._activated.set()
        self.stats.took_over(self._clock.now_ms() - began_ms)
        text = (
            "LogCluster %s: this operator is now the active controller, with epoch %d, at "
            "metadata offset %d"
        )
        logger.info(text, self.name, self.epoch, self.image.next_offset)

    async def _refuse_emptied(self) -> None:
        """Raise `_Emptied` if the log, which is empty, had records, or the error that ended the
        term meanwhile."""
        options = self.options
        expected = await options.expects_copies()
        offer: BackupOffer | None = None
        if not expected and options.backup_asked():
            reading = read_in_time(options.read_backup, options.point_asked)
            offer = await self._unless_ended(reading)
        if expected or offer is not None:
            raise _Emptied(expected)

    async def _skip_lost(self) -> None:
        """Commit what the first term of a restored log decides before all else. Raise an error if
        that fails; the next term finds the log as fresh as before."""
        request, now_ms = Activated(restored=True), self._clock.now_ms()
        if records := decide(self.image, self.soft, request, now_ms, self.settings).records:
            await self._committer.commit_alone(records)

    def _restored_row(self) -> HistoryRestored | None:
        """Return what the log tells of its restore; nothing before it can. If another term restored
        it and ended at once, that the log was restored is all that is known, besides what the log
        tells already."""
        if self.image.metadata_version < RESTORES_SINCE:
            return None
        if self._just_restored is not None:
            return self._just_restored.row(self._clock.now_ms())
        known = self.image.restored
        if known is not None and known.end_offset >= self.tail.start:
            return known
        return HistoryRestored(at_ms=self._clock.now_ms(), end_offset=self.tail.start)

    async def _activate(self, activation: Activated) -> None:
        """Decide the activation until it is committed. It finishes what the previous term left
        undone, and no later request does so."""
        while self.active:
            if not isinstance(await self._decide(activation), Refused):
                return
            await asyncio.sleep(ACTIVATE_AGAIN_MS / 1000)

    async def _settle_claims(self, tail: MetadataTail) -> None:
        """Check that the log holds all metadata that brokers have reported; wait for the repetition
        of old reports first (`Claims.settle`). Raise `_Regressed` if the log lacks some, or the
        error that ended the term meanwhile."""
        if (against := await self._unless_ended(self._claims.settle(tail))) is not None:
            raise _Regressed(against)

    async def _unless_ended(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`. Raise the error that ended the term if that comes first."""
        assert self._ended is not None
        working = asyncio.ensure_future(work)
        working.add_done_callback(heard)
        try:
            watched: set[asyncio.Future[Any]] = {working, self._ended}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done():
                self._ended.result()
            return working.result()
        finally:
            await cancelled(working)

    async def _serve(self) -> None:
        """Run the term's tasks until one fails or the term is ended, and raise that error."""
        assert self._ended is not None
        workers = [
            asyncio.ensure_future(self._committer.run_forever(self.snapshotter.urgent)),
            asyncio.ensure_future(tick_forever(self._clock, self.options.tick_ms, self._tick)),
            asyncio.ensure_future(self.snapshotter.run_forever()),
        ]
        try:
            await asyncio.wait([self._ended, *workers], return_when=asyncio.FIRST_COMPLETED)
            for task in (*workers, self._ended):
                if task.done():
                    task.result()
        finally:
            self._activated.clear()
            helpers = [*workers, *([self._background] if self._background else [])]
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)

    def _tick(self, late_ms: int) -> None:
        self.stats.loop_lag(late_ms)
        before_ms, self._waited_ms = self._waited_ms, self.options.waited_ms()
        waited_ms = self._waited_ms - before_ms
        if is_starved(waited_ms, self.options.tick_ms + late_ms):
            self._starved_until_ms = self._clock.now_ms() + STARVED_MS
        if self.active:
            late_ms = max(late_ms, waited_ms)
            self._decide(Tick(late_ms=late_ms)).add_done_callback(heard)


def _begins_with(log: Restored, restore: Restore | None) -> bool:
    """Return True if the log is the one that this restore wrote: it begins at the end of the
    restored history. Another operator may have restored another one since."""
    if restore is None:
        return False
    end = restore.image.next_offset, restore.nonce
    return log.fresh and (log.tail.start, log.tail.start_nonce) == end


def _new_term_id(image: ClusterImage) -> str:
    return secrets.token_hex(8) if image.metadata_version >= TERMS_SINCE else ""

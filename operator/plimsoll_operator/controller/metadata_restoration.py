"""Restores a metadata log that lost committed records from the brokers' copies, or a backup.

`controller_term` runs one `Restoration` when its log cannot be used, and passes it what brokers say
meanwhile. It hears the brokers' positions, asks for the copy that reaches furthest, and no other
at the same time, has `restore_decision` decide, and writes the history into the log. The backup is
read only once no broker's copy will do, or if a person asks for one of its points. It commits
nothing else; a process that ends half-way leaves a log that the next one restores again. Source:
docs/protocol.md 3.16.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.metadata_copy import (
    COPY_BYTES_MAX,
    PART_BYTES_MAX,
    CopyWanted,
    OfferMetadataCopy,
)
from plimsoll_core.messages.requests import Heartbeat, LogPosition, RegisterBroker
from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.controller.commit_queue import Restored, replay
from plimsoll_operator.controller.decision_clock import Clock
from plimsoll_operator.controller.log_agreement import Agreement, agreement
from plimsoll_operator.controller.metadata_regression_claims import EPOCHS_AHEAD_MAX
from plimsoll_operator.controller.restore_decision import (
    CONTRADICTIONS,
    NotRestored,
    Offered,
    ProvenCopy,
    Restore,
    RestoreCase,
    StoredLog,
    Unsure,
    decide_restore,
    offer_of,
    prove_copy,
)
from plimsoll_operator.metalog.interface import MetadataLog, RestoredHistory
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.controller")

EPOCHS_ABOVE = 1_000
"""By how much a restored history's controller epoch is above all that anybody named: brokers that
did not answer may know newer controllers."""
PATIENCE_S = 10.0
"""Seconds that one copy may take from its request to its next part."""
BACKUP_S = 300.0
"""Seconds that a backup may take to be read. Brokers' new answers are not judged meanwhile."""
WAITS = frozenset({Unsure.NO_COPY, Unsure.AWAY, Unsure.ONE_HOLDER, Unsure.OTHER_HISTORY})
"""Reasons that more answers of brokers can remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOffer:
    """What a backup offers. `copy`: its proven copy; None if `why`, a sentence, says why it has
    none; `asked`: True if a person asks for this point, whatever brokers hold."""

    copy: ProvenCopy | None = None
    why: str = ""
    asked: bool = False


ReadBackup = Callable[[], Awaitable[BackupOffer | None]]
"""Function that reads the backup; it returns None if there is none."""


async def no_backup() -> BackupOffer | None:
    return None


async def read_in_time(read: ReadBackup, point_asked: Callable[[], bool]) -> BackupOffer | None:
    """Read the backup, for at most `BACKUP_S`. After that time the offer only says so."""
    try:
        async with asyncio.timeout(BACKUP_S):
            return await read()
    except TimeoutError:
        why = (
            f"The backup could not be read within {BACKUP_S:.0f} seconds, so the operator does not "
            "restore the metadata log from it now."
        )
        return BackupOffer(why=why, asked=point_asked())


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorationOptions:
    """`quiet_ms`: how long to wait for another broker's answer; `all_ms`: the longest time to wait
    for answers in all; `read_backup`: reads the cluster's backup; `point_asked`: returns True if a
    person asks for one of its points."""

    quiet_ms: int = 5_000
    all_ms: int = 20_000
    read_backup: ReadBackup = no_backup
    point_asked: Callable[[], bool] = lambda: False


@dataclass(slots=True, kw_only=True)
class _Transfer:
    """A copy that is being received from a broker."""

    offer: OfferMetadataCopy
    received: bytearray = field(default_factory=bytearray)


class Restoration:
    """One attempt to restore a metadata log. `run` is its task; `hear` and `offered` pass it what
    brokers send. `confirmed`: returns the history that a person has confirmed, or an empty
    string."""

    def __init__(
        self,
        cluster_id: UUID,
        log: MetadataLog,
        clock: Clock,
        confirmed: Callable[[], str],
        options: RestorationOptions,
        expected: frozenset[BrokerId] = frozenset(),
    ) -> None:
        self._cluster_id = cluster_id
        self._log = log
        self._clock = clock
        self._confirmed = confirmed
        self._options = options
        self._expected = expected
        self._offer: BackupOffer | None = None
        # Brokers with a volume that was never used.
        self._unused: set[BrokerId] = set()
        self._offered: dict[BrokerId, Offered] = {}
        self._unproven: dict[BrokerId, str] = {}
        self._copy: ProvenCopy | None = None
        # Proven copies of histories that the one that reaches furthest contradicts.
        self._others: dict[BrokerId, ProvenCopy] = {}
        self._parked: dict[BrokerId, asyncio.Future[CopyWanted]] = {}
        self._offers: dict[BrokerId, OfferMetadataCopy] = {}
        self._transfer: _Transfer | None = None
        self._asked_at_ms = 0
        self._changed = asyncio.Event()
        self._heard_at_ms = clock.now_ms()
        self._replay: Restored | None = None
        # What the log says about a copy, and that copy.
        self._compared: tuple[ProvenCopy, Agreement] | None = None
        # The highest controller epoch that each broker has named; None: of requests without one.
        self._epochs: dict[BrokerId | None, int] = {}
        self._over = False

    @property
    def holds_nothing(self) -> bool:
        """Return True if every expected broker has said that its volume was never used, and there
        is no backup: there was no history."""
        return self._unused_alone and self._offer is None

    @property
    def _unused_alone(self) -> bool:
        return bool(self._expected) and self._unused >= self._expected

    # --- what brokers send ---------------------------------------------------------------------

    def hear(self, request: object, controller_epoch: int) -> None:
        """Note the position that a broker reports in a registration or heartbeat, and the highest
        controller epoch that it knows."""
        self._note_epoch(getattr(request, "broker_id", None), controller_epoch)
        if isinstance(request, RegisterBroker | Heartbeat) and request.position is not None:
            if isinstance(request, RegisterBroker) and request.volume_is_empty:
                self._unused.add(request.broker_id)
                self._changed.set()
            self._note(request.broker_id, request.position)

    async def offered(self, offer: OfferMetadataCopy) -> CopyWanted:
        """Note a broker's offer, or a part of its copy, and return what is wanted next; wait until
        that is known."""
        if self._over:
            return CopyWanted()
        self._note_epoch(offer.broker_id, offer.controller_epoch)
        self._note(offer.broker_id, offer.position, offer)
        if offer.data and (wanted := await self._part(offer)) is not None:
            return wanted
        if (former := self._parked.pop(offer.broker_id, None)) and not former.done():
            former.set_result(CopyWanted())
        future: asyncio.Future[CopyWanted] = asyncio.get_running_loop().create_future()
        self._parked[offer.broker_id], self._offers[offer.broker_id] = future, offer
        self._changed.set()
        try:
            return await future
        finally:
            if self._parked.get(offer.broker_id) is future:
                del self._parked[offer.broker_id]

    def _note(
        self, broker_id: BrokerId, position: LogPosition, offer: OfferMetadataCopy | None = None
    ) -> None:
        self._note_epoch(broker_id, position.controller_epoch)
        known = self._offered.get(broker_id)
        beyond = known.acted_beyond if known is not None and offer is None else False
        now = Offered(
            position=position,
            acted_beyond=beyond if offer is None else offer.acted_beyond,
            sends=offer is not None or (known is not None and known.sends),
        )
        if now == known:
            return
        self._offered[broker_id] = now
        self._heard_at_ms = self._clock.now_ms()
        self._changed.set()

    def _note_epoch(self, broker_id: BrokerId | None, epoch: int) -> None:
        self._epochs[broker_id] = max(self._epochs.get(broker_id, 0), epoch)

    async def _part(self, offer: OfferMetadataCopy) -> CopyWanted | None:
        """Take a part of the copy that was asked for, and return the request for the next. Return
        None once the copy is complete, or if nothing was asked of this broker."""
        transfer = self._transfer
        if transfer is None or transfer.offer.broker_id != offer.broker_id:
            return None
        follows = (
            offer.start == len(transfer.received) and offer.position == transfer.offer.position
        )
        if not follows or not 0 < offer.size <= COPY_BYTES_MAX:
            self._transfer = None
            self._changed.set()
            return None
        transfer.received += offer.data
        self._asked_at_ms = self._heard_at_ms = self._clock.now_ms()
        if len(transfer.received) < offer.size:
            return CopyWanted(start=len(transfer.received), length=PART_BYTES_MAX)
        self._transfer = None
        prove = partial(
            prove_copy,
            bytes(transfer.received),
            self._cluster_id,
            offer.broker_id,
            offer.position,
        )
        found = await asyncio.to_thread(prove)
        if isinstance(found, str):
            logger.warning(
                "the operator restores the metadata log, but cannot use broker %d's copy of it; "
                "it tries the other brokers' copies: %s",
                *(offer.broker_id, found),
            )
            self._unproven[offer.broker_id] = found
        else:
            self._unproven.pop(offer.broker_id, None)
            self._take(found)
        self._changed.set()
        return None

    def _take(self, copy: ProvenCopy) -> None:
        """Keep the proven copy that reaches furthest, and those that contradict it."""
        known = [one for one in self._others.values() if one.broker_id != copy.broker_id]
        if self._copy is not None and self._copy.broker_id != copy.broker_id:
            known.append(self._copy)
        first, *rest = sorted((copy, *known), key=lambda c: -c.image.next_offset)
        self._copy = first
        self._others = {
            one.broker_id: one
            for one in rest
            if one.broker_id is not None and _contradicts(first, one.position)
        }

    def look_again(self) -> None:
        """Decide again: a person may have confirmed a history."""
        self._changed.set()

    # --- the attempt -----------------------------------------------------------------------------

    async def run(self, log: StoredLog) -> Restore | NotRestored:
        """Hear brokers until the history to restore is certain or confirmed, write it into the log
        and return it. Return why it is not restored once no answer that would change that is to be
        expected. `log`: what is stored. Raises the errors of `MetadataLog.restore`."""
        try:
            decision = await self._decide(log)
            if isinstance(decision, Restore):
                await self._write(decision)
            return decision
        finally:
            self._over = True
            for future in self._parked.values():
                if not future.done():
                    future.set_result(CopyWanted())

    async def _decide(self, log: StoredLog) -> Restore | NotRestored:
        """Decide by what brokers have; where that does not do, by the backup."""
        decision = await self._by_brokers(log)
        if isinstance(decision, Restore) and (
            not self._options.point_asked() or self._confirmed() == decision.choice
        ):
            return decision
        self._offer = offer = await read_in_time(
            self._options.read_backup, self._options.point_asked
        )
        if offer is None:
            return decision
        asked = offer.asked and not self._was_restored(offer.copy)
        if isinstance(decision, Restore) and not asked:
            return decision
        if offer.copy is None:
            if isinstance(decision, Restore):  # a person asks for a point that there is not
                decision = NotRestored(reasons=(Unsure.BACKUP,), sentence="")
            return replace(decision, sentence=f"{decision.sentence} {offer.why}".strip())
        furthest = -1 if self._copy is None else int(self._copy.image.next_offset)
        if not asked and offer.copy.image.next_offset <= furthest:
            return decision
        log = await self._replayed(log)
        case = replace(self._case(log), copy=offer.copy, exact=asked)
        found = decide_restore(case)
        if isinstance(found, Restore):
            return found
        by_brokers = (offer_of(decision),) if isinstance(decision, Restore) else decision.choices
        return replace(found, choices=(*found.choices, *by_brokers))

    def _was_restored(self, backup: ProvenCopy | None) -> bool:
        """Return True if the history of the brokers began with this point of the backup: the
        annotation that asks for it was forgotten."""
        row = None if self._copy is None else self._copy.image.restored
        if row is None or backup is None or not row.from_backup:
            return False
        return (row.end_offset, row.digest) == (backup.image.next_offset, backup.digest)

    def _case(self, log: StoredLog) -> RestoreCase:
        return RestoreCase(
            offered=self._offered,
            copy=self._copy,
            others=self._others,
            unproven=self._unproven,
            log=log,
            confirmed=self._confirmed(),
            expected=self._expected,
            agreement=None if self._compared is None else self._compared[1],
        )

    async def _compare(self, log: StoredLog) -> None:
        """Compare the copy that reaches furthest with the log, once for each copy."""
        while log.opened is not None and (copy := self._copy) is not None:
            if self._compared is not None and self._compared[0] is copy:
                return
            found = await asyncio.to_thread(
                agreement, copy.image, copy.tail, log.opened, self._cluster_id
            )
            self._compared = (copy, found)

    async def _replayed(self, log: StoredLog) -> StoredLog:
        """Return the log with what it replays to. It is replayed once in an attempt."""
        if log.opened is None:
            return log
        if self._replay is None:
            self._replay = await asyncio.to_thread(replay, log.opened, self._cluster_id)
        return replace(log, replayed=self._replay)

    async def _by_brokers(self, log: StoredLog) -> Restore | NotRestored:
        began_ms = self._clock.now_ms()
        while True:
            self._changed.clear()
            self._ask()
            if self._copy is not None:
                log = await self._replayed(log)
                await self._compare(log)
            decision = decide_restore(self._case(log))
            if isinstance(decision, Restore):
                return decision
            if self._unused_alone:
                return decision
            now_ms = self._clock.now_ms()
            until_ms = min(
                began_ms + self._options.all_ms, self._heard_at_ms + self._options.quiet_ms
            )
            hopeless = not WAITS & set(decision.reasons) and self._transfer is None
            if now_ms >= until_ms or hopeless or self._all_sent():
                return decision
            await set_within(self._changed, (until_ms - now_ms) / 1000)

    def _all_sent(self) -> bool:
        """Return True if the log is empty, every broker that may hold metadata has offered its
        copy, or has said that it has none, and each copy that may change the decision was judged:
        nothing more is awaited."""
        copy = self._copy
        if not self._expected or self._transfer is not None:
            return False
        if copy is None:
            told = [self._offered.get(broker_id) for broker_id in self._expected]
            return all(one is not None and one.position.nonce is None for one in told)
        return all(self._has_sent(b, copy) for b in self._expected | set(copy.image.brokers))

    def _has_sent(self, broker_id: BrokerId, copy: ProvenCopy) -> bool:
        one = self._offered.get(broker_id)
        if one is None or one.position.nonce is None:
            return one is not None  # a broker without metadata offers no copy
        if not one.sends:
            return False
        have = self._others.get(broker_id)
        judged = broker_id in self._unproven or (have is not None and have.position == one.position)
        return judged or not _contradicts(copy, one.position)

    def _ask(self) -> None:
        """Ask for the copy that reaches furthest, unless it is here or on its way, then for those
        that contradict it. A broker that does not send it in time counts as one without a copy."""
        now_ms = self._clock.now_ms()
        if self._transfer is not None:
            if now_ms < self._asked_at_ms + PATIENCE_S * 1000:
                return
            self._transfer = None
        best = max(
            (b for b in self._parked if not self._parked[b].done() and self._is_wanted(b)),
            key=lambda b: (self._offers[b].position.applied_offset, -b),
            default=None,
        )
        if best is None:
            return
        self._transfer = _Transfer(offer=self._offers[best])
        self._asked_at_ms = now_ms
        self._parked[best].set_result(CopyWanted(start=0, length=PART_BYTES_MAX))

    def _is_wanted(self, broker_id: BrokerId) -> bool:
        position, copy = self._offers[broker_id].position, self._copy
        if broker_id in self._unproven or position.nonce is None:
            return False
        if copy is None or position.applied_offset > copy.image.next_offset:
            return True
        have = self._others.get(broker_id)
        return _contradicts(copy, position) and (have is None or have.position != position)

    def _highest_epoch(self, least: int) -> int:
        """Return the highest controller epoch that anybody named, at least that of the history,
        `least`. One that is implausibly far above it is ignored as forged: no later term could
        count on from it."""
        named = (one for one in self._epochs.values() if one <= least + EPOCHS_AHEAD_MAX)
        return max((least, *named))

    async def _write(self, restore: Restore) -> None:
        epoch = self._highest_epoch(int(restore.image.controller_epoch)) + EPOCHS_ABOVE
        history = RestoredHistory(
            image_bytes=await asyncio.to_thread(encode_image, restore.image),
            end_offset=restore.image.next_offset,
            nonce=restore.nonce,
            controller_epoch=epoch,
        )
        await self._log.restore(history)
        logger.warning(
            "the metadata log had lost records; the operator restored it up to offset %d from "
            "%s, and the next controller epoch is above %d; %s",
            *(restore.image.next_offset, source_text(restore), epoch),
            "newer changes may be missing: compare topics, users and partitions with what you "
            "expect"
            if restore.confirmed
            else "no change that a broker knew is missing, so nothing needs to be done",
        )


def source_text(restore: Restore) -> str:
    """Return for people where a restored history comes from."""
    if restore.from_backup:
        return "the backup"
    return f"the copies of {brokers_text(restore.from_brokers)}"


def _contradicts(copy: ProvenCopy, position: LogPosition) -> bool:
    return copy.standing(position) in CONTRADICTIONS

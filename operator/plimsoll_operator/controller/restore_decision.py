"""Decides if, and to which history, a metadata log that lost committed records is restored. Pure.

Brokers state their positions; the copy that reaches furthest is proven by `prove_copy`.
`decide_restore` restores by itself only if no decision can be lost that a broker has acted on;
otherwise it returns a `NotRestored` that says what is uncertain and what a person can confirm.
Source: docs/protocol.md 3.16.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from uuid import UUID

import msgspec

from plimsoll_core.cluster import invariants
from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.model import (
    ClusterImage,
    ControllerTerm,
    DismissedCopy,
    HistoryRestored,
)
from plimsoll_core.cluster.record_versions import RESTORES_SINCE, MetadataTooNew, read_records
from plimsoll_core.ids import BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.metadata_copy import CopyContent
from plimsoll_core.messages.requests import LogPosition
from plimsoll_core.phrasing import brokers_text, sentence_start
from plimsoll_operator.api.labels import RESTORE_FROM_BACKUP
from plimsoll_operator.controller.commit_queue import Restored, merged, replay, wholes
from plimsoll_operator.controller.history_differences import (
    given_up,
    only_holders,
    parted_records,
)
from plimsoll_operator.controller.log_agreement import Agreement, agreement
from plimsoll_operator.controller.metadata_regression_claims import EPOCHS_AHEAD_MAX
from plimsoll_operator.controller.metadata_tail import MetadataTail, Standing
from plimsoll_operator.metalog.interface import Batch, OpenedLog, SnapshotEnd

CONTENT_BYTES_MAX = 1024 * 1024 * 1024
"""Most bytes of a decompressed copy."""
DIGEST_LENGTH = 16
LATER_REPLICAS = "records that only replicas added since hold"

MADE_AGAIN = (
    r.ControllerChanged,
    r.ClusterDeclared,
    r.MetadataVersionFinalized,
    r.MembersChanged,
    r.NewcomersSettled,
    r.BrokersLeaving,
    r.BrokerRegistered,
    r.BrokerUpdated,
    r.BrokerFenced,
    r.BrokerUnfenced,
    r.BrokerShutdownStarted,
    r.PartitionsCreated,
    r.PartitionsChanged,
    r.ProducerIdsAllocated,
    r.MovementLimited,
    r.AuthorizationConfigured,
    r.TokenIssuersConfigured,
    r.ClientAuthoritiesConfigured,
    r.ListenersConfigured,
    r.InsideModeSet,
    r.CertificatesAllowed,
    r.SnapshotTaken,
)
"""Records that may be lost if no broker has applied them: the operator decides them again from
objects and from what brokers report. Others may have been answered to a client, or may have
led to the deletion of a volume."""

LIFETIMES = (
    r.ControllerChanged,
    r.BrokerRegistered,
    r.BrokerUpdated,
    r.BrokerFenced,
    r.BrokerUnfenced,
    r.BrokerShutdownStarted,
    r.PartitionsChanged,
    r.ProducerIdsAllocated,
    r.CertificatesAllowed,
    r.SnapshotTaken,
)
"""Records of brokers' starts and stops, and of what follows from them. One broker's copy is enough
for these: a single broker may follow the log alone while the others are down. The operator declares
certificates again at once."""

_content = msgspec.msgpack.Decoder(CopyContent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenCopy:
    """A copy of the metadata, proven by its own parts: a broker's, or with `broker_id` None that of
    the backup. `tail`: its newest batches; `nonce` and `controller_epoch`: those of its last batch;
    `digest`: names the history to people."""

    broker_id: BrokerId | None
    image: ClusterImage
    tail: MetadataTail
    nonce: str
    controller_epoch: ControllerEpoch
    digest: str

    @property
    def choice(self) -> str:
        """Return the name by which a person confirms that this history is restored."""
        return f"{self.image.next_offset}-{self.digest}"

    @property
    def position(self) -> LogPosition:
        """Return the position at the end of this copy."""
        return LogPosition(
            applied_offset=self.image.next_offset,
            nonce=self.nonce,
            controller_epoch=self.controller_epoch,
            term_id=self.image.term_id,
        )

    def standing(self, position: LogPosition) -> Standing:
        if position.nonce is None:  # nothing applied yet
            return Standing.WITHIN
        return self.tail.standing(position.applied_offset, position.nonce, position.term_id)


def prove_copy(
    stored: bytes, cluster_id: UUID, broker_id: BrokerId | None, position: LogPosition
) -> ProvenCopy | str:
    """Return the metadata in a copy as it was sent, or a sentence that says why it is not proven.
    The copy must be of this cluster, without gaps and contradictions, and end at the position that
    the broker, or the backup (`broker_id` None), states."""
    try:
        raw = zlib.decompressobj().decompress(stored, CONTENT_BYTES_MAX)
        content = _content.decode(raw)
    except (zlib.error, msgspec.MsgspecError, ValueError) as error:
        return f"it cannot be read: {error}"
    except Exception as error:  # noqa: BLE001  # a hostile broker chooses the bytes
        return _unjudged(error)
    return prove_content(content, cluster_id, broker_id, position)


def prove_content(
    content: CopyContent, cluster_id: UUID, broker_id: BrokerId | None, position: LogPosition
) -> ProvenCopy | str:
    """Do what `prove_copy` does for a copy that is decompressed and decoded."""
    try:
        return _prove(content, cluster_id, broker_id, position)
    except Exception as error:  # noqa: BLE001  # a hostile broker or place chooses the records
        return _unjudged(error)


def _unjudged(error: Exception) -> str:
    return f"it cannot be judged: {type(error).__name__}"


def _prove(
    content: CopyContent, cluster_id: UUID, broker_id: BrokerId | None, position: LogPosition
) -> ProvenCopy | str:
    try:
        image = decode_image(content.image)
    except (msgspec.MsgspecError, MetadataTooNew, ValueError) as error:
        return f"it cannot be read: {error}"
    if image.cluster_id != cluster_id:
        return f"it is of cluster {image.cluster_id}"
    tail = MetadataTail(start=image.next_offset, nonce=content.nonce, terms=image.terms)
    nonce, epoch = content.nonce, content.controller_epoch
    try:
        for batch in content.batches:
            steps = batch.controller_epoch - epoch
            if batch.base_offset != image.next_offset or not 0 <= steps <= EPOCHS_AHEAD_MAX:
                return f"its batch at offset {batch.base_offset} does not follow the one before"
            records = read_records(batch.records_json)
            if len(records) != batch.record_count:
                return f"its batch at offset {batch.base_offset} has another number of records"
            image = apply_all(image, records)
            nonce, epoch = batch.nonce, batch.controller_epoch
            tail.append(batch)
    except (MetadataTooNew, AssertionError, LookupError, TypeError, ValueError) as error:
        return f"its records contradict each other: {error!r}"
    tail.terms = image.terms
    if broken := next(iter(invariants.violations(image, invariants.EVERY_RECORD)), None):
        return f"its records contradict each other: {broken}"
    if nonce is not None:
        copy = ProvenCopy(
            broker_id=broker_id,
            image=image,
            tail=tail,
            nonce=nonce,
            controller_epoch=epoch,
            digest=_digest(image, nonce),
        )
        if copy.position == position:
            return copy
    return f"it ends at {image.next_offset}, not at the stated position"


def _digest(image: ClusterImage, nonce: str) -> str:
    return hashlib.sha256(nonce.encode() + encode_image(image)).hexdigest()[:DIGEST_LENGTH]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What a broker has stated: the position of its copy, and if it has acted on a decision that
    the copy lacks. `sends`: True if it also offers the copy itself."""

    position: LogPosition
    acted_beyond: bool = False
    sends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    """What is left of the metadata log in storage. `opened`: the log, if it can be opened;
    `replayed`: the same once it is replayed; `batches`: otherwise all batches that are still
    stored, in order; `damage`: why it cannot be opened; `snapshot`: the end of the newest snapshot
    that is still stored."""

    opened: OpenedLog | None = None
    replayed: Restored | None = None
    batches: tuple[Batch, ...] = ()
    damage: str = ""
    snapshot: SnapshotEnd | None = None


class Unsure(Enum):
    """Reasons for which a log is not restored by itself. The value says which can pass."""

    NO_COPY = "no copy"
    UNPROVEN = "unproven"
    AWAY = "away"
    OTHER_HISTORY = "other history"
    EMPTIED = "emptied"
    ONE_HOLDER = "one holder"
    ACTED_BEYOND = "acted beyond"
    LOG_DIFFERS = "log differs"
    BACKUP = "from the backup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Restore this history. `image`, `nonce`, `controller_epoch`: those at its end; `from_brokers`:
    the brokers that hold the end of the copy; `choice`: the history's name; `confirmed`: True if a
    person confirmed it although it is uncertain. `dismissed`: the copies of other histories that
    the person gave up with that; `from_backup`: True if the copy is the backup's."""

    image: ClusterImage
    nonce: str
    controller_epoch: ControllerEpoch
    from_brokers: tuple[BrokerId, ...]
    choice: str
    confirmed: bool = False
    dismissed: tuple[DismissedCopy, ...] = ()
    from_backup: bool = False

    def row(self, at_ms: int) -> HistoryRestored:
        """Return what the log tells of this restore, which happened at `at_ms`."""
        return HistoryRestored(
            at_ms=at_ms,
            end_offset=self.image.next_offset,
            digest=self.choice.split("-")[1],
            from_brokers=self.from_brokers,
            from_backup=self.from_backup,
            confirmed=self.confirmed,
            dismissed=self.dismissed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A history that a person may confirm. `value`: its name; `keeps_log`: True for the log as it
    is stored; `end_offset`, `from_brokers`: its end, and the brokers that hold it; `gives_up`: what
    is lost with it, as far as that is known; `from_backup`: True for the backup."""

    value: str
    keeps_log: bool
    end_offset: MetadataOffset
    from_brokers: tuple[BrokerId, ...]
    gives_up: tuple[str, ...] = ()
    from_backup: bool = False


def offer_of(restore: Restore) -> Choice:
    """Return the offer of a history that could be restored without a person."""
    return Choice(
        value=restore.choice,
        keeps_log=False,
        end_offset=restore.image.next_offset,
        from_brokers=restore.from_brokers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRestored:
    """The log is not restored by itself. `reasons`: why, worst first; `sentence`: the same for
    people; `doubts`: its parts; `choices`: what a person may confirm, the best first."""

    reasons: tuple[Unsure, ...]
    sentence: str
    doubts: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()

    @property
    def choice(self) -> str:
        return self.choices[0].value if self.choices else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCase:
    """All that is known when a log is to be restored. `offered`: by broker; `copy`: the proven copy
    that reaches furthest; `others`: proven copies of other histories; `unproven`: why a broker's
    copy is not proven; `log`: what is stored; `confirmed`: the history that a person confirmed, or
    empty; `expected`: brokers with volumes, if the log is empty; `exact`: True if a person asks for
    this end, and nothing after it. `agreement`: what the log says about a broker's copy, None if it
    was not compared yet."""

    offered: Mapping[BrokerId, Offered]
    log: StoredLog
    copy: ProvenCopy | None = None
    others: Mapping[BrokerId, ProvenCopy] = field(default_factory=dict)
    unproven: Mapping[BrokerId, str] = field(default_factory=dict)
    confirmed: str = ""
    expected: frozenset[BrokerId] = frozenset()
    exact: bool = False
    agreement: Agreement | None = None


def decide_restore(case: RestoreCase) -> Restore | NotRestored:
    """Return the history to restore, if it is certain or a person has confirmed it; else why it is
    not."""
    copy = case.copy
    if copy is None:
        return NotRestored(reasons=(Unsure.NO_COPY,), sentence=_no_copy(case))
    ends = _ends(copy, case.offered)
    found = tuple(_uncertain(case, copy, ends))
    if not found:
        return _restore_copy(case, copy, ends)
    if copy.broker_id is None and (against := _against(case, copy.standing)):
        return _without_copies(copy, found, against, asked=case.exact)
    kept = _KeptLog.of(case, copy)
    if kept is not None and case.confirmed == kept.choice(case):
        return kept.restore(case)
    of_log = kept is not None and not kept.is_against(copy)
    if case.confirmed == _choice(case, copy) and not of_log:
        return _restore_copy(case, copy, ends, confirmed=True)
    doubts = tuple(sentence for _, sentence in found)
    text = (
        f"{_holder(copy)} metadata up to offset {copy.image.next_offset}. The operator does not "
        f"restore it by itself, because {'; '.join(doubts)}. See what can be chosen with `kubectl "
        "plimsoll restore-metadata`."
    )
    offers = () if of_log else (_offer_of_copy(case, copy, ends, kept),)
    return NotRestored(
        reasons=tuple(reason for reason, _ in found),
        sentence=text,
        doubts=doubts,
        choices=offers if kept is None else (*offers, kept.offer(case)),
    )


def _restore_copy(
    case: RestoreCase, copy: ProvenCopy, ends: tuple[BrokerId, ...], *, confirmed: bool = False
) -> Restore:
    log = StoredLog() if case.exact else case.log
    image, nonce, epoch = _continued(copy, log)
    against = _against_proven(case, copy) if confirmed else ()
    return Restore(
        image=image,
        nonce=nonce,
        controller_epoch=epoch,
        from_brokers=ends,
        choice=_choice(case, copy) if confirmed else copy.choice,
        confirmed=confirmed,
        dismissed=_dismissed(case, against, image),
        from_backup=copy.broker_id is None,
    )


def _without_copies(
    copy: ProvenCopy,
    found: tuple[tuple[Unsure, str], ...],
    against: tuple[BrokerId, ...],
    *,
    asked: bool,
) -> NotRestored:
    """Return why a backup is not restored while these brokers hold copies of another history, or of
    a longer one: a broker sets no log aside for a backup, since all would do so. `asked`: True if a
    person asks for a point of it."""
    doubts = tuple(sentence for _, sentence in found)
    keep = (
        f"To keep the brokers' newer metadata, remove the annotation {RESTORE_FROM_BACKUP} "
        "from the LogCluster. "
    )
    text = (
        f"{_holder(copy)} metadata up to offset {copy.image.next_offset}. It is not restored: "
        f"{'; '.join(doubts)}. A broker's copy wins over a backup. {keep if asked else ''}To lose "
        f"the brokers' newer metadata and go back to the backup, stop {brokers_text(against)} and "
        "delete the directory log/__cluster_metadata from their volumes."
    )
    return NotRestored(reasons=tuple(reason for reason, _ in found), sentence=text, doubts=doubts)


def _holder(copy: ProvenCopy) -> str:
    if copy.broker_id is None:
        return "The backup has intact"
    return f"Broker {copy.broker_id} has the newest intact copy of the"


def _offer_of_copy(
    case: RestoreCase, copy: ProvenCopy, ends: tuple[BrokerId, ...], kept: _KeptLog | None
) -> Choice:
    """Return the offer to restore `copy`, and what is given up with it: other copies, and what only
    the log holds, if it is followed."""
    against = _against_proven(case, copy)
    images = [case.others[b].image for b in against]
    if kept is not None:
        images.append(kept.log.image)
    lost = _gives_up(images, copy.image, against)
    if in_backup := copy.broker_id is None:
        lost = (f"Decisions from offset {copy.image.next_offset} on", LATER_REPLICAS, *lost)
    return Choice(
        value=_choice(case, copy),
        keeps_log=False,
        end_offset=copy.image.next_offset,
        from_brokers=ends,
        gives_up=lost,
        from_backup=in_backup,
    )


def _gives_up(
    images: Collection[ClusterImage], kept: ClusterImage, against: Iterable[BrokerId]
) -> tuple[str, ...]:
    """Return what only the images hold, and what is lost as the brokers `against`, and those that
    have not yet dropped a copy given up earlier, set their logs aside."""
    dismissed = {*against, *(one.broker_id for one in kept.dismissed)}
    parts = (part for image in images for part in given_up(image, kept))
    return (
        *only_holders(kept, dismissed),
        *parted_records(images, kept, dismissed),
        *dict.fromkeys(parts),
    )


def _choice(case: RestoreCase, copy: ProvenCopy) -> str:
    """Return the name by which a person confirms `copy`. It names what is given up too, the ends of
    the copies that are dismissed with that."""
    against = _against_proven(case, copy)
    return f"{copy.choice}-{_digest_of_ends(case, copy.image, against)}" if against else copy.choice


def _digest_of_ends(case: RestoreCase, kept: ClusterImage, against: Iterable[BrokerId]) -> str:
    ends = [(int(b), case.offered[b].position.nonce or "") for b in against]
    named = f"{kept.cluster_id} {ends}".encode()
    return hashlib.sha256(named).hexdigest()[:DIGEST_LENGTH]


CONTRADICTIONS = (Standing.AHEAD, Standing.DIFFERENT, Standing.FORGOTTEN)


def _against(
    case: RestoreCase, standing: Callable[[LogPosition], Standing]
) -> tuple[BrokerId, ...]:
    """Return the brokers with a position that contradicts a history, which judges by
    `standing`."""
    return tuple(
        b for b, one in sorted(case.offered.items()) if standing(one.position) in CONTRADICTIONS
    )


def _against_proven(case: RestoreCase, copy: ProvenCopy) -> tuple[BrokerId, ...]:
    """Return the brokers with proven copies that contradict `copy`: it can dismiss those."""
    return tuple(b for b in _against(case, copy.standing) if b in case.others)


def _dismissed(
    case: RestoreCase, against: Iterable[BrokerId], image: ClusterImage
) -> tuple[DismissedCopy, ...]:
    """Return the copies of the brokers `against` that are given up with the history that ends in
    `image`. A copy that is not proven is not dismissed, since it is unknown what that gives up, and
    none for a backup. Nothing is dismissed before the log can tell of it."""
    in_backup = case.copy is not None and case.copy.broker_id is None
    if in_backup or image.metadata_version < RESTORES_SINCE:
        return ()
    copies = _copies(case)
    return tuple(
        DismissedCopy(
            broker_id=b, applied_offset=copies[b].image.next_offset, nonce=copies[b].nonce
        )
        for b in against
        if b in copies
    )


def _copies(case: RestoreCase) -> dict[BrokerId, ProvenCopy]:
    """Return the proven copies of brokers."""
    copies = dict(case.others)
    if case.copy is not None and case.copy.broker_id is not None:
        copies[case.copy.broker_id] = case.copy
    return copies


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptLog:
    """The log as it is stored, which a person may keep: brokers follow it, and all others have
    shown proven copies, so that it is known what they give up."""

    log: Restored
    nonce: str
    against: tuple[BrokerId, ...]
    followers: tuple[BrokerId, ...]

    @classmethod
    def of(cls, case: RestoreCase, copy: ProvenCopy) -> _KeptLog | None:
        if case.log.opened is None or copy.broker_id is None:
            return None
        log = case.log.replayed or replay(case.log.opened, copy.image.cluster_id)
        if log.image.metadata_version < RESTORES_SINCE or log.tail.end_nonce is None:
            return None
        kept = cls(
            log=log,
            nonce=log.tail.end_nonce,
            against=_against(case, partial(_standing_in, log)),
            followers=tuple(
                b
                for b, one in sorted(case.offered.items())
                if one.position.nonce is not None
                and _standing_in(log, one.position) not in CONTRADICTIONS
            ),
        )
        proven = set(_copies(case))
        divided = not kept.is_against(copy) or any(
            copy.standing(case.offered[b].position) in CONTRADICTIONS for b in kept.followers
        )
        shown = bool(kept.against) and proven >= set(kept.against)
        return kept if shown and kept.followers and divided else None

    def choice(self, case: RestoreCase) -> str:
        """Return the name by which a person confirms that the log is kept. It names what is given
        up, the ends of the other copies: the log itself may grow by a term meanwhile."""
        return f"log-{_digest_of_ends(case, self.log.image, self.against)}"

    def is_against(self, copy: ProvenCopy) -> bool:
        return copy.broker_id in self.against

    def offer(self, case: RestoreCase) -> Choice:
        copies = _copies(case)
        return Choice(
            value=self.choice(case),
            keeps_log=True,
            end_offset=self.log.image.next_offset,
            from_brokers=self.followers,
            gives_up=_gives_up(
                [copies[b].image for b in self.against], self.log.image, self.against
            ),
        )

    def restore(self, case: RestoreCase) -> Restore:
        return Restore(
            image=self.log.image,
            nonce=self.nonce,
            controller_epoch=self.log.image.controller_epoch,
            from_brokers=self.followers,
            choice=self.choice(case),
            confirmed=True,
            dismissed=_dismissed(case, self.against, self.log.image),
        )


def _standing_in(log: Restored, position: LogPosition) -> Standing:
    if position.nonce is None:
        return Standing.WITHIN
    return log.tail.standing(position.applied_offset, position.nonce, position.term_id)


def _no_copy(case: RestoreCase) -> str:
    if case.unproven:
        broker_id, why = next(iter(sorted(case.unproven.items())))
        return (
            f"Broker {broker_id}'s copy of the metadata log cannot be used to restore it: {why}. "
            "Start the brokers that are down, because the operator also tries their copies."
        )
    if case.offered:
        answered = sentence_start(brokers_text(case.offered))
        return (
            f"{answered} answered, but none sent a copy of the metadata log that can be restored. "
            "Start brokers that are down, because the operator also tries their copies."
        )
    return (
        "No broker has sent its copy of the metadata log so far; start the brokers that are down."
    )


def _ends(copy: ProvenCopy, offered: Mapping[BrokerId, Offered]) -> tuple[BrokerId, ...]:
    end = (copy.image.next_offset, copy.nonce)
    return tuple(
        broker_id
        for broker_id, one in sorted(offered.items())
        if (one.position.applied_offset, one.position.nonce) == end
    )


def _uncertain(
    case: RestoreCase, copy: ProvenCopy, ends: tuple[BrokerId, ...]
) -> Iterable[tuple[Unsure, str]]:
    """Yield each reason why `copy` may not be the newest history that anybody acted on, with the
    beginning of a sentence."""
    if copy.broker_id is None:
        yield Unsure.BACKUP, "decisions after that offset would be lost"
    for broker_id, why in sorted(case.unproven.items()):
        yield Unsure.UNPROVEN, f"the copy of broker {broker_id} cannot be used, since {why}"
    known = set(copy.image.brokers)
    yield from _unheard(case, known)
    if others := _against(case, copy.standing):
        yield Unsure.OTHER_HISTORY, f"{brokers_text(others)} followed another history"
    emptied = [b for b in known & set(case.offered) if case.offered[b].position.nonce is None]
    if emptied:
        yield (
            Unsure.EMPTIED,
            f"{brokers_text(sorted(emptied))} lost the metadata that had been applied",
        )
    in_backup = copy.broker_id is None
    compared = _compared(case, copy)
    if compared is not None and not compared.agrees:
        yield (
            Unsure.UNPROVEN,
            f"the copy of broker {copy.broker_id} has other records than the log under the same "
            "names, so find out which process runs as that broker",
        )
    lone = not in_backup and len(ends) < min(2, len(known))
    if lone and not _only_lifetimes(copy, case.offered, compared):
        yield Unsure.ONE_HOLDER, "no other broker holds its newest records"
    if beyond := [b for b, one in sorted(case.offered.items()) if one.acted_beyond]:
        yield Unsure.ACTED_BEYOND, f"{brokers_text(beyond)} acted on a decision that no copy has"
    if kinds := sorted(_given_up(copy, case.log)):
        yield Unsure.LOG_DIFFERS, f"the log would lose records of its own ({', '.join(kinds)})"


def _unheard(case: RestoreCase, known: set[BrokerId]) -> Iterable[tuple[Unsure, str]]:
    """Yield which brokers have not answered, or have only reported a position, in a registration or
    a heartbeat: the offer that follows says if the broker acted on a decision that its copy
    lacks."""
    if away := sorted((known | case.expected) - set(case.offered)):
        yield Unsure.AWAY, f"{brokers_text(away)} did not answer and may hold newer metadata"
    offered = sorted(case.offered.items())
    if silent := [b for b, one in offered if one.position.nonce is not None and not one.sends]:
        yield (
            Unsure.AWAY,
            f"{brokers_text(silent)} did not say yet whether decisions that no copy has were "
            "acted on",
        )


def _compared(case: RestoreCase, copy: ProvenCopy) -> Agreement | None:
    """Return what the log says about a broker's copy; None for a backup, or if there is no log to
    compare with."""
    opened = case.log.opened
    if copy.broker_id is None or opened is None:
        return None
    if opened.snapshot is None and not opened.batches:
        return None
    return case.agreement or agreement(copy.image, copy.tail, opened, copy.image.cluster_id)


def _only_lifetimes(
    copy: ProvenCopy, offered: Mapping[BrokerId, Offered], compared: Agreement | None
) -> bool:
    """Return True if the records that no second broker holds are about lifetimes of brokers and
    what follows from these, as at the end of a full stop, where one broker stops last. If there is
    a log, it must vouch for the rest of the copy: a single broker may have been taken over."""
    ends = (one.position.applied_offset for b, one in offered.items() if b != copy.broker_id)
    second = max(ends, default=MetadataOffset(0))
    if not copy.tail.start <= second <= copy.tail.end:
        return False
    if compared is not None and (not compared.shown or compared.unlawful_end > second):
        return False
    batches = copy.tail.read(second)
    records = [one for batch in batches for one in read_records(batch.records_json)]
    whole = sum(batch.record_count for batch in batches) == copy.tail.end - second
    return whole and all(isinstance(one, LIFETIMES) for one in records)


# --- the log in storage ------------------------------------------------------------------------


def _given_up(copy: ProvenCopy, log: StoredLog) -> set[str]:
    """Return the kinds of records that only the stored log holds and that are not decided again."""
    if log.opened is not None:
        replayed = log.replayed or replay(log.opened, copy.image.cluster_id)
        own = _own_batches(copy, log.opened, replayed.image.terms)
    else:
        own = None if _ends_beyond(copy, log) else _strangers(copy, log.batches)
    if own is None:
        return {"unknown, below a snapshot"}
    found: set[str] = set()
    for batch in own:
        try:
            records = read_records(batch.records_json)
        except MetadataTooNew:
            return {"of a newer release"}
        found |= {type(one).__name__ for one in records if not _made_again(one)}
    return found


def _made_again(record: r.Record) -> bool:
    declared = isinstance(record, r.TopicCreated) and record.object is not None
    return declared or isinstance(record, MADE_AGAIN)


def _own_batches(
    copy: ProvenCopy, opened: OpenedLog, terms: tuple[ControllerTerm, ...]
) -> list[Batch] | None:
    """Return the batches at the end of the log, which has these terms, that the copy does not have;
    None if the log's snapshot has records already that the copy lacks."""
    own: list[Batch] = []
    for whole in reversed(wholes(opened.batches)):
        last = whole[-1]
        if _holds(copy, last.end_offset, last.nonce, terms):
            return own
        own[:0] = whole
    snapshot = opened.snapshot
    if snapshot is None or _holds(copy, snapshot.end_offset, snapshot.nonce, terms):
        return own
    return None


def _holds(copy: ProvenCopy, offset: int, nonce: str, terms: tuple[ControllerTerm, ...]) -> bool:
    before = [term.id for term in terms if term.first_offset < offset]
    position = LogPosition(
        applied_offset=MetadataOffset(offset),
        nonce=nonce,
        controller_epoch=ControllerEpoch(0),
        term_id=before[-1] if before else "",
    )
    return copy.standing(position) in (Standing.WITHIN, Standing.TOO_OLD)


def _ends_beyond(copy: ProvenCopy, log: StoredLog) -> bool:
    """Return True if the newest snapshot of a damaged log has records that neither the copy nor the
    batches that follow it have."""
    end = log.snapshot
    if end is None or any(batch.nonce == end.nonce for batch in _further(copy, log.batches)):
        return False
    return copy.tail.standing(MetadataOffset(end.end_offset), end.nonce) in CONTRADICTIONS


def _strangers(copy: ProvenCopy, batches: Iterable[Batch]) -> list[Batch]:
    """Return those of the batches left in a damaged log that belong to no history with the copy.
    Batches below those that the copy keeps cannot be compared and count as its own."""
    further = {batch.nonce for batch in _further(copy, batches)}
    return [
        batch
        for batch in batches
        if batch.end_offset > copy.tail.start
        and batch.nonce not in further
        and batch.last_of_group
        and copy.tail.standing(MetadataOffset(batch.end_offset), batch.nonce) is not Standing.WITHIN
    ]


def _further(copy: ProvenCopy, batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches left in a damaged log that follow the end of the copy without a gap, whole
    groups only: committed records that no broker has applied yet."""
    after = {(batch.previous_nonce, batch.base_offset): batch for batch in batches}
    nonce, offset = copy.nonce, int(copy.image.next_offset)
    found: list[Batch] = []
    group: list[Batch] = []
    while (batch := after.pop((nonce, offset), None)) is not None:
        group.append(batch)
        nonce, offset = batch.nonce, batch.end_offset
        if batch.last_of_group:
            found += group
            group = []
    return found


def _continued(copy: ProvenCopy, log: StoredLog) -> tuple[ClusterImage, str, ControllerEpoch]:
    """Return image, nonce and controller epoch at the end of the history to restore: the copy, and
    what a damaged log still holds beyond it."""
    image, nonce, epoch = copy.image, copy.nonce, copy.controller_epoch
    if log.opened is not None:
        return image, nonce, epoch
    for whole in wholes(_further(copy, log.batches)):
        image = apply_all(image, read_records(merged(whole).records_json))
        nonce, epoch = whole[-1].nonce, ControllerEpoch(whole[-1].controller_epoch)
    return image, nonce, epoch

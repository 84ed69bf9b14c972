"""Decides if, and to which history, a metadata log that lost committed records is restored. Pure.

Brokers state their positions; the copy that reaches furthest is proven by `prove_copy`.
`decide_restore` restores by itself only if no decision can be lost that a broker has acted on;
otherwise it returns a `NotRestored` that says what is uncertain and what a person can confirm.
Source: docs/protocol.md 3.16.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

import msgspec

from plimsoll_core.cluster import invariants
from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.model import ClusterImage, ControllerTerm
from plimsoll_core.cluster.record_versions import MetadataTooNew, read_records
from plimsoll_core.ids import BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.metadata_copy import CopyContent
from plimsoll_core.messages.requests import LogPosition
from plimsoll_core.phrasing import brokers_text, sentence_start
from plimsoll_operator.controller.commit_queue import merged, replay, wholes
from plimsoll_operator.controller.metadata_tail import MetadataTail, Standing
from plimsoll_operator.metalog.interface import Batch, OpenedLog

CONTENT_BYTES_MAX = 1024 * 1024 * 1024
"""Most bytes of a decompressed copy."""
DIGEST_LENGTH = 16

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
    r.SnapshotTaken,
)
"""Records of brokers' starts and stops, and of what follows from them. One broker's copy is enough
for these: a single broker may follow the log alone while the others are down."""

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
    inflater = zlib.decompressobj()
    try:
        content = _content.decode(inflater.decompress(stored, CONTENT_BYTES_MAX))
        image = decode_image(content.image)
    except (zlib.error, msgspec.MsgspecError, MetadataTooNew, ValueError) as error:
        return f"it cannot be read: {error}"
    if image.cluster_id != cluster_id:
        return f"it is of cluster {image.cluster_id}"
    tail = MetadataTail(start=image.next_offset, nonce=content.nonce, terms=image.terms)
    nonce, epoch = content.nonce, content.controller_epoch
    try:
        for batch in content.batches:
            if batch.base_offset != image.next_offset or batch.controller_epoch < epoch:
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
    end = LogPosition(
        applied_offset=image.next_offset,
        nonce=nonce,
        controller_epoch=epoch,
        term_id=image.term_id,
    )
    if nonce is None or end != position:
        return f"it ends at {image.next_offset}, not at the stated position"
    return ProvenCopy(
        broker_id=broker_id,
        image=image,
        tail=tail,
        nonce=nonce,
        controller_epoch=epoch,
        digest=_digest(image, nonce),
    )


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
    `batches`: otherwise all batches that are still stored, in order; `damage`: why it cannot."""

    opened: OpenedLog | None = None
    batches: tuple[Batch, ...] = ()
    damage: str = ""


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
    person confirmed it although it is uncertain; `from_backup`: True if the copy is the backup's,
    and brokers that followed another history are to abandon it."""

    image: ClusterImage
    nonce: str
    controller_epoch: ControllerEpoch
    from_brokers: tuple[BrokerId, ...]
    choice: str
    confirmed: bool = False
    from_backup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRestored:
    """The log is not restored by itself. `reasons`: why, worst first; `sentence`: the same for
    people; `choice`: what a person may confirm, empty if there is nothing."""

    reasons: tuple[Unsure, ...]
    sentence: str
    choice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCase:
    """All that is known when a log is to be restored. `offered`: by broker; `copy`: the proven copy
    that reaches furthest; `unproven`: why a broker's copy is not proven; `log`: what is stored;
    `confirmed`: the history that a person confirmed, or empty; `expected`: brokers with volumes, if
    the log is empty; `exact`: True if a person asks for this end, and nothing after it."""

    offered: Mapping[BrokerId, Offered]
    log: StoredLog
    copy: ProvenCopy | None = None
    unproven: Mapping[BrokerId, str] = field(default_factory=dict)
    confirmed: str = ""
    expected: frozenset[BrokerId] = frozenset()
    exact: bool = False


def decide_restore(case: RestoreCase) -> Restore | NotRestored:
    """Return the history to restore, if it is certain or a person has confirmed it; else why it is
    not."""
    copy = case.copy
    if copy is None:
        return NotRestored(reasons=(Unsure.NO_COPY,), sentence=_no_copy(case))
    ends = _ends(copy, case.offered)
    found = tuple(_uncertain(case, copy, ends))
    confirmed = case.confirmed == copy.choice
    if found and not confirmed:
        text = (
            f"{_holder(copy)} metadata up to offset {copy.image.next_offset}. It is not restored "
            f"without a person: {'; '.join(sentence for _, sentence in found)}."
        )
        reasons = tuple(reason for reason, _ in found)
        return NotRestored(reasons=reasons, sentence=text, choice=copy.choice)
    log = StoredLog() if case.exact else case.log
    image, nonce, epoch = _continued(copy, log)
    return Restore(
        image=image,
        nonce=nonce,
        controller_epoch=epoch,
        from_brokers=ends,
        choice=copy.choice,
        confirmed=bool(found),
        from_backup=copy.broker_id is None,
    )


def _holder(copy: ProvenCopy) -> str:
    if copy.broker_id is None:
        return "The backup has proven"
    return f"Broker {copy.broker_id} holds the newest proven"


def _no_copy(case: RestoreCase) -> str:
    if case.unproven:
        broker_id, why = next(iter(sorted(case.unproven.items())))
        return f"The copy of broker {broker_id} cannot be used: {why}."
    if case.offered:
        answered = sentence_start(brokers_text(case.offered))
        return f"{answered} answered, and sent no copy of the metadata that can be restored."
    return "No broker has answered so far."


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
        yield Unsure.UNPROVEN, f"the copy of broker {broker_id} is not proven, since {why}"
    known = set(copy.image.brokers)
    if away := sorted((known | case.expected) - set(case.offered)):
        yield Unsure.AWAY, f"{brokers_text(away)} did not answer and may hold newer metadata"
    standings = {b: copy.standing(one.position) for b, one in sorted(case.offered.items())}
    contradict = (Standing.AHEAD, Standing.DIFFERENT, Standing.FORGOTTEN)
    if others := [b for b, standing in standings.items() if standing in contradict]:
        yield Unsure.OTHER_HISTORY, f"{brokers_text(others)} followed another history"
    emptied = [b for b in known & set(case.offered) if case.offered[b].position.nonce is None]
    if emptied:
        yield (
            Unsure.EMPTIED,
            f"{brokers_text(sorted(emptied))} lost the metadata that it had applied",
        )
    in_backup = copy.broker_id is None
    lone = not in_backup and len(ends) < min(2, len(known))
    if lone and not _only_lifetimes(copy, case.offered):
        yield Unsure.ONE_HOLDER, "no other broker holds its newest records"
    if beyond := [b for b, one in sorted(case.offered.items()) if one.acted_beyond]:
        yield Unsure.ACTED_BEYOND, f"{brokers_text(beyond)} acted on a decision that no copy has"
    if kinds := sorted(_given_up(copy, case.log)):
        yield Unsure.LOG_DIFFERS, f"the log would lose records of its own ({', '.join(kinds)})"


def _only_lifetimes(copy: ProvenCopy, offered: Mapping[BrokerId, Offered]) -> bool:
    """Return True if the records that no second broker holds are about lifetimes of brokers and
    what follows from these, as at the end of a full stop, where one broker stops last."""
    ends = (one.position.applied_offset for b, one in offered.items() if b != copy.broker_id)
    second = max(ends, default=MetadataOffset(0))
    if not copy.tail.start <= second <= copy.tail.end:
        return False
    batches = copy.tail.read(second)
    records = [one for batch in batches for one in read_records(batch.records_json)]
    whole = sum(batch.record_count for batch in batches) == copy.tail.end - second
    return whole and all(isinstance(one, LIFETIMES) for one in records)


# --- the log in storage ------------------------------------------------------------------------


def _given_up(copy: ProvenCopy, log: StoredLog) -> set[str]:
    """Return the kinds of records that only the stored log holds and that are not decided again."""
    if log.opened is not None:
        own = _own_batches(copy, log.opened)
    else:
        own = _strangers(copy, log.batches)
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


def _own_batches(copy: ProvenCopy, opened: OpenedLog) -> list[Batch] | None:
    """Return the batches at the end of the log that the copy does not have; None if the log's
    snapshot has records already that the copy lacks."""
    restored = replay(opened, copy.image.cluster_id)
    terms = restored.image.terms
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

"""The ring of the metadata log: M MetadataBatch objects (slots) that are made once, updated in
place, and never deleted.

Slots are created in order, some ahead of use; most clusters never need all. Batch n goes into slot
n mod M by an update that carries the resourceVersion under which the slot's previous content was
read. This is the compare-and-set of the whole log. The sequence in a slot only grows, so a writer
that was suspended while the ring was overwritten always finds a newer sequence in its slot and gets
409. An emptied slot still names the batch that it held. Called by `kubernetes_log`. This module
does not check that batches follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import msgspec

from plimsoll_operator.api import labels
from plimsoll_operator.metalog import codec, kube_objects
from plimsoll_operator.metalog.interface import (
    AppendConflict,
    AppendRefused,
    Batch,
    LogCorrupt,
    LogRegressed,
    LogUnavailable,
)
from plimsoll_operator.metalog.kube_objects import Answer, Item, Metadata, ObjectReader, Unanswered
from plimsoll_operator.metalog.log_integrity import Emptied

FINAL_REFUSALS = frozenset({400, 403, 413, 415, 422})
STRICT = {"fieldValidation": "Strict"}
KIND = "MetadataBatch"
MARKS_MAX = 20
"""Attempts to write the end of a restored history."""
SLOTS_AT_FIRST = 64
"""Number of slots made before the first batch is written, and kept ready ahead of the next batch
later."""
ADDED_MAX = 32
"""Most batches of other writers that are read slot by slot. Beyond, a list costs less."""
READ_AT_ONCE = 4


class _SlotHead(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields that are decoded from every slot: from an unused one, an emptied one, and one that
    holds a batch."""

    cluster_id: str
    slot: int
    sequence: int | None = None
    base_offset: int = 0
    record_count: int = 0
    nonce: str = ""
    emptied: bool = False


class _EmptySlot(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    cluster_id: str
    slot: int


class _EmptiedSlot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    cluster_id: str
    slot: int
    sequence: int
    base_offset: int
    record_count: int
    nonce: str
    emptied: bool = True


class _FullSlot(codec.StoredBatch, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    cluster_id: str
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A slot as last read or written: its content and the resourceVersion for the next write.
    `content` is None until its first batch; `size` is the JSON's in bytes."""

    number: int
    uid: str
    resource_version: str
    content: Batch | Emptied | None
    size: int

    @property
    def sequence(self) -> int | None:
        return None if self.content is None else self.content.sequence


class Ring:
    """All slots of one log as this process knows them. `put` commits a batch into its slot; `empty`
    drops the records of a slot that a snapshot covers."""

    def __init__(self, reader: ObjectReader, slots: int) -> None:
        self._reader = reader
        self._place = reader.place
        self.count = slots
        self._slots: dict[int, Slot] = {}
        self.newest_version = 0
        """Highest resourceVersion of all slots at the last `load`; 0 if there are no slots or
        versions are not numbers."""
        self._floor = 0

    def name(self, number: int) -> str:
        return f"{self._place.prefix}-{number:04d}"

    @property
    def known(self) -> bool:
        """Return True if this process has read or made slots of this ring."""
        return bool(self._slots)

    async def load(self) -> dict[int, Batch | Emptied]:
        """Read every slot, in one consistent state, in place of what this process knew of them.
        Return the batches and emptied slots by sequence; unused slots are left out. Raise
        `LogCorrupt` if a slot cannot be decoded or belongs to another log, else the errors of
        `ObjectReader.pages`."""
        slots: dict[int, Slot] = {}
        async for item in self._reader.pages(kube_objects.BATCHES, self._place.selector):
            slot = self._slot(item)
            slots[slot.number] = slot
        self._slots = slots
        versions = (_number(slot.resource_version) or 0 for slot in slots.values())
        self.newest_version = self._floor = max(versions, default=0)
        return self._contents()

    async def read_on(self) -> dict[int, Batch | Emptied] | None:
        """Read only the slots that other writers wrote after the newest batch that this process
        knows, and return what `load` would return. Return None if that needs all slots: none is
        known, the newest one has changed, over `ADDED_MAX` batches were added, or one of them tells
        of a snapshot, after which older slots change too.

        Batches name their predecessors, so the log up to a batch that is still stored is unchanged.
        It ends at a slot only if this process knows that slot exactly as it is, and the next ones
        too. A slot that another client emptied, deleted or recreated may have held a batch, and a
        newer batch behind it shows that the log is damaged. `load` tells.
        """
        known = [slot for slot in self._slots.values() if slot.sequence is not None]
        newest = max(known, key=lambda slot: slot.sequence or 0, default=None)
        if newest is None or newest.sequence is None or self.count < READ_AT_ONCE:
            return None
        first = following = newest.sequence
        while following - first <= ADDED_MAX:
            numbers = [(following + n) % self.count for n in range(READ_AT_ONCE)]
            found = await kube_objects.in_parallel(numbers, self._find)
            same = [slot is not None and slot == self._slots.get(slot.number) for slot in found]
            for at, slot in enumerate(found[:-1]):  # the last one only confirms an end before it
                if following > first and same[at]:
                    return self._contents() if all(same[at:]) else None
                if slot is None or not (same[at] if following == first else _adds(slot, following)):
                    return None
                self._slots[slot.number] = slot
                self._floor = max(self._floor, _number(slot.resource_version) or 0)
                following += 1
        return None

    async def _find(self, number: int) -> Slot | None:
        item = await self._reader.get(kube_objects.BATCHES, self.name(number))
        return None if item is None else self._slot(item)

    def _contents(self) -> dict[int, Batch | Emptied]:
        contents = (slot.content for slot in self._slots.values())
        return {content.sequence: content for content in contents if content is not None}

    def missing(self, next_sequence: int) -> list[int]:
        """Return the numbers of the slots that must be created when the log is opened, the slot for
        `next_sequence` first. Raise `LogRegressed` if that slot existed before and is gone. A slot
        is created once and never deleted, and the slot of the next batch is created before a batch
        is written. If the next slot is missing, it was therefore deleted by hand, and may have held
        a batch."""
        number = next_sequence % self.count
        if number in self._slots:
            return self._to_make(number)
        last = max(self._slots, default=0)
        newest = self._slots.get((next_sequence - 1) % self.count)
        kept_ahead = newest is not None and isinstance(newest.content, Batch)
        expected = kept_ahead or number < SLOTS_AT_FIRST or number + kube_objects.AT_ONCE < last
        if next_sequence and expected:
            raise LogRegressed(
                f"MetadataBatch {self.name(number)} of the metadata log was deleted by another "
                "client; it may have held committed metadata, so no controller can use the log "
                "until it is restored"
            )
        return self._to_make(number)

    def runs_short(self, next_sequence: int) -> list[int]:
        """Return the numbers of slots to make, if fewer than `SLOTS_AT_FIRST // 2` are ready for
        the batches after `next_sequence`. Return [] otherwise."""
        if (next_sequence + SLOTS_AT_FIRST // 2) % self.count in self._slots:
            return []
        return self._to_make(next_sequence % self.count)

    def _to_make(self, number: int) -> list[int]:
        """Return the numbers of slots that do not exist yet: those among the next `SLOTS_AT_FIRST`
        from `number` on, and gaps among the existing slots."""
        last = max(self._slots, default=0)
        ahead = [*range(number, self.count), *range(number)]
        return [
            slot
            for distance, slot in enumerate(ahead)
            if slot not in self._slots and (distance < SLOTS_AT_FIRST or slot < last)
        ]

    def unmade(self, numbers: Iterable[int]) -> list[int]:
        """Return the members of `numbers` for which this process knows no slot, in the same
        order."""
        return [number for number in numbers if number not in self._slots]

    async def make(self, number: int) -> Slot:
        """Create the slot `number` and return it. If another process has created it, read that one.
        Raise `LogUnavailable` if the API server refuses."""
        spec = _EmptySlot(cluster_id=str(self._place.cluster_id), slot=number)
        body = self._place.manifest(KIND, self._metadata(number), spec)
        path = self._place.path(kube_objects.BATCHES)
        answer = await self._reader.ask("POST", path, STRICT, body)
        if answer.status == 201:
            slot = self._slot(self._decoded(answer, number))
        elif answer.status == 409:
            slot = await self._read_back(number)
        else:
            name = self.name(number)
            raise LogUnavailable(
                f"the operator cannot create MetadataBatch {name}: {answer.sentence}"
            )
        # A faster process may have written to the slot since: only the first read counts.
        return self._slots.setdefault(number, slot)

    async def put(self, batch: Batch, backoff_ms: int) -> int:
        """Commit `batch` into its slot. Return its stored size in bytes.

        Returns or raises only once the outcome is certain. Until there is an answer, the same bytes
        are sent under the same resourceVersion; nothing else is ever sent to this slot. Raise
        `AppendConflict` if another controller wrote to the slot, `AppendRefused` if the API server
        rejects the batch for good, `LogRegressed` or `LogCorrupt` if the storage went back in time
        or changed the slot.
        """
        await self._require(batch.sequence)
        number = batch.sequence % self.count
        unknown = False
        attempt = 0
        while True:
            slot = self._slots[number]
            if slot.sequence is not None and slot.sequence >= batch.sequence:
                raise self._conflict(slot, batch)
            if attempt:
                await kube_objects.pause(backoff_ms, attempt)
            attempt += 1
            try:
                answer = await self._update(slot, batch)
            except Unanswered:
                unknown = True
                continue
            if answer.status == 200:
                return self._committed(self._decoded(answer, slot.number), batch)
            if answer.status in (404, 409):
                if (size := await self._after_conflict(slot, batch)) is not None:
                    return size
                # The slot has another version now, so a write under the old version is void.
                unknown = unknown and self._slots[number] == slot
            elif answer.status in FINAL_REFUSALS and not unknown:
                raise AppendRefused(
                    f"the API server rejected a batch of the metadata log: {answer.sentence}"
                )

    async def mark(self, marker: Emptied, backoff_ms: int) -> None:
        """Write `marker`, the end of a restored history, into the slot of its sequence. Returns
        only once the outcome is certain. Raise `LogUnavailable` if another process wrote to the
        slot or the API server refuses."""
        await self._require(marker.sequence)
        number = marker.sequence % self.count
        for attempt in range(MARKS_MAX):
            if attempt:
                await kube_objects.pause(backoff_ms, attempt)
            slot = self._slots[number]
            try:
                answer = await self._write(slot, _emptied(self._place, number, marker))
            except Unanswered:
                answer = None
            if answer is not None and answer.status == 200:
                self._slots[number] = self._slot(self._decoded(answer, number))
                return
            now = await self._read_back(number)
            if now.content == marker:
                self._slots[number] = now
                return
            refused = answer is not None and answer.status in FINAL_REFUSALS
            if now.uid != slot.uid or now.sequence != slot.sequence or refused:
                break
            self._slots[number] = now
        raise LogUnavailable(
            f"the restore of the metadata log failed at MetadataBatch {self.name(number)}, "
            "because another client changed it or the API server rejected the write; the "
            "operator tries again"
        )

    async def _require(self, sequence: int) -> None:
        """Create the slot of batch `sequence` and that of the next batch if this process knows
        none. Raise `LogUnavailable` if the API server refuses."""
        for number in (sequence % self.count, (sequence + 1) % self.count):
            if number not in self._slots:
                await self.make(number)

    async def _update(self, slot: Slot, batch: Batch) -> Answer:
        stored = codec.store(batch)
        fields = {name: getattr(stored, name) for name in stored.__struct_fields__}
        spec = _FullSlot(cluster_id=str(self._place.cluster_id), slot=slot.number, **fields)
        return await self._write(slot, spec, batch.written_ms)

    async def _write(self, slot: Slot, spec: object, written_ms: int = 0) -> Answer:
        metadata = self._metadata(slot.number, slot)
        if written_ms:
            told = {labels.WRITTEN_MS: str(written_ms)}
            metadata = msgspec.structs.replace(metadata, annotations=told)
        body = self._place.manifest(KIND, metadata, spec)
        path = self._place.path(kube_objects.BATCHES, self.name(slot.number))
        return await self._reader.api.request("PUT", path, params=STRICT, body=body)

    async def _after_conflict(self, slot: Slot, batch: Batch) -> int | None:
        """Read the slot back after a 404 or 409, to find out if `batch` was stored. Return its
        stored size in bytes if it was. Return None if the slot still holds its old content under
        another resourceVersion, so that the write can be repeated. Raise `AppendConflict` if it
        holds another batch of this sequence or a later one, `LogRegressed` if another earlier one
        than before, `LogCorrupt` if it was deleted or its content was changed."""
        now = await self._read_back(slot.number)
        if now.uid != slot.uid:
            raise LogCorrupt(
                f"another client deleted and recreated MetadataBatch {self.name(slot.number)} of "
                "the metadata log, so its content is lost; the operator reads the log again"
            )
        if now.content is not None and now.content.nonce == batch.nonce:
            return self._accept(now, batch)
        if now.sequence is not None and now.sequence >= batch.sequence:
            raise self._conflict(now, batch)
        if now.sequence != slot.sequence:
            raise LogRegressed(
                f"MetadataBatch {self.name(slot.number)} holds batch {now.sequence} again after "
                f"it held batch {slot.sequence}: the API server's storage went back in time; the "
                "operator reads the log again and compares it with what brokers have applied"
            )
        self._slots[slot.number] = now
        return None

    async def _read_back(self, number: int) -> Slot:
        slot = await self._find(number)
        if slot is None:
            raise LogCorrupt(
                f"MetadataBatch {self.name(number)} of the metadata log was deleted by another "
                "client; the operator reads the log again"
            )
        return slot

    def _committed(self, item: Item, batch: Batch) -> int:
        """Accept the API server's answer to a successful write, and return the stored size. Raise
        `LogCorrupt` if it stored something else, `LogRegressed` if its resourceVersion is not above
        all earlier ones."""
        slot = self._slot(item)
        version = _number(slot.resource_version)
        if version is not None and version <= self._floor:
            raise LogRegressed(
                f"the API server's resourceVersion went back from {self._floor} to {version}: "
                "its storage was restored to an earlier time; the operator reads the metadata "
                "log again and compares it with what brokers have applied"
            )
        self._floor = version or 0
        return self._accept(slot, batch)

    def _accept(self, slot: Slot, batch: Batch) -> int:
        if isinstance(slot.content, Batch) and slot.content != batch:
            raise LogCorrupt(
                f"the API server stored batch {batch.sequence} with a different content than "
                "was sent; check for a webhook or an older CustomResourceDefinition that "
                "changes MetadataBatch objects"
            )
        self._slots[slot.number] = slot
        return slot.size

    def _conflict(self, slot: Slot, batch: Batch) -> AppendConflict:
        return AppendConflict(
            f"another controller has written batch {batch.sequence} of the metadata log "
            f"(MetadataBatch {self.name(slot.number)} holds batch {slot.sequence}), so the batch "
            "of this operator was not committed"
        )

    async def lost(self) -> list[int]:
        """Return the numbers of slots that this process knows but that no longer exist as it knows
        them: another client deleted them, or deleted and recreated them."""
        known = dict(self._slots)  # slots made meanwhile are not in the list
        pages = self._reader.pages(kube_objects.BATCHES, self._place.selector)
        uids = {item.metadata.name: item.metadata.uid async for item in pages}
        return [n for n, slot in sorted(known.items()) if uids.get(self.name(n)) != slot.uid]

    async def make_again(self, number: int) -> None:
        """Create a deleted slot again, or overwrite one that another client recreated. It gets
        sequence, end offset and nonce of its last batch, but not the records, so a snapshot must
        cover that batch; a slot that held none stays unused. Raise `AppendConflict` if the
        recreated slot holds a later batch, which another controller wrote, `LogUnavailable` if the
        API server refuses."""
        slot = self._slots[number]
        spec = _emptied(self._place, number, slot.content)
        body = self._place.manifest(KIND, self._metadata(number), spec)
        answer = await self._reader.ask(
            "POST", self._place.path(kube_objects.BATCHES), STRICT, body
        )
        if answer.status == 409:
            answer = await self._overwrite(await self._read_back(number), slot, spec)
        if answer.status not in (200, 201):
            name = self.name(number)
            raise LogUnavailable(
                f"the operator cannot create MetadataBatch {name} again: {answer.sentence}"
            )
        self._slots[number] = self._slot(self._decoded(answer, number))

    async def _overwrite(self, recreated: Slot, known: Slot, spec: object) -> Answer:
        last, found = known.sequence, recreated.sequence
        if found is not None and (last is None or found > last):
            raise AppendConflict(
                f"another controller has written batch {found} of the metadata log to the "
                f"recreated MetadataBatch {self.name(known.number)}, so this one leaves it"
            )
        try:
            return await self._write(recreated, spec)
        except Unanswered as error:
            raise LogUnavailable(str(error)) from error

    async def peek(self, sequence: int) -> Batch | Emptied | None:
        """Read the slot of batch `sequence` and return its content, which may belong to another
        batch of the same slot. Return None if the slot never held a batch. Raise `LogCorrupt` if
        the slot does not exist. Used by a standby."""
        return (await self._read_back(sequence % self.count)).content

    def large(self, sequence_max: int, size_min: int) -> Iterator[int]:
        """Yield the numbers of slots that hold a batch, not emptied, of a sequence up to and
        including `sequence_max` and are larger than `size_min` bytes."""
        for slot in list(self._slots.values()):
            batch = slot.content
            if isinstance(batch, Batch) and batch.sequence <= sequence_max and slot.size > size_min:
                yield slot.number

    async def empty(self, number: int, sequence_max: int) -> None:
        """Replace the batch in a slot, which a snapshot covers, by only its sequence, end offset
        and nonce (`Emptied`). Do nothing if the slot holds no batch or one of a sequence above
        `sequence_max`. There is one attempt; a failure is not reported and harmless, since the slot
        then stays full."""
        slot = self._slots[number]
        batch = slot.content
        if not isinstance(batch, Batch) or batch.sequence > sequence_max:
            return
        try:
            answer = await self._write(slot, _emptied(self._place, number, batch))
        except Unanswered:
            return
        if answer.status == 200:
            self._slots[number] = self._slot(self._decoded(answer, number))

    def _decoded(self, answer: Answer, number: int) -> Item:
        return kube_objects.decode(answer.body, kube_objects.BATCHES, self.name(number))

    def _metadata(self, number: int, slot: Slot | None = None) -> Metadata:
        return Metadata(
            name=self.name(number),
            namespace=self._place.namespace,
            labels=self._place.labels,
            uid=slot.uid if slot else "",
            resource_version=slot.resource_version if slot else "",
        )

    def _slot(self, item: Item) -> Slot:
        try:
            head = msgspec.json.decode(item.spec, type=_SlotHead)
        except msgspec.MsgspecError as error:
            raise LogCorrupt(
                f"the content of MetadataBatch {item.metadata.name} cannot be read: {error}"
            ) from error
        if head.cluster_id != str(self._place.cluster_id):
            raise LogCorrupt(
                f"MetadataBatch {item.metadata.name} has the labels of this cluster, but its "
                f"spec names cluster {head.cluster_id}: another client changed it, so the "
                "metadata log cannot be used"
            )
        if head.slot >= self.count or (head.sequence or head.slot) % self.count != head.slot:
            raise LogCorrupt(
                f"MetadataBatch {item.metadata.name} does not fit the metadata log, which has "
                f"{self.count} such objects: it is of another log, or another client changed it, "
                "so the log cannot be used"
            )
        version = item.metadata.resource_version
        return Slot(
            number=head.slot,
            uid=item.metadata.uid,
            resource_version=version,
            content=_content(head, item),
            size=len(bytes(item.spec)),
        )


def _emptied(place: kube_objects.Place, number: int, content: Batch | Emptied | None) -> object:
    """Return the spec of an emptied slot: it names the batch `content` that it held and has no
    records. If `content` is None, return the spec of an unused slot."""
    if content is None:
        return _EmptySlot(cluster_id=str(place.cluster_id), slot=number)
    offset = content.base_offset if isinstance(content, Batch) else content.end_offset
    return _EmptiedSlot(
        cluster_id=str(place.cluster_id),
        slot=number,
        sequence=content.sequence,
        base_offset=offset,
        record_count=content.end_offset - offset,
        nonce=content.nonce,
    )


def _adds(slot: Slot, sequence: int) -> bool:
    """Return True if the slot holds batch `sequence`, and that tells of no snapshot."""
    content = slot.content
    if not isinstance(content, Batch) or content.sequence != sequence:
        return False
    return not codec.snapshots_taken(content)


def _number(resource_version: str) -> int | None:
    """Return a resourceVersion as a number, which all known API servers use, or None if it is not
    one. Only numbers can be compared."""
    return int(resource_version) if resource_version.isdecimal() else None


def _content(head: _SlotHead, item: Item) -> Batch | Emptied | None:
    if head.sequence is None:
        return None
    if head.emptied:
        return Emptied(
            sequence=head.sequence,
            end_offset=head.base_offset + head.record_count,
            nonce=head.nonce,
        )
    told = item.metadata.annotations.get(labels.WRITTEN_MS, "")
    return replace(codec.decode_batch(item.spec), written_ms=int(told) if told.isdecimal() else 0)

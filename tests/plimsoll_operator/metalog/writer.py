"""A writer and a reader as small as they can be: the image is the list of what was committed."""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from plimsoll_core.cluster.records import ControllerChanged, MembersChanged, Record, SnapshotTaken
from plimsoll_core.ids import ControllerEpoch
from plimsoll_operator.metalog import codec
from plimsoll_operator.metalog.interface import (
    EMPTY_TIP,
    AppendConflict,
    Batch,
    MetadataLog,
    OpenedLog,
    Snapshot,
    SnapshotRequired,
    Tip,
)

_numbers = itertools.count(1)


def new_nonce() -> str:
    return f"n{next(_numbers):06d}"


def marked(mark: str, *, padding: int = 0) -> Record:
    """A record that can be told from all others by its cause."""
    return MembersChanged(cause=mark + "." * padding, broker_ids=())


def marks(batches: Iterable[Batch]) -> list[str]:
    return [record.cause for batch in batches for record in codec.decode_records(batch)]


def image_of(opened: OpenedLog) -> list[str]:
    before = json.loads(opened.snapshot.image_bytes) if opened.snapshot else []
    return [*before, *marks(opened.batches)]


def snapshot_at(batch: Batch, name: str = "s", image_bytes: bytes = b"[]") -> Snapshot:
    return Snapshot(
        name=name,
        end_offset=batch.end_offset,
        last_sequence=batch.sequence,
        nonce=batch.nonce,
        controller_epoch=batch.controller_epoch,
        image_bytes=image_bytes,
    )


def a_chain(*sizes: int, epoch: int = 1, tip: Tip = EMPTY_TIP) -> list[Batch]:
    """Batches of so many records each, one after another; the first of a chain opens the term."""
    batches: list[Batch] = []
    for size in sizes:
        records = [marked(f"{epoch}/{tip.next_sequence}/{number}") for number in range(size)]
        batches += codec.pack(records, tip, epoch, new_nonce)
        tip = tip.after(batches[-1])
    return batches


@dataclass
class Writer:
    """Follows the interface's manual, as a controller would."""

    log: MetadataLog
    name: str = "w"
    tip: Tip = EMPTY_TIP
    image: list[str] = field(default_factory=list)
    acked: list[str] = field(default_factory=list)
    written_ms: int = 0

    @property
    def epoch(self) -> int:
        return self.tip.controller_epoch

    async def open(self) -> OpenedLog:
        opened = await self.log.open()
        self.tip, self.image = opened.tip, image_of(opened)
        return opened

    def term(self) -> Batch:
        """The batch with which this writer would take over, as of now."""
        epoch = self.epoch + 1
        mark = f"{self.name} takes {epoch} ({new_nonce()})"
        record = ControllerChanged(
            cause=mark, controller_epoch=ControllerEpoch(epoch), identity=self.name
        )
        return codec.pack([record], self.tip, epoch, new_nonce, self.written_ms)[0]

    async def take_over(self, attempts_max: int = 5) -> None:
        for _ in range(attempts_max):
            await self.open()
            try:
                await self.begin()
            except AppendConflict:
                continue
            return
        raise AssertionError("another writer writes all the time")

    async def begin(self) -> None:
        """The term's first batch; a full log gets its snapshot first."""
        try:
            await self.send(self.term())
        except SnapshotRequired:
            taken = await self.write_snapshot()
            await self.send(codec.pack([taken], self.tip, self.epoch + 1, new_nonce)[0])
            await self.log.release(taken)
            await self.send(self.term())

    async def send(self, batch: Batch) -> None:
        await self.log.append(batch)
        self.tip = self.tip.after(batch)
        if batch.group is None:
            self.image += marks([batch])
            self.acked += marks([batch])

    async def put(self, *texts: str, padding: int = 0) -> None:
        records = [marked(text, padding=padding) for text in texts]
        await self.put_records(records)

    async def put_records(self, records: list[Record]) -> None:
        for batch in codec.pack(records, self.tip, self.epoch, new_nonce, self.written_ms):
            await self.send(batch)

    async def write_snapshot(self) -> SnapshotTaken:
        assert self.tip.nonce is not None
        image_bytes = json.dumps(self.image).encode()
        end_offset = self.tip.next_offset
        name = await self.log.write_snapshot(image_bytes, end_offset, self.tip.nonce, self.epoch)
        return SnapshotTaken(cause=f"took {name}", end_offset=end_offset, name=name)

    async def snapshot(self) -> SnapshotTaken:
        taken = await self.write_snapshot()
        await self.put_records([taken])
        await self.log.release(taken)
        return taken

    async def write(self, count: int, text: str) -> None:
        """`count` batches, with snapshots as they fall due."""
        for number in range(count):
            if self.log.needs_snapshot():
                await self.snapshot()
            await self.put(f"{text}{number}")

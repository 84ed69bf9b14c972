"""Group commit: records decided, in flight and committed, and the answers that wait for them.

Called by `controller_term` and `committer`; does no I/O and reads no clock. Decisions are made on
the speculative image (committed + queued). An answer, refusals and heartbeat flags included, is
sent only when the last record queued at its decision is committed. On a certain failure the
speculative part is dropped as a whole, and every waiting request is answered NotController. Source:
ARCHITECTURE.md, "The metadata log lives on the Kubernetes API".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_core.cluster.image import append
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import Record
from plimsoll_core.errors import Reason
from plimsoll_core.ids import MetadataOffset
from plimsoll_core.messages.requests import Answer, Refused
from plimsoll_core.phrasing import sentence_start
from plimsoll_operator.metalog.codec import BATCH_BYTES_MAX, encode_records, record_too_large
from plimsoll_operator.metalog.interface import LogOfAnother

DECISION_BYTES_MAX = 128 * BATCH_BYTES_MAX
"""Maximum size of a decision: a larger one could fill the ring before a snapshot, and is refused
before it is queued."""
WAITERS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Records of one decision, which become visible together; `size` is that of their JSON in
    bytes.

    `image` is the speculative image directly after them, and the committed image once they are
    committed.
    """

    records: tuple[Record, ...]
    size: int
    image: ClusterImage


@dataclass(slots=True)
class _Waiter:
    needs: MetadataOffset
    unit: Unit | None
    answer: Answer
    future: asyncio.Future[Answer]


class CommitQueue:
    """Queue of decisions, owned by the controller's event loop."""

    def __init__(self, committed: ClusterImage) -> None:
        self.committed = committed
        self.speculative = committed
        self._queued: deque[Unit] = deque()
        self._in_flight: list[Unit] = []
        self._waiters: deque[_Waiter] = deque()
        self.wakeup = asyncio.Event()

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    @property
    def queued(self) -> int:
        return len(self._queued) + len(self._in_flight)

    def add(
        self, records: Sequence[Record], answer: Answer, image: ClusterImage | None = None
    ) -> asyncio.Future[Answer]:
        """Queue a decision. The future holds its answer once it may be sent. `image`: the
        speculative image with the records applied, if known."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        unit = None
        if len(self._waiters) >= WAITERS_MAX:
            future.set_result(refused(Reason.NotController, "The controller is overloaded; retry."))
            return future
        if records:
            after = image or _appended(self.speculative, records)
            assert after.next_offset == self.speculative.next_offset + len(records)
            unit = Unit(records=tuple(records), size=len(encode_records(records)), image=after)
            if too_large := _too_large(unit):
                future.set_result(too_large)
                return future
            self.speculative = after
            self._queued.append(unit)
            self.wakeup.set()
        needs = self.speculative.next_offset
        if needs == self.committed.next_offset:
            future.set_result(answer)
        else:
            self._waiters.append(_Waiter(needs=needs, unit=unit, answer=answer, future=future))
        return future

    def take(self, *, units_max: int | None = None) -> list[Unit]:
        """Take the next append: as many whole decisions as fit one batch, or one that does not fit.
        It stays in flight until `commit` or `drop`."""
        assert not self._in_flight, "one append is in flight at a time"
        size = 0
        while self._queued and (units_max is None or len(self._in_flight) < units_max):
            unit = self._queued[0]
            if self._in_flight and size + unit.size > BATCH_BYTES_MAX:
                break
            size += unit.size
            self._in_flight.append(self._queued.popleft())
        if not self._queued:
            self.wakeup.clear()
        return list(self._in_flight)

    def commit(self) -> tuple[ClusterImage, ClusterImage, tuple[Record, ...]]:
        """Commit the append in flight. Return (old image, new image, records)."""
        old = self.committed
        records = tuple(record for unit in self._in_flight for record in unit.records)
        # Units are applied, committed and dropped in one order: the last unit's image covers all.
        self.committed = self._in_flight[-1].image if self._in_flight else old
        assert self.committed.next_offset == old.next_offset + len(records)
        assert self._queued or self.committed is self.speculative
        self._in_flight = []
        while self._waiters and self._waiters[0].needs <= self.committed.next_offset:
            waiter = self._waiters.popleft()
            if not waiter.future.done():
                waiter.future.set_result(waiter.answer)
        return old, self.committed, records

    def drop(self, why: str, *, culprit: Refused | None = None) -> tuple[Record, ...]:
        """Drop all that is queued or in flight; none of it will ever commit. Return its records.

        `culprit` is the answer to the only decision in flight if that decision alone caused the
        failure.
        """
        blamed = self._in_flight[0] if culprit and len(self._in_flight) == 1 else None
        units = (*self._in_flight, *self._queued)
        self.speculative = self.committed
        self._in_flight = []
        self._queued.clear()
        self.wakeup.clear()
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if waiter.future.done():
                continue
            if culprit is not None and blamed is not None and waiter.unit is blamed:
                waiter.future.set_result(culprit)
            else:
                waiter.future.set_result(refused(Reason.NotController, why))
        return tuple(record for unit in units for record in unit.records)


def _appended(image: ClusterImage, records: Sequence[Record]) -> ClusterImage:
    for record in records:
        image = append(image, record)
    return image


def _too_large(unit: Unit) -> Refused | None:
    if (sentence := record_too_large(unit.records)) is not None:
        return refused(Reason.RecordTooLarge, sentence)
    if unit.size > DECISION_BYTES_MAX:
        text = (
            f"The change needs {unit.size} bytes of metadata, more than one append can hold; "
            "split it into smaller changes."
        )
        return refused(Reason.RecordTooLarge, text)
    return None


def answered(answer: Answer) -> asyncio.Future[Answer]:
    """Return a future with an answer that need not wait."""
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


def refused(reason: Reason, message: str) -> Refused:
    """Return a refusal as an answer."""
    return Refused(reason=reason.name, code=reason.code, message=message)


def not_controller(message: str) -> Refused:
    """Return the refusal of a controller that no longer decides."""
    return refused(Reason.NotController, message)


def unusable(error: Exception) -> Refused:
    """Return the refusal of a log that is unusable, went back in time, or belongs to another
    cluster."""
    if isinstance(error.__cause__, LogOfAnother):
        return refused(Reason.NotAllowed, f"{sentence_start(str(error.__cause__))}.")
    return refused(Reason.MetadataRegressed, str(error))


def too_new(error: Exception) -> Refused:
    """Return the refusal after a newer release has written to the log: this release must not lead
    or guess."""
    text = (
        f"A newer release has written to this metadata log: {error}. This operator does not "
        "lead the cluster and writes nothing; brokers keep serving with the last metadata that "
        "they applied. Run the operator of that release."
    )
    return refused(Reason.MetadataTooNew, text)

"""A partition is compared with its source as brokers serve both."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.plimsoll_spark.replica_model import Replica, plain_batch, replica

from plimsoll_spark.mirror import Half, MirrorAudit, MirrorItem, MirrorJob, compare_some
from plimsoll_spark.replica_reader import Connections, Place
from plimsoll_spark.topics import OffsetRange

BASES = range(0, 60, 3)
SIZE = len(plain_batch(0))


class Leader:
    """Takes the place of a connection to a leader."""

    def __init__(self, held: Replica) -> None:
        self._held = held

    def ask(self, topic: str, partition: int, offset: int, size: int, **_: bool) -> None:
        self._fetched = self._held.fetch(offset, size)

    def answer(self):
        return self._fetched

    def close(self) -> None:
        pass


class Retained(Replica):
    """Retention deletes what is below `later` as soon as offset 6 was read."""

    later = 0

    def fetch(self, offset: int, max_bytes: int):
        fetched = super().fetch(offset, max_bytes)
        if offset >= 6:
            self.start = max(self.start, self.later)
        return fetched


def side(lacks: tuple[int, ...] = (), later: int = 0) -> Retained:
    whole = replica([plain_batch(base) for base in BASES if base not in lacks])
    held = Retained(whole.file, whole.index, whole.start, whole.high_watermark)
    held.later = later
    return held


def compared(
    monkeypatch: pytest.MonkeyPatch, work: Path, source: Replica, mirror: Replica
) -> MirrorAudit:
    sides = (source, mirror)
    monkeypatch.setattr("plimsoll_spark.replica_reader.FETCH_BYTES", SIZE)
    monkeypatch.setattr(Connections, "to", lambda self, place: Leader(sides[place.broker]))
    halves = [
        Half(
            Place("t", 0, number, "h", 1),
            OffsetRange(log_start_offset=one.start, log_end_offset=one.high_watermark),
        )
        for number, one in enumerate(sides)
    ]
    job = MirrorJob(login={}, source_login={}, until_s=2.0**40, bytes_per_second=None, results=work)
    (found,) = compare_some(job, [MirrorItem(source=halves[0], mirror=halves[1])])
    return found


@pytest.mark.parametrize("lacks", [(), (45,)])
@pytest.mark.parametrize("of", ["source", "mirror", "neither"])
def test_retention_meanwhile_hides_only_what_it_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of: str, lacks: tuple[int, ...]
) -> None:
    source = side(later=30 if of == "source" else 0)
    mirror = side(lacks, later=30 if of == "mirror" else 0)
    found = compared(monkeypatch, tmp_path, source, mirror)
    assert found.unread == ""
    assert found.counts == ({"unmirrored": 3} if lacks else {})
    assert [(one.first, one.last) for one in found.differences] == [(45, 47)] * len(lacks)
    assert found.compared == (60 if of == "neither" else 39) - 3 * len(lacks)


def test_records_without_a_common_one_are_unread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mirror = side()
    mirror.file[:] = b"".join(plain_batch(base, content=b"x") for base in BASES)
    source = side()
    source.start = mirror.start = 3
    found = compared(monkeypatch, tmp_path, source, mirror)
    assert "no record in common" in found.unread

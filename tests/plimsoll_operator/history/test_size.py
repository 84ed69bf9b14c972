"""How much of the archive's budget a row takes: the figures that the documents give."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from plimsoll_operator.history import segments
from plimsoll_operator.history.archive import Archive
from plimsoll_operator.history.changes import ChangeRow
from plimsoll_operator.history.segment_stores import DirectoryStore

MS = 1_700_000_000_000
TOPICS = [(f"team-{n % 7}.topic-{n}", random.Random(n).randbytes(16).hex()) for n in range(100)]


def a_roll(draw: random.Random, offset: int) -> list[ChangeRow]:
    """Three brokers restarted one after the other, over a hundred topics of twelve partitions."""
    rows = []
    for broker in range(3):
        others = tuple(b for b in range(3) if b != broker)
        asked = f"the granted restart of broker {broker} into revision 5f6c8d7b9"
        for name, topic_id in TOPICS:
            for leads in (True, False):
                first = draw.randrange(6)
                offset += 1
                rows.append(
                    ChangeRow(
                        offset,
                        MS + offset * 37,
                        "changed",
                        name,
                        topic_id,
                        ((first, first + 3), (first + 5, first + 5)),
                        leader=(broker, others[0]) if leads else None,
                        isr=((0, 1, 2), others),
                        epochs=int(leads),
                        cause="shutdown",
                        word="roll",
                        planned=True,
                        asked=asked,
                    )
                )
    return rows


@pytest.mark.slow
def test_row_takes_ten_to_sixty_bytes() -> None:
    draw = random.Random(16)
    rows = [row for n in range(10) for row in a_roll(draw, n * 10_000)]
    packed = segments.pack(b"".join(map(segments.line, rows)))
    each = len(packed) / len(rows)
    assert 10 < each < 60, each
    # So the budget holds what a month of a cluster with a hundred topics brings: a roll a day.
    assert 30 * len(a_roll(draw, 0)) * each < segments.Budget().bytes_max


async def test_segment_of_alike_rows_stays_readable(tmp_path: Path) -> None:
    """They are compressed so well that a segment was never full, and more than readers accept."""
    store = DirectoryStore(tmp_path)
    archive = Archive(store, "cluster", segments.Budget())
    await archive.open()
    ranges = tuple((index, index) for index in range(0, 2_000, 3))
    rows = [
        ChangeRow(offset, MS + offset, "changed", "orders", "a" * 32, ranges, isr=((0, 1), (0,)))
        for offset in range(1_500)
    ]
    for first in range(0, len(rows), 100):
        some = rows[first : first + 100]
        await archive.add(b"".join(map(segments.line, some)), len(some), first + 100, MS)
    counts = [len(segments.rows_of(segment)) async for _, segment in store.stored()]
    assert sum(counts) == len(rows)

"""A partition's history as people read it."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll_operator.history.changes import RESTORED, ChangeRow
from plimsoll_operator.kubectl_plugin.shown import Problem
from plimsoll_operator.kubectl_plugin.timeline import AskedPartition, age, since, timeline

MS = 1_700_000_000_000
AT = "2023-11-14T22:13:20Z"
ROW = (0, 1, 2)


def a_row(offset: int, **more: Any) -> ChangeRow:
    fields: dict[str, Any] = {"ms": MS + offset * 1_000, "kind": "changed", "topic": "orders"}
    fields |= {"topic_id": "a", "ranges": ((0, 3),)}
    return ChangeRow(offset=offset, **(fields | more))


CREATED = a_row(10, kind="created", leader=(None, 0), isr=((), ROW), asked="Topic kafka/orders")
FENCED = a_row(
    20,
    leader=(0, 1),
    isr=(ROW, (1, 2)),
    epochs=1,
    cause="fenced after 6000 ms of silence",
    word="fenced",
    asked="the controller",
)
BACK = a_row(30, isr=((1, 2), (1, 2, 0)), cause="IsrExpand", word="caught-up")
RETURNED = a_row(40, leader=(1, 0), epochs=1, cause="leadership goes back", word="preferred")


def asked(**more: Any) -> AskedPartition:
    return AskedPartition(**({"topic": "orders", "partition": 2, "leader_epoch": 2} | more))


def test_changes_follow_log_order_with_leader_epochs() -> None:
    found = timeline([RETURNED, CREATED, BACK, FENCED], asked())
    assert [(moment.offset, moment.leader_epoch) for moment in found] == [
        (10, 0), (20, 1), (30, 1), (40, 2),
    ]  # fmt: skip
    assert found[0].what == "The partition was created: leader 0, ISR [0,1,2]."
    assert found[1].what == "leader 0 → 1; ISR [0,1,2] → [1,2] (-0)"
    assert found[2].what == "ISR [1,2] → [1,2,0] (+0)"
    assert (found[1].why, found[1].asked) == ("fenced", "the controller")


def test_timeline_omits_other_partitions_and_repeats() -> None:
    others = [a_row(50, topic="other"), a_row(51, ranges=((0, 1), (3, 9)))]
    assert [m.offset for m in timeline([FENCED, FENCED, *others], asked())] == [20]


def test_since_omits_older_rows_and_keeps_epochs() -> None:
    rows = [CREATED, FENCED, BACK, RETURNED]
    found = timeline(rows, asked(since_ms=MS + 25_000))
    assert [(moment.offset, moment.leader_epoch) for moment in found] == [(30, 1), (40, 2)]


def test_epoch_that_nobody_tells_is_none() -> None:
    (moment,) = timeline([FENCED], asked(leader_epoch=None))
    assert moment.leader_epoch is None


def test_hole_is_told_unless_the_partition_is_younger() -> None:
    hole = ChangeRow(15, MS, "unknown", cause="it was not archived in time")
    assert next(m.what for m in timeline([hole, FENCED], asked())) == (
        "The archive of the metadata history lacks the changes at this point."
    )
    young = a_row(18, kind="created", leader=(None, 0), isr=((), ROW))
    assert [m.offset for m in timeline([hole, young, FENCED], asked())] == [18, 20]


def test_restore_is_told_in_its_own_words() -> None:
    restored = ChangeRow(30, MS, "unknown", cause="restored", word=RESTORED)
    told = timeline([CREATED, FENCED, restored, RETURNED], asked())
    assert (
        told[2].what
        == "The metadata were restored to an earlier state; the later changes are lost."
    )


def test_recreated_topic_has_its_own_epochs() -> None:
    gone = a_row(50, kind="removed", ranges=())
    again = a_row(60, kind="created", topic_id="b", leader=(None, 2), isr=((), (2,)))
    found = timeline([CREATED, FENCED, gone, again], asked(leader_epoch=0))
    assert [(moment.offset, moment.leader_epoch) for moment in found] == [
        (10, None), (20, None), (50, None), (60, 0),
    ]  # fmt: skip


def test_unrecorded_time_is_not_invented() -> None:
    (moment,) = timeline([a_row(20, ms=0, isr=(ROW, (0,)))], asked(since_ms=MS))
    assert moment.time is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, 0),
        ("90s", MS - 90_000),
        ("30m", MS - 1_800_000),
        ("2h", MS - 7_200_000),
        ("3d", MS - 259_200_000),
        (AT, MS),
        ("2023-11-14T23:13:20+01:00", MS),
        ("2023-11-14T22:13:20", MS),
    ],
)
def test_since_takes_spans_and_times(text: str | None, expected: int) -> None:
    assert since(text, MS) == expected


@pytest.mark.parametrize("text", ["yesterday", "2w", "-3d", "3 d"])
def test_since_refuses_what_is_neither(text: str) -> None:
    with pytest.raises(Problem, match="give a span"):
        since(text, MS)


def test_age_is_in_the_largest_unit() -> None:
    assert [age(AT, MS + s * 1000) for s in (5, 65, 7_300, 200_000)] == ["5s", "1m", "2h", "2d"]

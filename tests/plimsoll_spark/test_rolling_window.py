"""The verdict of a window, and the state of a run after its windows."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from plimsoll_spark.rolling_judge import AWAY, CLEANED_GAPS, COPIES, TOO_OLD, Step
from plimsoll_spark.rolling_window import WindowSoFar, showing, with_window
from plimsoll_spark.settings import Check, Produce, Refusal, Settings, Verify, check
from plimsoll_spark.values import Example, Rolling

SETTINGS = Settings(
    name="canary",
    bootstrap="b",
    topic="t",
    mode="Continuous",
    deadline_seconds=0,
    produce=Produce(records_per_second=10),
)
SINCE, END = "2026-11-20T15:00:00Z", "2026-11-20T15:01:00Z"


def window(*, unjudged: int = 0, **counts: int) -> WindowSoFar:
    found, step = WindowSoFar(started_ms=0), Step()
    step.counts.update({"sent": 10, "acked": 10, "read": 10} | counts)
    step.unjudged["their partition was away"] = unjudged
    if counts.get("lost"):
        step.examples.append(Example(topic="t", partition=1, offset=7, kind="lost"))
    found.add(step, np.array([1.0, 2.0]))
    return found


def test_sound_window_passes_with_its_latency() -> None:
    ended = window().ended(SETTINGS, SINCE, END)
    assert (ended.verdict, ended.reason) == ("Passed", "AllChecksPassed")
    assert ended.milliseconds is not None
    assert ended.milliseconds.worst == 2.0


def test_lost_record_is_named_with_its_place() -> None:
    ended = window(lost=1).ended(SETTINGS, SINCE, END)
    assert (ended.verdict, ended.reason) == ("Violated", "RecordsLost")
    assert "t-1 at offset 7" in ended.message
    rolling = with_window(Rolling(window_seconds=60, since=SINCE, drivers=1), ended)
    assert rolling.last_loss == ended.examples[0]
    assert (rolling.violated, rolling.last_loss_time) == (1, END)


def test_unjudged_records_leave_the_window_undecided() -> None:
    ended = window(unjudged=3).ended(SETTINGS, SINCE, END)
    assert (ended.verdict, ended.reason) == ("Inconclusive", "NotJudged")
    assert "3 because their partition was away" in ended.message
    assert window(unjudged=3, lost=1).verdict(SETTINGS).verdict == "Violated"


@pytest.mark.parametrize(
    ("why", "checks", "verdict"),
    [
        (COPIES, ("NoDuplicate",), "Inconclusive"),
        (COPIES, ("Order",), "Passed"),
        (CLEANED_GAPS, ("NoGap",), "Inconclusive"),
        (TOO_OLD, ("NoGap",), "Passed"),
        (AWAY, ("Order",), "Inconclusive"),
    ],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
def test_check_passes_only_what_it_could_judge(
    why: str, checks: tuple[Check, ...], verdict: str
) -> None:
    one = window()
    one.unjudged = {why: 2}
    asked = msgspec.structs.replace(SETTINGS, verify=Verify(checks=checks))
    assert one.verdict(asked).verdict == verdict


def test_unreadable_batch_passes_no_other_check() -> None:
    one = window()
    one.unreadable = [Example(topic="t", partition=0, offset=4, kind="unreadable")]
    found = one.verdict(msgspec.structs.replace(SETTINGS, verify=Verify(checks=("Order",))))
    assert (found.verdict, found.reason.value) == ("Inconclusive", "NotJudged")
    assert "1 because no consumer can read their batches" in found.message


def test_unreadable_batch_violates_the_window() -> None:
    one = window()
    one.unreadable = [Example(topic="t", partition=0, offset=4, kind="unreadable")]
    assert one.verdict(SETTINGS).reason.value == "RecordsUnreadable"


def test_recreated_topic_proves_nothing() -> None:
    one = window(lost=5)
    one.recreated = True
    assert one.verdict(SETTINGS).reason.value == "TopicRecreated"


def test_violation_shows_before_its_window_ends() -> None:
    rolling = Rolling(window_seconds=60, since=SINCE, drivers=1)
    rolling = with_window(rolling, window().ended(SETTINGS, SINCE, END))
    shown = showing(rolling, window(lost=1).ended(SETTINGS, SINCE, END))
    assert (shown.passed, shown.violated) == (1, 0)
    assert shown.last_violation is not None


def test_window_survives_being_stored() -> None:
    one = window(lost=2)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=WindowSoFar)
    assert again.ended(SETTINGS, SINCE, END) == one.ended(SETTINGS, SINCE, END)


def test_late_acks_of_a_window_count() -> None:
    one = WindowSoFar(started_ms=0)
    for latency in (1.0, 1.0, 1.0, 700.0):
        one.add(Step(), np.full(60_000, latency))
    found = one.ended(SETTINGS, SINCE, END).milliseconds
    assert found is not None
    assert (round(found.p50), round(found.p99 / 700, 1), found.worst) == (1, 1.0, 700.0)
    assert len(msgspec.msgpack.encode(one)) < 1_000


def test_ended_windows_are_listed_newest_first() -> None:
    rolling = Rolling(window_seconds=60, since=SINCE, drivers=1)
    for count in range(12):
        rolling = with_window(rolling, window(acked=60 * count).ended(SETTINGS, SINCE, END))
    assert [one.records_per_second for one in rolling.recent] == [11 - n for n in range(10)]
    assert rolling.recent[0].p99_milliseconds is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"produce": Produce(records=5, records_per_second=1)}, "recordsPerSecond"),
        ({"produce": Produce()}, "recordsPerSecond"),
        ({"produce": Produce(records_per_second=1, acks="Leader")}, "acks: All"),
        ({"produce": Produce(records_per_second=1, idempotent=False)}, "idempotent"),
        ({"window": "2h"}, "10s to 1h"),
        ({"window": "soon"}, "soon"),
    ],
)
def test_impossible_continuous_run_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        check(msgspec.structs.replace(SETTINGS, **change))


def test_possible_continuous_run_is_accepted() -> None:
    check(SETTINGS)

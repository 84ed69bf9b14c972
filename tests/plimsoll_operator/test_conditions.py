"""Conditions say since when: their times move with their status and with nothing else."""

from plimsoll_operator.api.conditions import condition, merge, milliseconds, timestamp


def test_transition_time_stays_while_the_status_stays():
    first = merge((), [condition("Ready", True, "Serving", "15 partitions.")], 1, 1_000)
    later = merge(first, [condition("Ready", True, "Serving", "16 partitions.")], 2, 99_000)
    assert later[0].last_transition_time == first[0].last_transition_time
    assert (later[0].message, later[0].observed_generation) == ("16 partitions.", 2)


def test_transition_time_moves_with_the_status():
    first = merge((), [condition("Ready", True, "Serving", "")], 1, 1_000)
    later = merge(first, [condition("Ready", False, "UnderMinISR", "")], 1, 99_000)
    assert later[0].last_transition_time == timestamp(99_000)


def test_conditions_have_a_fixed_order():
    names = ["Stalled", "Ready", "Blocked"]
    merged = merge((), [condition(n, None, "Unknown", "") for n in names], 1, 0)
    assert [c.type for c in merged] == ["Blocked", "Ready", "Stalled"]
    assert {c.status for c in merged} == {"Unknown"}


def test_times_are_read_as_they_are_written():
    assert milliseconds(timestamp(1_795_193_894_000)) == 1_795_193_894_000
    assert milliseconds("2026-11-20T15:00:00.250000Z") % 1000 == 250

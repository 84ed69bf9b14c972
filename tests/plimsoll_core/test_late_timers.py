"""When a timer that judges the silence of others waits."""

from plimsoll_core.late_timers import LATE_MS, READ_MS, LateTimer


def test_timer_in_time_judges_now() -> None:
    timer = LateTimer()
    assert [timer.not_before_ms(1_000, 1_000 + late) for late in (0, LATE_MS - 1)] == [None, None]


def test_late_timer_waits_once_per_judgement() -> None:
    timer = LateTimer()
    times = [timer.not_before_ms(1_000, 1_000 + LATE_MS) for _ in range(3)]
    assert times == [1_000 + LATE_MS + READ_MS, None, 1_000 + LATE_MS + READ_MS]

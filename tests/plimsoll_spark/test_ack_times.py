"""Latencies and stalls of a continuous run, step by step, and what its budget says of them."""

from __future__ import annotations

import msgspec
import numpy as np

from plimsoll_spark.ack_times import AckTimes
from plimsoll_spark.ledger import LedgerRows
from plimsoll_spark.rolling_judge import Step
from plimsoll_spark.rolling_window import Surroundings, WindowSoFar
from plimsoll_spark.settings import Budget, Produce, Settings
from plimsoll_spark.values import Stall

SETTINGS = Settings(
    name="canary",
    bootstrap="b",
    topic="t",
    mode="Continuous",
    deadline_seconds=0,
    produce=Produce(records_per_second=10),
    budget=Budget(max_stall_milliseconds=2_000, p99_milliseconds=50, isr_full_within_seconds=30),
)
SINCE, END = "2026-11-20T15:00:00Z", "2026-11-20T15:01:00Z"


def acks(
    *times: tuple[float, float], partition: int = 0, producer: int = 0, acked: bool = True
) -> LedgerRows:
    """Rows of the ledger; each by its time of sending and of settling."""
    count = len(times)
    send, settled = np.array(times, np.float64).reshape(-1, 2).T
    return LedgerRows(
        partition=np.full(count, partition),
        offset=np.arange(count),
        producer=np.full(count, producer),
        sequence=np.arange(count),
        acked=np.full(count, acked),
        send_ms=send,
        settled_ms=settled,
    )


def begun() -> AckTimes:
    """The producer's first ack was at 1,000 ms."""
    times = AckTimes()
    times.take(acks((990, 1_000)))
    return times


def test_time_until_first_ack_counts_nothing() -> None:
    latency, stalls = AckTimes().take(acks((0, 900), (10, 901), (950, 955)))
    assert latency.tolist() == [5]
    assert [one.milliseconds for one in stalls] == [5]


def test_stall_spans_two_steps() -> None:
    times = begun()
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(times), type=AckTimes)
    (stall,) = again.take(acks((1_010, 4_000), (1_020, 4_001)))[1]
    assert (stall.milliseconds, stall.from_ms, stall.to_ms) == (2_990, 1_010, 4_000)


def test_time_without_waiting_records_is_no_stall() -> None:
    (stall,) = begun().take(acks((9_000, 9_004), (12_000, 12_007)))[1]
    assert stall.milliseconds == 7


def test_record_without_ack_ends_no_stall() -> None:
    times = begun()
    assert times.take(acks((1_010, 2_000), acked=False))[1] == []
    (stall,) = times.take(acks((1_010, 3_000)))[1]
    assert stall.milliseconds == 1_990


def test_partitions_stall_apart() -> None:
    times = begun()
    times.take(acks((1_000, 1_001), partition=1))
    times.take(acks((1_002, 3_000), partition=1))
    (stall,) = times.take(acks((1_002, 3_500)))[1]
    assert (stall.partition, stall.milliseconds) == (0, 2_498)


def test_new_driver_connects_without_a_stall() -> None:
    times = begun()
    (stall,) = times.take(acks((60_000, 63_000), (63_010, 63_012), producer=64))[1]
    assert stall.milliseconds == 2
    for producer in range(200):
        times.take(acks((70_000, 70_001), producer=producer))
    assert len(times.first_ms) == 64


def window(
    latency_ms: float = 5, stall_ms: float = 10, **more: object
) -> tuple[str, str, WindowSoFar, Surroundings]:
    found, step = WindowSoFar(started_ms=0), Step()
    step.counts.update({"sent": 100, "acked": 100, "read": 100})
    stall = Stall(partition=3, milliseconds=stall_ms, from_ms=1_000, to_ms=1_000 + stall_ms)
    found.add(step, np.full(100, latency_ms), [stall])
    around = Surroundings(end_ms=60_000, **more)  # type: ignore[arg-type]
    ended = found.ended(SETTINGS, SINCE, END, around)
    return ended.verdict, ended.reason, found, around


def test_window_within_its_budget_passes_with_figures() -> None:
    verdict, reason, found, around = window(isr_seconds=2.0)
    assert (verdict, reason) == ("Passed", "AllChecksPassed")
    lines = found.lines(SETTINGS, around)
    assert [(one.measured, one.result) for one in lines] == [
        (10, "within"),
        (5, "within"),
        (2, "within"),
    ]


def test_window_over_its_budget_is_violated() -> None:
    for more in ({"latency_ms": 90}, {"stall_ms": 2_500}, {"isr_seconds": 31.0}):
        assert window(**more)[:2] == ("Violated", "BudgetExceeded"), more


def test_starved_producer_makes_no_violation() -> None:
    held = [(900.0, 3_400.0)]
    for more in ({"latency_ms": 90}, {"stall_ms": 2_500}):
        assert window(**more, held=held)[:2] == ("Inconclusive", "DriverStarved"), more


def test_budget_waits_for_the_windows_end() -> None:
    found = window(latency_ms=90)[2]
    assert found.ended(SETTINGS, SINCE, END).verdict == "Passed"

"""How long writes stood still, from the ledger's times alone."""

import random
from pathlib import Path

import pytest
from tests.plimsoll_spark.tables import T0_MS, Sent, write_ledger

from plimsoll_spark import checks, ledger, timeline
from plimsoll_spark.ledger import ACKED, UNKNOWN
from plimsoll_spark.values import Bin, Latency

# (send, settled, outcome), in ms after T0
Times = tuple[float, float, str]


def rows(partition: int | None, *times: Times) -> list[Sent]:
    return [
        Sent(
            producer=0,
            sequence=number,
            partition=partition,
            offset=number if outcome == ACKED else None,
            outcome=outcome,
            send_ms=T0_MS + send,
            settled_ms=T0_MS + settled,
        )
        for number, (send, settled, outcome) in enumerate(times)
    ]


def timelines(
    directory: Path, sent: list[Sent]
) -> tuple[timeline.Clock, dict[int, timeline.Timeline]]:
    write_ledger(directory / "ledger", sent, chunk=500)
    known = ledger.index(directory / "ledger")
    clock = checks.clock_of(known)
    partitions = {one.partition for one in known.groups if one.partition is not None}
    return clock, {p: timeline.timeline(p, ledger.read(known.of(p)), clock) for p in partitions}


def longest(directory: Path, sent: list[Sent]) -> dict[int, tuple[float, float]]:
    found = {p: one.stall for p, one in timelines(directory, sent)[1].items()}
    return {
        p: (round(stall.from_ms - T0_MS, 1), round(stall.to_ms - T0_MS, 1))
        for p, stall in found.items()
        if stall is not None
    }


def test_stall_lies_between_two_acks_while_records_waited(tmp_path: Path) -> None:
    sent = rows(0, (0, 5, ACKED), (3, 700, ACKED), (650, 701, ACKED))
    assert longest(tmp_path, sent) == {0: (5, 700)}


def test_silence_in_which_nothing_waited_is_no_stall(tmp_path: Path) -> None:
    sent = rows(0, (0, 5, ACKED), (5_000, 5_030, ACKED))
    assert longest(tmp_path, sent) == {0: (5_000, 5_030)}


def test_late_partition_has_stall_unlike_connecting(tmp_path: Path) -> None:
    prompt, late = rows(0, (10, 400, ACKED), (20, 410, ACKED)), rows(1, (10, 1_500, ACKED))
    assert longest(tmp_path, prompt + late) == {0: (400, 410), 1: (400, 1_500)}


def test_unanswered_record_prolongs_the_stall(tmp_path: Path) -> None:
    sent = rows(0, (0, 5, ACKED), (10, 900, UNKNOWN), (800, 1_000, ACKED))
    assert longest(tmp_path, sent) == {0: (10, 1_000)}


def test_stalls_are_measured_per_partition(tmp_path: Path) -> None:
    first = rows(0, (0, 1, ACKED), (2, 50, ACKED))
    second = rows(1, (0, 1, ACKED), (2, 90, ACKED))
    nowhere = rows(None, (0, 9_000, UNKNOWN))
    assert longest(tmp_path, first + second + nowhere) == {0: (2, 50), 1: (2, 90)}


def test_stall_excludes_time_after_failed_record(tmp_path: Path) -> None:
    sent = rows(0, (0, 5, ACKED), (10, 900, UNKNOWN), (5_000, 5_030, ACKED))
    assert longest(tmp_path, sent) == {0: (10, 900)}


def test_stall_is_found_among_many_records(tmp_path: Path) -> None:
    times = [(float(n), n + 4.0 + (500.0 if n >= 2_000 else 0.0), ACKED) for n in range(4_000)]
    assert longest(tmp_path, rows(3, *times)) == {3: (2_003, 2_504)}


def test_pace_counts_acks_by_their_time(tmp_path: Path) -> None:
    sent = rows(0, (0, 10, ACKED), (0, 20, ACKED), (0, 260, ACKED), (0, 270, UNKNOWN))
    clock, found = timelines(tmp_path, sent)
    whole, pace = timeline.joined(list(found.values()), clock)
    bins = [(one.start_ms - T0_MS, one.acked, one.worst) for one in pace]
    assert (clock.bin_ms, bins) == (100, [(0, 2, 20), (200, 1, 260)])
    assert (whole.p50, whole.worst) == (pytest.approx(20, rel=0.01), 260)


def test_partitions_share_one_pace_and_latency(tmp_path: Path) -> None:
    dice = random.Random(1)
    latencies = [dice.expovariate(1 / 30) + 1 for _ in range(2_000)]
    sent = [
        one
        for partition in (0, 1)
        for one in rows(
            partition,
            *((n * 2.0, n * 2.0 + each, ACKED) for n, each in enumerate(latencies[partition::2])),
        )
    ]
    clock, found = timelines(tmp_path, sent)
    whole, pace = timeline.joined(list(found.values()), clock)
    assert sum(one.acked for one in pace) == 2_000
    exact = sorted(latencies)
    assert whole.p50 == pytest.approx(exact[1_000], rel=0.02)
    assert whole.p99 == pytest.approx(exact[1_980], rel=0.02)
    assert whole.worst == pytest.approx(exact[-1], abs=0.01)


def test_run_without_acks_has_no_latency(tmp_path: Path) -> None:
    clock, found = timelines(tmp_path, rows(0, (0, 10, UNKNOWN)))
    assert timeline.joined(list(found.values()), clock) == (Latency(), ())
    assert timeline.joined([], clock) == (Latency(), tuple[Bin, ...]())

"""The search for the highest rate ends near it, in few steps, and says what bounds it."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from plimsoll_spark import ledger
from plimsoll_spark.capacity import NARROW, STEPS_MAX, measured, search, step_of
from plimsoll_spark.drive import Drive, plan
from plimsoll_spark.settings import FindMaxRate, Load, Produce, Settings
from plimsoll_spark.values import Capacity, RateStep


def searched(capacity: int, *, starved: bool = False, **wish: int) -> Capacity:
    """A log that keeps the limit up to this rate."""

    def measure(_: int, rate: int) -> RateStep:
        held = rate <= capacity
        return RateStep(
            records_per_second=rate,
            p99_milliseconds=rate / 100,
            acked=rate,
            held=held,
            starved=starved and not held,
        )

    return search(FindMaxRate(p99_milliseconds=50, **wish), measure)


@pytest.mark.parametrize("capacity", [1_000, 1_999, 7_300, 50_000, 400_000])
def test_search_ends_near_the_highest_rate(capacity: int) -> None:
    found = searched(capacity)
    assert capacity * (1 - 2 * NARROW) <= found.records_per_second <= capacity
    assert len(found.steps) <= STEPS_MAX
    assert found.bound == "Log"
    assert found.p99_milliseconds == found.records_per_second / 100


def test_search_goes_down_from_too_high_rate() -> None:
    found = searched(130, from_=1_000)
    assert 104 <= found.records_per_second <= 130
    assert [one.records_per_second for one in found.steps][:3] == [1_000, 500, 250]


def test_search_says_what_bounds_the_rate() -> None:
    assert searched(10**9, to=4_000).bound == "Range"
    assert searched(10**9, to=4_000).records_per_second == 4_000
    assert searched(5_000, starved=True).bound == "Driver"
    nothing = searched(0)
    assert (nothing.records_per_second, nothing.p99_milliseconds) == (0, None)
    assert len(nothing.steps) <= STEPS_MAX


def a_drive(work: Path) -> Drive:
    wish = FindMaxRate(p99_milliseconds=50, step_seconds=2)
    settings = Settings(
        name="s", bootstrap="b", topic="t", produce=Produce(load=Load(find_max_rate=wish))
    )
    return Drive(run="r", settings=settings, producers=2, stop_at_s=0.0, work=work)


def test_steps_have_producers_and_files_of_their_own(tmp_path: Path) -> None:
    drive = a_drive(tmp_path)
    load = drive.settings.produce.load
    assert load is not None
    assert load.find_max_rate is not None
    steps = [step_of(drive, number, 100, load.find_max_rate) for number in range(3)]
    plans = [one for step in steps for one in plan(step)]
    assert [one.producer for one in plans] == [0, 1, 2, 3, 4, 5]
    assert len({one.progress for one in plans}) == 6
    assert sum(one.records for one in plans[:2]) == 200


@pytest.mark.parametrize(
    ("latency_ms", "lost", "held_ms", "kept", "starved"),
    [(20, 0, 0, True, False), (80, 0, 0, False, False), (20, 1, 0, False, False),
     (80, 0, 500, False, True)],
)  # fmt: skip
def test_step_is_measured_by_its_own_records(
    tmp_path: Path, latency_ms: float, lost: int, held_ms: float, kept: bool, starved: bool
) -> None:
    drive = a_drive(tmp_path)
    load = drive.settings.produce.load
    assert load is not None
    wish = load.find_max_rate
    assert wish is not None
    step = step_of(drive, 1, 10, wish)
    step.ledger.mkdir()
    step.progress.mkdir()
    for producer, latency in ((0, 9_999.0), (2, latency_ms), (3, latency_ms)):
        rows = [
            {"partition": 0, "offset": n, "producer": producer, "sequence": n,
             "outcome": "unknown" if n < lost and producer == 2 else "acked",
             "send_ms": 1e6 + 200 * n, "settled_ms": 1e6 + 200 * n + latency}
            for n in range(10)
        ]  # fmt: skip
        batch = pa.RecordBatch.from_pylist(rows, schema=ledger.SCHEMA)
        ledger.write_chunk(step.ledger / f"producer-{producer}-000000.parquet", batch)
    told = {"held": [[1e6 + 100, 1e6 + 100 + held_ms]] if held_ms else []}
    (step.progress / "2.json").write_text(json.dumps(told))
    found = measured(step, wish, 10)
    assert (found.held, found.starved) == (kept, starved)
    assert found.p99_milliseconds == pytest.approx(latency_ms, abs=0.1)
    assert found.acked == 20 - lost

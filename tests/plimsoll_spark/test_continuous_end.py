"""What a continuous run could not read before its end is not judged, and says so."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from plimsoll_spark import continuous, ledger
from plimsoll_spark.attempts import Claim, Superseded
from plimsoll_spark.continuous import ContinuousRun, State
from plimsoll_spark.evidence import Evidence, KeptRun
from plimsoll_spark.ledger import LedgerRows
from plimsoll_spark.rolling_judge import News, RollingJudge
from plimsoll_spark.rolling_window import WindowSoFar
from plimsoll_spark.settings import Evidence as Requested
from plimsoll_spark.settings import Produce, Settings
from plimsoll_spark.topics import Ranges
from plimsoll_spark.values import Outcome, Rolling

NOW_MS = int(time.time() * 1000)


def a_run(work: Path) -> ContinuousRun:
    settings = Settings(
        name="soak", bootstrap="b", topic="t", mode="Continuous", produce=Produce(records=0)
    )
    publisher: Any = SimpleNamespace(put=lambda texts, within_s: None, get=lambda name: None)
    with mock.patch.object(continuous, "TopicClient"):
        return ContinuousRun(settings, publisher, Evidence(settings, work))


def ended(work: Path, *, waiting: int = 0, untaken: int = 0) -> Outcome:
    """The end of a run of which one window passed and the last one is about to pass. `waiting`:
    acknowledgements of a partition that did not answer; `untaken`: rows of the ledger that no step
    has taken."""
    run = a_run(work)
    judge = RollingJudge("t", 4, {0: 0})
    judge.step(NOW_MS, News(readings=(), logs={}, acks=acked(waiting)))
    assert judge.waiting == waiting
    window = WindowSoFar(started_ms=NOW_MS - 1000, counts={"sent": 50, "acked": 50, "read": 50})
    rolling = Rolling(window_seconds=60, since="2026-11-24T12:00:00Z", drivers=1, passed=1)
    run._state = State(judge=judge.packed(), window=window, rolling=rolling, totals={})
    run._judge = judge
    directory = run._evidence.directory / "ledger"
    directory.mkdir(parents=True)
    if untaken:
        rows = [(0, number, 0, number, "acked", 1.0, 2.0) for number in range(untaken)]
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), ledger.SCHEMA, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=ledger.SCHEMA)
        ledger.write_chunk(directory / "producer-0-000000000.parquet", batch)
    return run._end()


def acked(count: int) -> LedgerRows:
    whole, times = np.arange(count, dtype=np.int64), np.ones(count)
    zeros = np.zeros(count, np.int64)
    return LedgerRows(
        partition=zeros,
        offset=whole,
        producer=zeros,
        sequence=whole,
        acked=np.ones(count, np.bool_),
        send_ms=times,
        settled_ms=times,
    )


def test_run_with_every_ack_settled_passes(tmp_path: Path) -> None:
    assert ended(tmp_path).verdict == "Passed"


@pytest.mark.parametrize("left", [{"waiting": 7}, {"untaken": 7}])
def test_acks_that_were_never_read_are_inconclusive(tmp_path: Path, left: dict[str, int]) -> None:
    """A partition was away at the end."""
    outcome = ended(tmp_path, **left)
    assert (outcome.verdict, outcome.reason) == ("Inconclusive", "NotJudged")
    assert outcome.counts.acked == 7


def test_unknown_configuration_changes_nothing(tmp_path: Path) -> None:
    """Else a compacted topic's cleaner was blamed while brokers were away."""
    run = a_run(tmp_path)
    run._state = State(
        judge=run._judge.packed(),
        window=WindowSoFar(started_ms=2**50),
        rolling=Rolling(window_seconds=60, since="2026-11-24T12:00:00Z", drivers=1),
        totals={},
    )
    run._topic_id = "A"
    seen = []
    with mock.patch.object(run._client, "topic_id", return_value="A"):
        for known in (None, True, None, False, None):
            with mock.patch.object(continuous, "ExistingTopics") as topics:
                topics.return_value.compacted.return_value = {"t": known}
                assert run._look_at_topic({})
            seen.append(run._compacted)
    assert seen == [False, True, True, False, False]


def test_driver_deletes_nothing_of_a_later_one(tmp_path: Path) -> None:
    """It may have paused before it clears what the drivers before it left."""
    run = a_run(tmp_path)
    directory = run._evidence.directory
    for name in ("checkpoint", "work"):
        for number in (1, 2, 10):
            (directory / f"{name}-{number}").mkdir(parents=True)
    (directory / continuous.STATES).mkdir()
    for number in (1, 2, 10):
        (directory / continuous.STATES / f"{number:06d}").write_bytes(b"")
    (directory / continuous.STATE_0_3).write_bytes(b"")
    (directory / "work").mkdir()
    run._clear(2)
    left = sorted(path.name for path in directory.rglob("*"))
    assert left == ["000002", "000010", "checkpoint-10", "judge", "work-10"]


def test_superseded_driver_stores_and_publishes_nothing(tmp_path: Path) -> None:
    published: list[dict[str, str]] = []
    settings = Settings(
        name="soak",
        bootstrap="b",
        topic="t",
        mode="Continuous",
        produce=Produce(records=0),
        evidence=Requested(directory=str(tmp_path / "kept")),
    )
    publisher: Any = SimpleNamespace(
        claim=lambda within_s: Claim(),
        put=lambda texts, within_s: published.append(texts),
        get=lambda name: None,
    )
    kept = Evidence(settings, tmp_path)
    with mock.patch.object(continuous, "TopicClient") as client:
        client.return_value.topic_id.return_value = "id"
        client.return_value.ranges.return_value = {}
        run, later = (ContinuousRun(settings, publisher, kept) for _ in range(2))
        later._evidence = Evidence(settings, tmp_path)
    last_state = run._last_state

    def pause() -> Path | None:
        later._begin()
        published.clear()
        return last_state()

    with mock.patch.object(run, "_last_state", pause), pytest.raises(Superseded):
        run._begin()
    assert published == []
    assert [path.name for path in (kept.directory / continuous.STATES).iterdir()] == ["000002"]


def test_run_that_another_driver_began_is_continued(tmp_path: Path) -> None:
    settings = Settings(
        name="soak",
        bootstrap="b",
        topic="t",
        mode="Continuous",
        produce=Produce(records=0),
        evidence=Requested(directory=str(tmp_path / "kept")),
    )
    publisher: Any = SimpleNamespace(
        claim=lambda within_s: Claim(), put=lambda texts, within_s: None, get=lambda name: None
    )
    with mock.patch.object(continuous, "TopicClient") as client:
        client.return_value.topic_id.return_value = "id"
        run, other = (
            ContinuousRun(settings, publisher, Evidence(settings, tmp_path)) for _ in range(2)
        )
    begun: list[KeptRun] = []

    def ranges(partitions: object, within_s: float) -> Ranges:
        if not begun:
            begun.append(KeptRun(**BEGUN))
            begun[0] = other._evidence.begin(begun[0])
        return {}

    client.return_value.ranges.side_effect = ranges
    assert run._begin().id == begun[0].id


BEGUN: dict[str, Any] = {
    "id": "soak-other",
    "topic": "t",
    "topic_id": "id",
    "produce": Produce(records=0),
    "started_s": 1.0,
    "before": {},
}

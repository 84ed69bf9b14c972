"""The verdict of a run whose driver died, or whose time was up."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest
from confluent_kafka import KafkaException

from plimsoll_spark import checks, ledger
from plimsoll_spark.evidence import Evidence, KeptRun
from plimsoll_spark.run import DriveEnd, Run
from plimsoll_spark.settings import Budget, Produce, Settings, Verify
from plimsoll_spark.topics import TopicClient
from plimsoll_spark.values import Counts, Findings, Latency, Outcome, Stall

CLEAN = Counts(sent=200, acked=200, read=200)


def found(**counts: int) -> Findings:
    stall = Stall(partition=0, milliseconds=90_000.0, from_ms=0.0, to_ms=90_000.0)
    return Findings(
        counts=msgspec.structs.replace(CLEAN, **counts),
        latency=Latency(),
        stalls=(stall,),
        pace=(),
        bin_ms=1000,
        examples=(),
    )


def a_run(work: Path, **budget: Any) -> Run:
    settings = Settings(
        name="soak",
        bootstrap="b",
        topic="t",
        produce=Produce(records=200),
        budget=Budget(**budget),
    )
    publisher: Any = SimpleNamespace(put=lambda texts, within_s: None, get=lambda name: None)
    return Run(settings, publisher, work, Evidence(settings, work))


KEPT = KeptRun(
    id="x",
    topic="t",
    topic_id="A",
    produce=Produce(records=200),
    started_s=0.0,
    before={0: (0, 0)},
    attempt=2,
    failure="the pod was killed",
)
ENDED = DriveEnd(hung=None, isr_seconds=0.0)


def judged(work: Path, **budget: Any) -> Outcome:
    """The outcome by the second driver, of a ledger that is complete."""
    return a_run(work, **budget)._judged(KEPT, found(), ENDED, recreated=False)


def test_second_driver_judges_the_budget_by_the_ledger(tmp_path: Path) -> None:
    outcome = judged(tmp_path, max_stall_milliseconds=5_000)
    assert (outcome.verdict, outcome.reason) == ("Violated", "BudgetExceeded")
    assert judged(tmp_path, max_stall_milliseconds=95_000).verdict == "Passed"


def test_second_driver_knows_nothing_of_isrs(tmp_path: Path) -> None:
    outcome = judged(tmp_path, isr_full_within_seconds=60)
    assert (outcome.verdict, outcome.reason) == ("Inconclusive", "NotJudged")


def test_missing_part_of_the_ledger_is_told(tmp_path: Path) -> None:
    """A search has no number of records by which it would be missed."""
    run = a_run(tmp_path)
    directory = run._evidence.directory / "progress"
    directory.mkdir(parents=True)
    told = {"sent": 300, "acked": 300, "failed": 0, "unknown": 0, "stopped": None, "held": []}
    (directory / "0.json").write_text(json.dumps(told))
    run._settings = msgspec.structs.replace(run._settings, produce=Produce())
    kept = msgspec.structs.replace(KEPT, attempt=1)
    outcome = run._judged(kept, found(), ENDED, recreated=False)
    assert (outcome.verdict, outcome.reason) == ("Inconclusive", "DriveIncomplete")
    assert "the list of written records lacks 100 of 300 records" in outcome.message


def test_recreated_topic_counts_no_record_as_lost(tmp_path: Path) -> None:
    findings = found(lost=7, misplaced=2, out_of_order=1, gaps=3)
    outcome = a_run(tmp_path)._judged(KEPT, findings, ENDED, recreated=True)
    assert (outcome.verdict, outcome.reason) == ("Inconclusive", "TopicRecreated")
    assert outcome.counts == CLEAN


def test_absent_brokers_are_awaited_until_the_timeout(tmp_path: Path) -> None:
    """They had a minute: one retriable error then ended the run, whatever its timeout."""
    run, client = a_run(tmp_path), mock.create_autospec(TopicClient, instance=True)
    run._kept = KEPT
    client.partitions.return_value = (0,)
    client.readable_ranges.side_effect = KafkaException()
    with (
        mock.patch.object(ledger, "index", return_value=SimpleNamespace(acked={})),
        pytest.raises(KafkaException),
    ):
        run._verify(mock.Mock(), client, cores=1)
    (awaited_s,) = client.partitions.call_args.args
    (_, readable_s) = client.readable_ranges.call_args.args
    assert Verify().timeout_seconds >= awaited_s >= readable_s > 60


@pytest.mark.parametrize(
    ("topic_id", "reason"),
    [("A", "RecordsLost"), ("B", "TopicRecreated"), (KafkaException(), "DeadlineExceeded")],
)
def test_recreated_topic_is_not_blamed_after_the_deadline(
    tmp_path: Path, topic_id: Any, reason: str
) -> None:
    run = a_run(tmp_path)
    run._topic_id, run._examination = "A", mock.Mock()
    client = mock.create_autospec(TopicClient, instance=True)
    client.topic_id.side_effect = [topic_id]
    with mock.patch.object(checks, "partial_findings", return_value=found(lost=7)):
        assert run._publish_partly(client).reason == reason

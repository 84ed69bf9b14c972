"""Every record that is sent has exactly one outcome in the ledger, whatever the brokers do."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from plimsoll_spark.drive import Drive, client_config, plan
from plimsoll_spark.pacing import Pace
from plimsoll_spark.producer import Plan, Sender
from plimsoll_spark.records import Encoder
from plimsoll_spark.settings import Produce, Settings

NO_SERVER = "127.0.0.1:9"


def a_plan(directory: Path, *, records: int, stop_in_s: float = 60.0, **client: Any) -> Plan:
    config = client_config(NO_SERVER, Produce(records=records), 1)
    return Plan(
        run="r",
        topic="t",
        producer=2,
        records=records,
        record_bytes=64,
        pace=None,
        keys=10,
        client={**config, "message.timeout.ms": 300, "log_level": 0, **client},
        message_timeout_s=0.3,
        stop_at_s=time.time() + stop_in_s,
        progress=directory / "2.json",
        ledger=directory / "ledger",
    )


def ledger_of(plan: Plan) -> list[dict[str, Any]]:
    return pa.Table.from_batches(Sender(plan).run()).to_pylist()


def test_unanswered_records_are_unknown(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, records=50)
    rows = sorted(ledger_of(plan), key=lambda row: row["sequence"])
    assert [row["sequence"] for row in rows] == list(range(50))
    assert {row["outcome"] for row in rows} == {"unknown"}
    assert {row["offset"] for row in rows} == {None}
    assert {row["producer"] for row in rows} == {2}
    assert all(row["settled_ms"] >= row["send_ms"] for row in rows)
    told = json.loads(plan.progress.read_text())
    told.pop("held")
    assert told == {"sent": 50, "acked": 0, "failed": 0, "unknown": 50, "stopped": None}


def test_no_record_times_out_before_drive_ends(tmp_path: Path) -> None:
    """A producer that times one out raises its epoch, and may write others twice."""
    settings = Settings(name="v", bootstrap="b", topic="t", produce=Produce(records=9))
    for ends_in_s in (5.0, 3600.0, 10.0**9):
        drive = Drive(
            run="r",
            settings=settings,
            producers=2,
            stop_at_s=time.time() + ends_in_s,
            settled_by_s=time.time() + ends_in_s,
            work=tmp_path,
        )
        for one in plan(drive):
            allowed_s = one.client["message.timeout.ms"] / 1000
            assert allowed_s == one.message_timeout_s
            assert min(ends_in_s, 2_147_000) < allowed_s <= 2_147_483


def test_full_queue_holds_records_back_and_loses_none(tmp_path: Path) -> None:
    queue = {"queue.buffering.max.messages": 10}
    rows = ledger_of(a_plan(tmp_path, records=25, **queue))
    assert sorted(row["sequence"] for row in rows) == list(range(25))


def test_producer_stops_at_deadline_with_reason(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, records=100_000, stop_in_s=-1.0)
    rows = ledger_of(plan)
    told = json.loads(plan.progress.read_text())
    assert told["sent"] == len(rows) < 100_000
    assert "deadline" in told["stopped"]


def test_record_is_never_sent_before_its_time(tmp_path: Path) -> None:
    plan = replace(a_plan(tmp_path, records=40), pace=Pace.steady(80.0))
    before_ms = time.time() * 1000
    rows = ledger_of(plan)
    early = [r["sequence"] for r in rows if r["send_ms"] - before_ms < r["sequence"] * 12.5 - 1]
    assert early == []
    assert len(rows) == 40


def test_records_of_a_burst_are_sent_together(tmp_path: Path) -> None:
    plan = replace(a_plan(tmp_path, records=40), pace=Pace.steady(80.0), burst_s=0.25)
    before_ms = time.time() * 1000
    sent = {row["sequence"]: row["send_ms"] - before_ms for row in ledger_of(plan)}
    assert min(at for sequence, at in sent.items() if sequence >= 2) > 249
    assert min(at for sequence, at in sent.items() if sequence >= 22) > 499
    assert len(sent) == 40


def test_producer_notes_when_it_did_not_run(tmp_path: Path) -> None:
    sender = Sender(a_plan(tmp_path, records=1))
    now_s = time.monotonic()
    sender._note_held(now_s)
    sender._note_held(now_s + 0.05)
    sender._note_held(now_s + 3.05)
    ((begin_ms, end_ms),) = sender._held
    assert end_ms - begin_ms == pytest.approx(3000)


class Delivered:
    """A delivery report's message, as `confluent_kafka.Message` shows it."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return -1001

    def latency(self) -> float:
        return 0.5


MAY_FOLLOW_AN_APPEND = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)


def outcome_after(directory: Path, code: int) -> str:
    """Of a record whose last attempt was refused so."""
    plan = a_plan(directory, records=1)
    sender: Any = Sender(plan)
    sender._pending[0] = 0.0
    message = Delivered(Encoder(run="r", producer=2, record_bytes=64).value(0))
    sender._settle(KafkaError(code), message)
    return str(sender._take_rows().to_pylist()[0]["outcome"])


@pytest.mark.parametrize("code", MAY_FOLLOW_AN_APPEND)
def test_record_refused_changeably_is_unknown(code: int, tmp_path: Path) -> None:
    """The attempt before may have been appended, and its answer lost."""
    assert outcome_after(tmp_path, code) == "unknown"


def test_record_refused_permanently_failed(tmp_path: Path) -> None:
    assert outcome_after(tmp_path, KafkaError.INVALID_REQUIRED_ACKS) == "failed"

"""What a verification is asked to do: read, defaulted, or refused with a sentence."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll_spark import verification
from plimsoll_spark.drive import Drive, client_config, plan
from plimsoll_spark.pacing import Pace
from plimsoll_spark.settings import ALL_CHECKS, Produce, Refusal, Refused, check, load

BASE = {
    "name": "soak",
    "bootstrap": "main-bootstrap.kafka.svc:9092",
    "topic": "orders",
    "produce": {"records": 1000},
    "report": {"configMap": "soak-report", "namespace": "kafka"},
}


def write(directory: Path, **changes: object) -> Path:
    path = directory / "verification.json"
    path.write_text(json.dumps({**BASE, **changes}))
    return path


def test_settings_omitted_or_null_take_their_defaults(tmp_path: Path) -> None:
    produce = {"records": 5, "recordBytes": None, "recordsPerSecond": None}
    settings = load(write(tmp_path, produce=produce, verify={"checks": None}))
    assert settings.produce == Produce(records=5)
    assert settings.checks == ALL_CHECKS
    assert settings.produce.is_idempotent
    assert settings.verify.min_acked_percent == 99
    assert not settings.allow_existing


@pytest.mark.parametrize("acks", ["Leader", "None"])
def test_default_checks_follow_acks(tmp_path: Path, acks: str) -> None:
    """A record that only its leader acknowledged may be lost with it."""
    settings = load(write(tmp_path, produce={"records": 5, "acks": acks}))
    check(settings)
    assert not settings.produce.is_idempotent
    assert settings.checks == ("NoDuplicate", "Order", "NoGap")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"produce": {"records": 0}}, "produce.records"),
        ({"produce": {"records": 1, "recordBytes": 8}}, "produce.recordBytes"),
        ({"produce": {"records": 1, "acks": "Leader", "idempotent": True}}, "idempotent"),
        ({"report": {}}, "configMap or a directory"),
        ({"report": {"configMap": "x"}}, "namespace"),
        ({"produce": {"records": 1, "acks": "Most"}}, "acks"),
        ({"verify": {"checks": ["NoLuck"]}}, "NoLuck"),
        ({"verify": {"checks": []}}, "names no check"),
        ({"verify": {"minAckedPercent": 101}}, "minAckedPercent"),
        ({"runner": {"executors": 33}}, "runner.executors"),
    ],
)
def test_wrong_request_is_refused_with_a_sentence(
    tmp_path: Path, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(Refusal) as refused:
        check(load(write(tmp_path, **changes)))
    assert refused.value.reason is Refused.INVALID_SPEC
    assert sentence in refused.value.message


@pytest.fixture
def kept_umask() -> Iterator[None]:
    """The verification's process sets its own; this one's is restored."""
    kept = os.umask(0o077)
    yield
    os.umask(kept)


@pytest.mark.usefixtures("kept_umask")
def test_refusal_is_in_the_report(tmp_path: Path) -> None:
    report = tmp_path / "report"
    produce = {"records": 1, "acks": "Leader", "idempotent": True}
    path = write(tmp_path, produce=produce, report={"directory": str(report)})
    assert verification.main(["--config", str(path)]) == verification.REFUSED
    told = json.loads((report / "verdict.json").read_text())
    assert (told["verdict"], told["reason"]) == ("Inconclusive", "InvalidSpec")
    assert "idempotent" in told["message"]


def test_plans_share_all_records_and_rate(tmp_path: Path) -> None:
    settings = load(write(tmp_path, produce={"records": 1001, "recordsPerSecond": 500}))
    drive = Drive(run="r", settings=settings, producers=3, stop_at_s=0.0, work=tmp_path)
    plans = plan(drive)
    assert sorted(p.records for p in plans) == [333, 334, 334]
    rates = [p.pace.steps[0][1] for p in plans if p.pace is not None]
    assert sum(rates) == pytest.approx(500)
    assert len({p.producer for p in plans}) == 3


STEPS = [{"for": "10s", "recordsPerSecond": 100}, {"for": "1m", "recordsPerSecond": 5}]


def test_profile_states_records_and_rates(tmp_path: Path) -> None:
    settings = load(write(tmp_path, produce={"load": {"profile": STEPS}}))
    check(settings)
    assert settings.produce.total == 1_300
    assert settings.produce.pace == Pace(((10, 100), (60, 5)))


@pytest.mark.parametrize(
    ("produce", "text"),
    [
        ({"records": 10, "load": {"profile": STEPS}}, "set either"),
        ({}, "set either"),
        ({"load": {"profile": STEPS}, "recordsPerSecond": 5}, "leave recordsPerSecond out"),
        ({"load": {"profile": [{"for": "soon", "recordsPerSecond": 5}]}}, "'soon'"),
        ({"load": {"profile": [{"for": "1s", "recordsPerSecond": 0}]}}, "needs at least one step"),
    ],
)
def test_impossible_load_is_refused(tmp_path: Path, produce: dict[str, Any], text: str) -> None:
    with pytest.raises(Refusal, match=text):
        check(load(write(tmp_path, produce=produce)))


def test_producer_without_sequences_sends_singly() -> None:
    one = "max.in.flight.requests.per.connection"
    assert client_config("b", Produce(records=1, idempotent=False), 2)[one] == 1
    assert one not in client_config("b", Produce(records=1), 2)


def test_delivery_outlasts_a_failover() -> None:
    config = client_config("b", Produce(records=1), 2)
    assert config["message.timeout.ms"] >= 60_000
    assert config["socket.connection.setup.timeout.ms"] <= 5_000

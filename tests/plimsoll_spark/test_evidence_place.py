"""A run's directory in its evidence: what is kept, for whom, and what a later driver judges."""

import stat
from pathlib import Path
from typing import Any

import pytest

from plimsoll_spark.evidence import Evidence, begun, resumed
from plimsoll_spark.settings import Evidence as Requested
from plimsoll_spark.settings import Produce, Refusal, Refused, Settings, check
from plimsoll_spark.topics import OffsetRange

BEFORE = {0: OffsetRange(log_start_offset=3, log_end_offset=7)}


def settings(directory: Path, topic: str = "t", **evidence: Any) -> Settings:
    return Settings(
        name="check",
        bootstrap="b",
        topic=topic,
        produce=Produce(records=5),
        evidence=Requested(directory=str(directory), **evidence),
    )


def start(asked: Settings, work: Path) -> Evidence:
    made = Evidence(asked, work)
    assert made.earlier() is None
    made.begin(begun(asked, "check-1", "id", BEFORE))
    return made


def test_later_driver_finds_run_and_failure(tmp_path: Path) -> None:
    asked = settings(tmp_path / "kept")
    first = start(asked, tmp_path)
    kept = begun(asked, "check-1", "id", BEFORE)
    first.note_failure(kept, "DiskFull", "no space is left")
    found = Evidence(asked, tmp_path).earlier()
    assert found is not None
    assert (found.id, found.ranges, found.reason) == ("check-1", BEFORE, "DiskFull")
    assert resumed(found, asked).attempt == 2


def test_run_of_another_topic_is_refused(tmp_path: Path) -> None:
    start(settings(tmp_path / "kept"), tmp_path)
    other = settings(tmp_path / "kept", topic="other")
    found = Evidence(other, tmp_path).earlier()
    assert found is not None
    with pytest.raises(Refusal) as refused:
        resumed(found, other)
    assert refused.value.reason is Refused.WRONG_RUN


def test_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    asked = settings(tmp_path / "file")
    with pytest.raises(Refusal) as refused:
        Evidence(asked, tmp_path).begin(begun(asked, "check-1", None, BEFORE))
    assert refused.value.reason is Refused.EVIDENCE_UNUSABLE


@pytest.mark.parametrize(
    ("keep", "kept_after"),
    [
        ("Always", ["Passed", "Violated", "Inconclusive"]),
        ("OnViolation", ["Violated", "Inconclusive"]),
        ("Never", []),
    ],
)
def test_verdict_decides_if_evidence_stays(
    tmp_path: Path, keep: str, kept_after: list[str]
) -> None:
    made = start(settings(tmp_path / "kept", keep=keep), tmp_path)
    verdicts = ("Passed", "Violated", "Inconclusive")
    assert [one for one in verdicts if made.stays(one)] == kept_after
    made.discard()
    assert not made.directory.exists()


def test_results_are_for_the_drivers_user_alone(tmp_path: Path) -> None:
    made = start(settings(tmp_path / "kept"), tmp_path)
    (made.directory / "spark-events/log").write_text("{}")
    (made.directory / "spark-events/log").chmod(0o660)
    assert made.store_results({"verdict.json": "{}"}) is None
    modes = [stat.S_IMODE(path.stat().st_mode) for path in made.directory.rglob("*")]
    assert len(modes) == 5
    assert [mode for mode in modes if mode & 0o077] == []


@pytest.mark.parametrize("run", ["../else", "..", "a/b"])
def test_run_name_that_is_a_path_is_refused(tmp_path: Path, run: str) -> None:
    with pytest.raises(Refusal, match="must not be a path"):
        check(settings(tmp_path, resume=run))

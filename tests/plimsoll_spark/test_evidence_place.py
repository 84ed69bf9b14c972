"""A run's directory in its evidence: what is kept, for whom, and what a later driver judges."""

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from plimsoll_spark import evidence
from plimsoll_spark.attempts import Attempt, Claim, Superseded
from plimsoll_spark.evidence import BegunMeanwhile, Evidence, begun, resumed
from plimsoll_spark.run import Run
from plimsoll_spark.settings import Evidence as Requested
from plimsoll_spark.settings import Produce, Refusal, Refused, Settings, check
from plimsoll_spark.topics import OffsetRange, Ranges

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


def written_runs(driver: Evidence) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (driver.directory / "runs").iterdir()}


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


def test_run_that_is_judged_again_stays(tmp_path: Path) -> None:
    """It may be the proof of a violation, which other checks do not look for."""
    start(settings(tmp_path / "kept"), tmp_path)
    again_asked = settings(tmp_path / "kept", resume="check", keep="Never")
    again = Evidence(again_asked, tmp_path)
    found = again.earlier()
    assert found is not None
    assert not again.stays("Passed"), "it has not begun"
    again.begin(resumed(found, again_asked))
    assert again.stays("Passed")


def test_attempt_is_durable_before_records_are_written(tmp_path: Path) -> None:
    """A driver that reads an older attempt gives out its producers' numbers again."""
    with mock.patch.object(evidence, "put_whole", wraps=evidence.put_whole) as put:
        start(settings(tmp_path / "kept"), tmp_path)
    assert [one.kwargs for one in put.call_args_list] == [{"durable": True}]


def test_results_are_for_the_drivers_user_alone(tmp_path: Path) -> None:
    made = start(settings(tmp_path / "kept"), tmp_path)
    (made.directory / "spark-events/log").write_text("{}")
    (made.directory / "spark-events/log").chmod(0o660)
    assert made.store_results({"verdict.json": "{}"}) is None
    modes = [stat.S_IMODE(path.stat().st_mode) for path in made.directory.rglob("*")]
    assert len(modes) == 9
    assert [mode for mode in modes if mode & 0o077] == []


@pytest.mark.parametrize("run", ["../else", "..", "a/b"])
def test_run_name_that_is_a_path_is_refused(tmp_path: Path, run: str) -> None:
    with pytest.raises(Refusal, match="must not be a path"):
        check(settings(tmp_path, resume=run))


def test_earlier_driver_writes_nothing_beside_a_later_one(tmp_path: Path) -> None:
    """Its node was deleted, and its process goes on."""
    asked = settings(tmp_path / "kept")
    first = start(asked, tmp_path)
    kept = begun(asked, "check-1", "id", BEFORE)
    first.check()
    second = Evidence(asked, tmp_path)
    found = second.earlier()
    assert found is not None
    second.begin(resumed(found, asked))
    before = written_runs(second)
    assert sorted(before) == ["000001.json", "000002.json"]
    for write in (
        first.check,
        lambda: first.note_failure(kept, "DiskFull", "no space is left"),
        lambda: first.store_results({"verdict.json": "{}"}),
        first.discard,
    ):
        with pytest.raises(Superseded, match=r"number 1, ends .* a later one, number 2, has begun"):
            write()
    assert written_runs(second) == before
    assert list((second.directory / "results").iterdir()) == []
    assert second.store_results({"verdict.json": "{}"}) is None


def test_late_results_replace_no_later_drivers(tmp_path: Path) -> None:
    """The earlier driver pauses after it looked for a later one."""
    asked = settings(tmp_path / "kept")
    first, second = start(asked, tmp_path), Evidence(asked, tmp_path)
    put_whole = evidence.put_whole

    def pause(path: Path, content: bytes, **more: Any) -> None:
        if content == b"first":
            found = second.earlier()
            assert found is not None
            second.begin(resumed(found, asked))
            assert second.store_results({"verdict.json": "second"}) is None
        put_whole(path, content, **more)

    with mock.patch.object(evidence, "put_whole", pause):
        first.store_results({"verdict.json": "first"})
    results = second.directory / "results"
    assert {path.parent.name: path.read_text() for path in results.rglob("*.json")} == {
        "000001": "first",
        "000002": "second",
    }


@pytest.mark.parametrize("first_begins", [True, False])
def test_driver_never_follows_one_that_claimed_later(tmp_path: Path, first_begins: bool) -> None:
    """It pauses between its claim and its evidence: else both would end."""
    asked = settings(tmp_path / "kept")
    first, second = Evidence(asked, tmp_path), Evidence(asked, tmp_path)
    kept = begun(asked, "check-1", "id", BEFORE)
    if first_begins:
        first.begin(kept, Claim(report="u", number=1))
        second.begin(resumed(kept, asked), Claim(report="u", number=2))
        with pytest.raises(Superseded):
            first.check()
    else:
        second.begin(kept, Claim(report="u", number=2))
        with pytest.raises(Superseded, match="number 2, has begun"):
            first.begin(kept, Claim(report="u", number=1))
    second.check()


def test_claims_of_other_reports_have_no_order(tmp_path: Path) -> None:
    """Another Verification judges the run again."""
    asked = settings(tmp_path / "kept")
    first, again = Evidence(asked, tmp_path), Evidence(asked, tmp_path)
    kept = first.begin(begun(asked, "check-1", "id", BEFORE), Claim(report="u", number=7))
    assert again.begin(resumed(kept, asked), Claim(report="v", number=1)).attempt == 2
    again.check()


def test_claimed_drivers_all_take_their_numbers(tmp_path: Path) -> None:
    """Another one creates the marker of the number that this one has found free."""
    asked = settings(tmp_path / "kept")
    first, second = Evidence(asked, tmp_path), Evidence(asked, tmp_path)
    kept = begun(asked, "check-1", "id", BEFORE)
    create = Attempt._create

    def pause(attempt: Attempt, number: int) -> bool:
        if number == 1 and not (first.directory / "attempts/000001").exists():
            first.directory.joinpath("attempts/000001").write_bytes(b"")  # it died at once
        return create(attempt, number)

    with mock.patch.object(Attempt, "_create", pause):
        assert second.begin(kept, Claim(report="u", number=2)).attempt == 2
    second.check()


def test_no_two_drivers_have_the_same_number(tmp_path: Path) -> None:
    """Producers' numbers follow from it."""
    asked = settings(tmp_path / "kept")
    start(asked, tmp_path)
    drivers = [Evidence(asked, tmp_path) for _ in range(8)]
    begin_at = threading.Barrier(len(drivers))

    def begin(driver: Evidence) -> int | None:
        found = driver.earlier()
        assert found is not None
        begin_at.wait(60)
        try:
            return driver.begin(resumed(found, asked)).attempt
        except Superseded:
            return None

    with ThreadPoolExecutor(len(drivers)) as pool:
        numbers = list(pool.map(begin, drivers))
    taken = [one for one in numbers if one is not None]
    assert len(taken) == len(set(taken)) > 0
    drivers[numbers.index(max(taken))].check()


def test_driver_that_died_at_its_start_is_followed(tmp_path: Path) -> None:
    """It took a number and wrote nothing: the next one writes the records."""
    asked = settings(tmp_path / "kept")
    with (
        mock.patch.object(evidence, "put_whole", side_effect=OSError("no power")),
        pytest.raises(Refusal),
    ):
        start(asked, tmp_path)
    second = Evidence(asked, tmp_path)
    assert second.earlier() is None
    kept = second.begin(begun(asked, "check-1", "id", BEFORE))
    assert (kept.attempt, kept.writes) == (2, True)
    third = Evidence(asked, tmp_path)
    with (
        mock.patch.object(evidence, "put_whole", side_effect=OSError("no power")),
        pytest.raises(Refusal),
    ):
        third.begin(resumed(kept, asked))
    fourth = Evidence(asked, tmp_path)
    found = fourth.earlier()
    assert found is not None
    kept = fourth.begin(resumed(found, asked))
    assert (kept.attempt, kept.writes) == (4, False)
    fourth.check()


def test_driver_without_its_evidence_writes_nothing(tmp_path: Path) -> None:
    asked = settings(tmp_path / "kept")
    first = start(asked, tmp_path)
    again = Evidence(asked, tmp_path)
    found = again.earlier()
    assert found is not None
    again.begin(resumed(found, asked))
    again.discard()
    with pytest.raises(Superseded, match="its evidence is deleted"):
        first.store_results({"verdict.json": "{}"})
    assert not first.directory.exists()


def test_paused_drivers_run_replaces_no_later_one(tmp_path: Path) -> None:
    """Else the next one's acknowledgements are judged by another run's salt."""
    asked = settings(tmp_path / "kept")
    first, second = Evidence(asked, tmp_path), Evidence(asked, tmp_path)
    take = Attempt.take

    def take_and_pause(attempt: Attempt, least: int) -> int:
        number = take(attempt, least)
        if number == 1:
            assert second.earlier() is None
            second.begin(begun(asked, "check-second", "id", BEFORE))
        return number

    assert first.earlier() is None
    with (
        mock.patch.object(Attempt, "take", take_and_pause),
        pytest.raises(Superseded, match="number 1, ends"),
    ):
        first.begin(begun(asked, "check-first", "id", BEFORE))
    second.check()
    found = Evidence(asked, tmp_path).earlier()
    assert found is not None
    assert (found.id, found.attempt, found.writes) == ("check-second", 2, True)


def test_run_that_another_driver_began_is_continued(tmp_path: Path) -> None:
    asked = settings(tmp_path / "kept")
    late = Evidence(asked, tmp_path)
    assert late.earlier() is None
    first = start(asked, tmp_path)
    with pytest.raises(BegunMeanwhile):
        late.begin(begun(asked, "check-late", "id", BEFORE))
    found = late.earlier()
    assert found is not None
    assert found.id == "check-1"
    kept = late.begin(resumed(found, asked))
    assert (kept.id, kept.writes) == ("check-1", False)
    late.check()
    with pytest.raises(Superseded):
        first.check()


def test_run_of_an_earlier_release_is_found(tmp_path: Path) -> None:
    """Its only file is `run.json`."""
    asked = settings(tmp_path / "kept")
    made = Evidence(asked, tmp_path)
    made.directory.mkdir(parents=True)
    kept = begun(asked, "check-old", "id", BEFORE)
    (made.directory / "run.json").write_bytes(msgspec.json.encode(kept))
    found = made.earlier()
    assert found is not None
    kept = made.begin(resumed(found, asked))
    assert (kept.id, kept.attempt, kept.writes) == ("check-old", 2, False)
    assert Evidence(asked, tmp_path).earlier() == kept


def test_run_begins_again_after_another_drivers_beginning(tmp_path: Path) -> None:
    asked = settings(tmp_path / "kept")
    kept, others = Evidence(asked, tmp_path), Evidence(asked, tmp_path)
    client = mock.Mock()
    client.topic_id.return_value = "id"

    def ranges(partitions: object, within_s: float) -> Ranges:
        others.begin(begun(asked, "check-other", "id", BEFORE))
        return {}

    client.ranges.side_effect = ranges
    found = Run(asked, mock.Mock(), tmp_path, kept)._begun(client)
    assert (found.id, found.writes) == ("check-other", False)
    assert client.ranges.call_count == 1

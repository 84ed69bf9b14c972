"""A driver that was paused, and has a successor, publishes nothing and writes no record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.plimsoll_spark.test_publish import ApiServer, api

from plimsoll_spark import continuous, verification
from plimsoll_spark import run as runs
from plimsoll_spark.attempts import Superseded
from plimsoll_spark.continuous import ContinuousRun
from plimsoll_spark.evidence import Evidence
from plimsoll_spark.publish import publisher_for
from plimsoll_spark.run import Run
from plimsoll_spark.settings import Evidence as Requested
from plimsoll_spark.settings import Produce, Refusal, Report, Settings
from plimsoll_spark.topics import OffsetRange, Ranges

__all__ = ["api"]

FOREIGN = {0: OffsetRange(log_start_offset=0, log_end_offset=9)}
"""A log with records: the successor's, as the paused driver sees it."""


def asked(api: ApiServer, kept: Path | None, **more: Any) -> Settings:
    server = f"http://127.0.0.1:{api.server_address[1]}"
    evidence = None if kept is None else Requested(directory=str(kept), keep="Never", attempts=2)
    values: dict[str, Any] = {"produce": Produce(records=5)} | more
    return Settings(
        name="check",
        bootstrap="b",
        topic="t",
        report=Report(config_map="check-report", namespace="kafka", server=server),
        evidence=evidence,
        **values,
    )


def a_run(settings: Settings, work: Path) -> Run:
    return Run(settings, publisher_for(settings.report), work, Evidence(settings, work))


@contextmanager
def a_topic(*looks: Ranges) -> Iterator[mock.Mock]:
    """A topic of which the ranges are `looks`, one after another."""
    with mock.patch.object(runs, "TopicClient") as made:
        client = made.return_value
        client.partitions.return_value = (0,)
        client.topic_id.return_value = "id"
        client.ranges.side_effect = looks
        yield client


def successor(settings: Settings) -> Ranges:
    """Another driver of the run, from its start to its verdict. Return the log that it leaves."""
    later = publisher_for(settings.report)
    later.claim(within_s=5)
    later.put({"progress.json": "later", "verdict.json": "later"}, within_s=5)
    return FOREIGN


def test_paused_drivers_refusal_replaces_no_verdict(api: ApiServer, tmp_path: Path) -> None:
    """It looks at the topic after its successor has written to it, and deleted its evidence."""
    settings = asked(api, tmp_path / "kept")
    with a_topic() as client:
        client.ranges.side_effect = lambda *_: successor(settings)
        with pytest.raises(Superseded):
            verification._run(a_run(settings, tmp_path))
    assert (api.data["verdict.json"], api.data["progress.json"]) == ("later", "later")


def test_driver_that_wakes_after_the_verdict_ends(api: ApiServer, tmp_path: Path) -> None:
    """Else it refuses the topic, which holds its successor's records."""
    settings = asked(api, tmp_path / "kept")
    successor(settings)
    with a_topic(FOREIGN), pytest.raises(Superseded, match="has its verdict"):
        verification._run(a_run(settings, tmp_path))
    assert (api.data["verdict.json"], api.data["progress.json"]) == ("later", "later")


def test_paused_driver_with_a_successor_writes_no_record(api: ApiServer, tmp_path: Path) -> None:
    settings = asked(api, tmp_path / "kept")
    with (
        a_topic({0: OffsetRange(log_start_offset=0, log_end_offset=0)}),
        mock.patch("plimsoll_spark.session.build", side_effect=lambda **_: pause(settings)),
        mock.patch("plimsoll_spark.executor_start.wait"),
        mock.patch("plimsoll_spark.drive.run_drive") as run_drive,
        pytest.raises(Superseded),
    ):
        verification._run(a_run(settings, tmp_path))
    assert run_drive.call_count == 0
    assert api.data["verdict.json"] == "later"


def pause(settings: Settings) -> mock.Mock:
    successor(settings)
    return mock.Mock()


@pytest.mark.parametrize("allow_existing", [False, True])
def test_second_driver_without_evidence_does_nothing(
    api: ApiServer, tmp_path: Path, allow_existing: bool
) -> None:
    """It does not know which records are of the first one, which goes on."""
    settings = asked(api, None, allow_existing=allow_existing)
    first = publisher_for(settings.report)
    first.claim(within_s=5, alone=True)
    with a_topic(FOREIGN) as client, pytest.raises(Superseded):
        verification._run(a_run(settings, tmp_path))
    assert client.mock_calls == []
    first.put({"verdict.json": "first"}, within_s=5)
    assert api.data["verdict.json"] == "first"


def continued(settings: Settings, work: Path) -> ContinuousRun:
    with mock.patch.object(continuous, "TopicClient"):
        return ContinuousRun(
            settings, publisher_for(settings.report), Evidence(settings, work, parts=frozenset())
        )


def endless(api: ApiServer, kept: Path | None) -> Settings:
    return asked(api, kept, mode="Continuous", produce=Produce(records=0, records_per_second=9))


def test_paused_continuous_driver_refuses_no_running_topic(api: ApiServer, tmp_path: Path) -> None:
    settings = endless(api, tmp_path / "kept")
    run = continued(settings, tmp_path)
    run._client.ranges.side_effect = lambda *_: successor(settings)
    with pytest.raises(Refusal) as refused:
        run._begin()
    with pytest.raises(Superseded):
        run.publish_outcome("Inconclusive", refused.value.reason.value, "", "Failed")
    assert api.data["verdict.json"] == "later"


def test_unreadable_report_is_no_sign_of_new_run(api: ApiServer, tmp_path: Path) -> None:
    """Else the records of the drivers before it were another's, and the run failed."""
    settings = endless(api, None)
    first = continued(settings, tmp_path / "first")
    first._client.ranges.return_value = {}
    first._client.topic_id.return_value = "id"
    first._begin()
    second = continued(settings, tmp_path / "second")
    second._client.topic_id.return_value = "id"

    def away(*_: object) -> Ranges:
        api.statuses = [503]
        return FOREIGN

    second._client.ranges.side_effect = away
    assert second._begin().attempt == 1
    assert second.was_begun()

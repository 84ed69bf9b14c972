"""One audit from start to verdict, over replicas in memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.plimsoll_spark.replica_model import audited, plain_batch, replica

from plimsoll_spark.attempts import Claim
from plimsoll_spark.audit import Audit, MirrorFindings
from plimsoll_spark.audit_range import RangeAudit
from plimsoll_spark.audit_settings import AuditSettings, ExistingTopicsSource, MirrorOf, Source
from plimsoll_spark.existing_topics import AuditedPartition, ExistingTopics, Found
from plimsoll_spark.job_watch import TimeUp
from plimsoll_spark.mirror import MirrorAudit
from plimsoll_spark.replica_reader import Place
from plimsoll_spark.topics import OffsetRange
from plimsoll_spark.values import Outcome


class AuditRun:
    """An audit of topic t, in which one replica is damaged if `is_damaged`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Path) -> None:
        self.is_damaged = True
        self.comes_late = False
        self.ids: list[str | None] = ["A", "A"]
        self.mirrors = MirrorFindings()
        self._patch = monkeypatch
        self._work = work

    def execute(self) -> Outcome:
        log = OffsetRange(log_start_offset=0, log_end_offset=30)
        one = AuditedPartition(
            topic="t",
            partition=0,
            log=log,
            replicas=tuple(Place("t", 0, number, "h", 1) for number in (0, 1)),
            in_sync=frozenset({0, 1}),
            away=(),
        )
        put = self._patch.setattr
        put(ExistingTopics, "partitions", lambda *_, **__: Found([one], ()))
        ids = iter(self.ids)
        put(ExistingTopics, "ids", lambda *_, **__: {"t": next(ids)})
        put(ExistingTopics, "compacted", lambda *_: {"t": False})
        put("plimsoll_spark.session.build", lambda **_: SimpleNamespace(stop=lambda: None))
        put(Audit, "_audited", self._audited)
        put(Audit, "_mirrored", lambda *_: self.mirrors)
        topics = ExistingTopicsSource(match_pattern="t", topics=("t",))
        settings = AuditSettings(
            name="a",
            bootstrap="h:1",
            source=Source(existing_topics=topics, mirror_of=MirrorOf(bootstrap="o:1")),
            deadline_seconds=60,
        )
        publisher: Any = SimpleNamespace(
            claim=lambda within_s: Claim(), put=lambda texts, within_s: None
        )
        return Audit(settings, publisher, self._work).execute()

    def _audited(self, *_: object) -> list[RangeAudit]:
        held = [replica([plain_batch(base) for base in range(0, 30, 3)]) for _ in range(2)]
        held[1].file[64] ^= self.is_damaged
        found = audited(self._patch, self._work / "results", held)
        if self.comes_late:
            raise TimeUp
        return [found]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AuditRun:
    return AuditRun(monkeypatch, tmp_path)


def test_damage_found_before_deadline_is_violated(run: AuditRun) -> None:
    run.comes_late = True
    outcome = run.execute()
    assert (outcome.verdict, outcome.reason) == ("Violated", "ReplicaUnreadable")
    assert [(one.topic, one.brokers) for one in outcome.examples] == [("t", (1,))]


def test_no_damage_before_deadline_is_inconclusive(run: AuditRun) -> None:
    run.comes_late, run.is_damaged = True, False
    outcome = run.execute()
    assert (outcome.verdict, outcome.reason) == ("Inconclusive", "DeadlineExceeded")
    assert outcome.audited is not None
    assert outcome.audited.records == 30


def test_healthy_topic_passes(run: AuditRun) -> None:
    run.is_damaged = False
    assert run.execute().verdict == "Passed"


@pytest.mark.parametrize("later", ["B", None])
def test_topic_deleted_during_audit_is_inconclusive(run: AuditRun, later: str | None) -> None:
    run.ids = ["A", later]
    outcome = run.execute()
    assert (outcome.verdict, outcome.reason) == ("Inconclusive", "TopicRecreated")
    assert outcome.examples == ()


def compared(**values: Any) -> MirrorFindings:
    return MirrorFindings((MirrorAudit(topic="t", partition=0, **values),))


@pytest.mark.parametrize("values", [{"unread": "the source is away"}, {"behind": 7}])
def test_mirror_that_was_not_compared_is_inconclusive(
    run: AuditRun, values: dict[str, Any]
) -> None:
    run.is_damaged, run.mirrors = False, compared(**values)
    outcome = run.execute()
    assert (outcome.verdict, outcome.reason) == ("Inconclusive", "ReplicasNotRead")


def test_partition_without_mirror_is_inconclusive(run: AuditRun) -> None:
    run.is_damaged = False
    run.mirrors = MirrorFindings(compared(compared=3).results, ("t-1: no such partition",))
    assert run.execute().reason == "ReplicasNotRead"


@pytest.mark.parametrize("side", ["source", "mirror"])
def test_mirror_of_replaced_topic_is_not_judged(run: AuditRun, side: str) -> None:
    run.is_damaged = False
    run.mirrors = compared(counts={"altered": 3})
    if side == "source":
        run.mirrors = run.mirrors._replace(replaced=("t",))
    else:
        run.ids = ["A", "B"]
    outcome = run.execute()
    assert (outcome.verdict, outcome.reason) == ("Inconclusive", "TopicRecreated")

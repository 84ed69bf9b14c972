"""An audit counts each partition that it was asked for and cannot read."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from plimsoll_spark.audit import Audit
from plimsoll_spark.audit_settings import (
    AUDIT_CHECKS,
    AuditCheck,
    AuditSettings,
    ExistingTopicsSource,
    MirrorOf,
    Source,
)
from plimsoll_spark.audit_verdict import AuditFindings, Mirrored, judge_audit
from plimsoll_spark.existing_topics import ExistingTopics
from plimsoll_spark.publish import publisher_for
from plimsoll_spark.settings import Refusal, Report
from plimsoll_spark.topics import OffsetRange
from plimsoll_spark.values import Audited, Example


class Shown:
    """Takes the place of librdkafka's client: shows one partition for each leader."""

    def __init__(self, *leaders: list[int], error: object = None) -> None:
        self._shown = list(leaders)
        self._error = error
        self.polls = 0

    def list_topics(self, timeout: float) -> SimpleNamespace:
        leaders = self._shown.pop(0) if len(self._shown) > 1 else self._shown[0]
        partitions = {
            number: SimpleNamespace(id=number, leader=leader, replicas=[0, 1], isrs=[0, 1])
            for number, leader in enumerate(leaders)
        }
        topic = SimpleNamespace(partitions=partitions, error=self._error)
        brokers = {one: SimpleNamespace(id=one, host="h", port=1) for one in (0, 1)}
        return SimpleNamespace(topics={"orders": topic}, brokers=brokers)

    def describe_topics(self, topics: object, request_timeout: float) -> dict[str, Future]:
        found = {name: Future() for name in ("orders", "gone", "denied")}
        found["orders"].set_result(SimpleNamespace(topic_id="A"))
        for name, code in (
            ("gone", KafkaError.UNKNOWN_TOPIC_OR_PART),
            ("denied", KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ):
            found[name].set_exception(KafkaException(KafkaError(code)))
        return found

    def poll(self, timeout: float) -> None:
        self.polls += 1


def topics(monkeypatch: pytest.MonkeyPatch, shown: Shown, *, away_s: float = 0.0) -> ExistingTopics:
    monkeypatch.setattr("plimsoll_spark.existing_topics.AWAY_S", away_s)
    made = ExistingTopics("h:1", {})
    empty = OffsetRange(log_start_offset=0, log_end_offset=0)
    monkeypatch.setattr(made, "_admin", shown)
    monkeypatch.setattr(made, "_logs", lambda places, _: dict.fromkeys(places, empty))
    return made


def test_partition_without_leader_is_told(monkeypatch) -> None:
    found, missing = topics(monkeypatch, Shown([0, -1])).partitions(["orders"])
    assert [one.partition for one in found] == [0]
    assert missing == ("orders-1: it has no leader",)


def test_partition_in_election_is_waited_for(monkeypatch) -> None:
    shown = Shown([0, -1], [0, 1])
    found, missing = topics(monkeypatch, shown, away_s=60.0).partitions(["orders"])
    assert [one.partition for one in found] == [0, 1]
    assert (missing, shown.polls) == ((), 1)


def test_topic_that_is_absent_is_told(monkeypatch) -> None:
    found, missing = topics(monkeypatch, Shown([0])).partitions(["gone", "orders"])
    assert [one.topic for one in found] == ["orders"]
    assert missing == ("gone: the cluster does not show it",)


def test_topic_with_metadata_error_is_told(monkeypatch) -> None:
    error = SimpleNamespace(str=lambda: "it is broken")
    _, missing = topics(monkeypatch, Shown([], error=error)).partitions(["orders"])
    assert missing == ("orders: the cluster's metadata say: it is broken",)


def test_ids_tell_absent_topics_from_denied(monkeypatch) -> None:
    names = ("orders", "gone", "denied")
    assert topics(monkeypatch, Shown([0])).ids(names) == {"orders": "A", "gone": None}


def test_audit_without_a_partition_is_inconclusive() -> None:
    verdict = judge_audit(AUDIT_CHECKS, AuditFindings())
    assert (verdict.verdict, verdict.reason.value) == ("Inconclusive", "ReplicasNotRead")


def test_audit_with_missing_partition_names_it() -> None:
    findings = AuditFindings(audited=Audited(partitions=1), missing=("orders-1: it has no leader",))
    verdict = judge_audit(AUDIT_CHECKS, findings)
    assert verdict.verdict == "Inconclusive"
    assert "orders-1: it has no leader" in verdict.message


READ = Audited(topics=2, partitions=2, replicas=6, batches=9, records=9)


@pytest.mark.parametrize(
    ("checks", "findings"),
    [
        (AUDIT_CHECKS, AuditFindings(audited=Audited(topics=1, partitions=1, replicas=3))),
        (
            ("MirrorEqual",),
            AuditFindings(
                audited=Audited(partitions=1), mirrored=Mirrored(compared=0, extra=0, behind=0)
            ),
        ),
    ],
    ids=["empty logs", "empty mirror"],
)
def test_audit_of_no_record_proves_nothing(
    checks: tuple[AuditCheck, ...], findings: AuditFindings
) -> None:
    verdict = judge_audit(checks, findings)
    assert (verdict.verdict, verdict.reason.value) == ("Inconclusive", "ReplicasNotRead")
    assert "nothing is proven" in verdict.message


@pytest.mark.parametrize(
    ("checks", "unknown", "verdict"),
    [
        (AUDIT_CHECKS, ("orders",), "Inconclusive"),
        (AUDIT_CHECKS, ("others",), "Passed"),
        (("Readable",), ("orders",), "Passed"),
    ],
    ids=["unknown", "compacted", "unchecked"],
)
def test_missing_offsets_need_a_known_cause(
    checks: tuple[AuditCheck, ...], unknown: tuple[str, ...], verdict: str
) -> None:
    findings = AuditFindings(audited=READ, unknown=unknown, excused=("orders",))
    found = judge_audit(checks, findings)
    assert found.verdict == verdict
    assert ("give it DescribeConfigs" in found.message) is (verdict == "Inconclusive")
    assert ("NoGap was not judged of 1 compacted topics" in found.message) is (
        (checks, verdict) == (AUDIT_CHECKS, "Passed")
    )


def test_replicas_outside_their_isr_are_told() -> None:
    verdict = judge_audit(AUDIT_CHECKS, AuditFindings(audited=READ, behind=2))
    assert verdict.verdict == "Passed"
    assert "2 replicas outside their ISR end early" in verdict.message


@pytest.mark.parametrize(("kind", "told"), [("unreadable", True), ("different", True),
                                            ("gap", False)])  # fmt: skip
def test_damaged_replica_comes_with_its_remedy(kind: str, told: bool) -> None:
    example = Example(
        topic="orders", partition=1, offset=6, kind=kind, brokers=(2,), valid_brokers=(0,)
    )
    findings = AuditFindings(counts={kind: 1}, examples=(example,))
    verdict = judge_audit(AUDIT_CHECKS, findings)
    assert verdict.verdict == "Violated"
    assert ("Replace a damaged replica" in verdict.message) is told


def test_login_for_other_brokers_is_not_used(tmp_path: Path) -> None:
    """Else whoever writes a Verification could have another's password sent to a server of
    theirs."""
    text = "bootstrap.servers=kafka-0:9092,kafka-1:9092\nsasl.password=s\n"
    (tmp_path / "librdkafka.conf").write_text(text)
    source = Source(existing_topics=ExistingTopicsSource(match_pattern="o"))
    settings = AuditSettings(name="a", bootstrap="b", source=source, mirror_login=tmp_path)
    audit = Audit(settings, publisher_for(Report(directory=str(tmp_path))), tmp_path)
    assert audit._source_login(MirrorOf(bootstrap="kafka-1:9092")) == {"sasl.password": "s"}
    for other in ("evil:9092", "kafka-1:9092,evil:9092"):
        with pytest.raises(Refusal, match="login for other brokers"):
            audit._source_login(MirrorOf(bootstrap=other))

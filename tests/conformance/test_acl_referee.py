"""Kafka's own authorizer decides random sets of ACLs as the index of ACLs does."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.acl_referee import QUESTIONS, Referee, differences
from tests.conformance.kafka_jars import KafkaJars

SETS = 200


def test_index_of_acls_decides_as_kafkas_authorizer(tmp_path: Path, jars: KafkaJars) -> None:
    asked, found = differences(Referee(jars, tmp_path), seed=1, sets=SETS)
    assert asked == SETS * QUESTIONS
    assert found == []

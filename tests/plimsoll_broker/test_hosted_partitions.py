"""Partitions by name: what is remembered of an answer goes with whatever it was made from."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from plimsoll_broker.replication.hosted_partitions import HostedPartitions
from plimsoll_core.cluster.model import PartitionKey

FIRST, SECOND = UUID(int=1), UUID(int=2)


@pytest.fixture
def partitions() -> HostedPartitions:
    made = HostedPartitions()
    made.named({"t": FIRST})
    made[key(FIRST)] = hosted("first")
    assert made.by_name("t", 0) == made.by_name("t", 0) == "first"
    return made


def key(topic_id: UUID) -> PartitionKey:
    return PartitionKey(topic_id, 0)  # type: ignore[arg-type]


def hosted(name: str) -> Any:
    return name


def test_removed_partition_is_not_found_by_name(partitions: HostedPartitions) -> None:
    del partitions[key(FIRST)]
    assert partitions.by_name("t", 0) is None
    partitions[key(FIRST)] = hosted("again")
    assert partitions.by_name("t", 0) == "again"
    assert partitions.take(key(FIRST)) == "again"
    assert partitions.by_name("t", 0) is None
    assert partitions.take(key(FIRST)) is None


def test_recreated_topic_is_a_different_one(partitions: HostedPartitions) -> None:
    partitions.named({"t": SECOND})
    assert partitions.by_name("t", 0) is None, "the deleted one is still here, under no name"
    partitions[key(SECOND)] = hosted("second")
    assert partitions.by_name("t", 0) == "second"


def test_name_that_no_topic_has_is_not_remembered(partitions: HostedPartitions) -> None:
    for index in range(3):
        assert partitions.by_name("nobody", index) is None
        assert partitions.by_name("t", 1 + index) is None
    assert set(partitions._by_name) == {("t", 0)}

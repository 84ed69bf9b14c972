"""The page of sizes states each limit as the product has it."""

from pathlib import Path

import pytest

from plimsoll_core.published_limits import (
    LIMITS,
    PARTITIONS_OF_CLUSTER_STATED_MAX,
    REPLICA_BYTES,
    REPLICAS_SHARE,
    SizeLimit,
)

PAGE = (Path(__file__).parents[2] / "docs" / "sizing.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ")
]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.what)
def test_page_has_a_row_for_each_limit(limit: SizeLimit) -> None:
    (row,) = [row for row in ROWS if row[:2] == [limit.where, f"{limit.most:,}"]]
    assert row[2].startswith(limit.beyond)


def test_page_states_memory_of_a_replica() -> None:
    assert f"memory ÷ {REPLICAS_SHARE * REPLICA_BYTES // 1024} KiB" in PAGE
    assert f"up to {PARTITIONS_OF_CLUSTER_STATED_MAX:,}" in PAGE

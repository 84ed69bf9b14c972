"""The values of a Fetch request, as `encode_request` takes them, of topics by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MIB = 2**20


def fetch_values(
    topic: str = "t",
    indexes: Iterable[int] = (0,),
    offset: int = 0,
    *,
    epoch: int = -1,
    partition_bytes_max: int = MIB,
    **fields: Any,
) -> dict[str, Any]:
    """A consumer's, which waits for nothing, of some partitions of one topic, from the same offset
    on; `fields`: what else the request holds, by Kafka's names."""
    partitions = [
        {
            "partition": index,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": partition_bytes_max,
        }
        for index in indexes
    ]
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": partition_bytes_max,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": partitions}],
        "forgotten_topics_data": [],
        "rack_id": "",
        **fields,
    }

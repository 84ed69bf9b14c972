"""Asks odd requests of a cluster, and says what each was told, for a comparison.

What two clusters need not have in common is left out of an answer: addresses, sizes, ids of topics
and producers, texts, the order of lists, and how far offsets have come.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from tests.conformance.odd.requests import TOPIC, Odd, every_request
from tests.conformance.rights.answers import Peer
from tests.plimsoll_broker.security.secured import Closed, Connection

from plimsoll_wire.api_versions import ApiKey

ANSWER_S = 10.0
"""Kafka leaves some requests without any; who is slower than this counts as one of them."""
_LEFT_OUT = frozenset(
    {
        "api_keys",
        "brokers",
        "client_host",
        "cluster_id",
        "configs",
        "controller_id",
        "error_message",
    }
    | {
        "finalized_features",
        "finalized_features_epoch",
        "host",
        "log_append_time",
        "log_dir",
        "port",
    }
    | {"log_start_offset", "partition_size", "rack", "supported_features", "throttle_time"}
    | {"total_bytes", "usable_bytes"}
)
_COUNTED = frozenset(
    {"base_offset", "end_offset", "high_watermark", "last_stable_offset", "low_watermark", "offset"}
    | {"producer_id", "session_id"}
)
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})
_MEMBER_ID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")


async def every_answer(port: int) -> dict[str, Any]:
    """Of a cluster of one broker that asks nobody who he is, by the names of requests."""
    told: dict[str, Any] = {}
    async with Peer(port, 0) as peer:
        await _prepare(peer)
        connection = await _connected(port)
        for odd in every_request(lambda: peer.ids):
            told[odd.name] = answer = await _told(peer, connection, odd)
            if isinstance(answer, str):
                connection.writer.close()
                connection = await _connected(port)
            elif odd.changes:
                await peer.put_back()
        connection.writer.close()
    return told


async def _connected(port: int) -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port))


async def _prepare(peer: Peer) -> None:
    sizes = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    made = {"topics": [{"name": TOPIC, **sizes}], "timeout": 10_000, "validate_only": False}
    told = await peer.ask(ApiKey.CREATE_TOPICS, made)
    assert {int(topic.error_code) for topic in told.topics} == {0}, told
    await peer.put_back()
    await peer.wait_for_producers()


async def _told(peer: Peer, connection: Connection, odd: Odd) -> Any:
    """A text: there is no answer."""
    connection.send(odd.key, odd.version, odd.body)
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = await connection.answer(odd.key, odd.version)
    except Closed:
        return "closed"
    except TimeoutError:
        return "silent"
    return seen(answer, {topic_id: name for name, topic_id in peer.ids.items()})


def seen(value: Any, names: Mapping[UUID, str]) -> Any:
    """What is compared; `names` of topics by their ids."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {
            name: _field(name, one, names) for name, one in fields.items() if name not in _LEFT_OUT
        }
    if isinstance(value, tuple | list):
        parts = [seen(one, names) for one in value]
        shown = [one for one in parts if not _is_internal(one)]
        return sorted(shown, key=repr)
    if isinstance(value, str):
        return _MEMBER_ID.sub("ID", value)
    if isinstance(value, int):
        return int(value)
    return value if value is None or isinstance(value, float) else repr(value)


def _field(name: str, value: Any, names: Mapping[UUID, str]) -> Any:
    if name == "topic_id":
        return None if value is None or not value.int else names.get(value, "another")
    if name == "records":
        return bool(value)
    if name == "aborted_transactions":
        return list(value or ())  # Kafka tells none by no list or by an empty one
    if name in _COUNTED:
        return min(int(value), 1)
    return seen(value, names)


def _is_internal(part: Any) -> bool:
    """A topic of the brokers' own, which Kafka has more of."""
    return isinstance(part, dict) and not _INTERNAL.isdisjoint(map(str, part.values()))

"""Requests of versions that no client sends any more, in frames of our own."""

from __future__ import annotations

import socket
import time
from typing import Any

from confluent_kafka.admin import AdminClient
from tests.integration.local_cluster import wait_for
from tests.integration.strangers import fetch_frame
from tests.plimsoll_broker.trio import a_record

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import BatchHeader, iter_headers, seal
from plimsoll_wire.compression import packed
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

TIMEOUT_S = 60
Address = tuple[str, int]


def leader_of(admin: AdminClient, topic: str) -> Address:
    """Of its only partition, once it is told."""

    def told() -> Address | None:
        all_ = admin.list_topics(timeout=TIMEOUT_S)
        found = all_.topics.get(topic)
        leader = (
            all_.brokers.get(found.partitions[0].leader) if found and found.partitions else None
        )
        return None if leader is None else (leader.host, leader.port)

    address: Address = wait_for(f"{topic} has a leader", told)
    return address


def produce(leader: Address, topic: str, codec: int, version: int) -> int:
    """The code; `version` is below 9."""
    now_ms = int(time.time() * 1000)
    header = BatchHeader(0, 0, -1, 2, 0, codec, 0, now_ms, now_ms, -1, -1, -1, 1)
    sent = {"index": 0, "records": bytes(seal(header, packed(codec, a_record(0, b"x" * 50))))}
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 5_000,
        "topic_data": [{"name": topic, "partition_data": [sent]}],
    }
    body = encode_request(ApiKey.PRODUCE, version, values)
    frame = request_frame(ApiKey.PRODUCE, version, 1, "test", body)
    reply = _answer(leader, ApiKey.PRODUCE, version, frame)
    return int(reply.responses[0].partition_responses[0].error_code)


def fetch(leader: Address, topic: str, version: int) -> tuple[int, list[int]]:
    """The code, and the codecs of the batches; `version` is below 12."""
    frame = fetch_frame(topic, 1, 0, wait_ms=1_000, version=version)
    told = _answer(leader, ApiKey.FETCH, version, frame).responses[0].partitions[0]
    return int(told.error_code), [header.codec for header in iter_headers(told.records)]


def _answer(leader: Address, key: ApiKey, version: int, frame: bytes) -> Any:
    with socket.create_connection(leader, TIMEOUT_S) as connection:
        connection.sendall(frame)
        with connection.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4))
            return decode_response(key, version, stream.read(size)[4:])

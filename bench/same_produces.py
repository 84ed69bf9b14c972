"""A producer that sends one request again and again.

The batches of a real producer depend on how fast the broker is, and what a request costs is hidden
by how many there are.  Here both are fixed: so many requests, of so many bytes.
"""

from __future__ import annotations

import socket
import struct
import time

from bench.peers.processor_time import processor_s
from tests.integration.local_cluster import LocalCluster
from tests.plimsoll_broker.trio import a_record

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.batches import BatchHeader, seal
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import encode_request

VERSION = 9
IN_FLIGHT = 5
"""The default of Kafka's producers."""
RECORD_BYTES = 1000
_CLIENT = "same"


def produce(address: tuple[str, int], topic: str, batch_bytes: int, requests: int) -> None:
    """Produce with acks=1 to partition 0; any refusal raises AssertionError."""
    frame = frame_of(topic, batch_bytes)
    # Behind the correlation id: tags, one topic, its name, one partition, which is 0.
    code_at = 4 + 1 + 1 + 1 + len(topic) + 1 + 4
    with socket.create_connection(address, timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        for number in range(requests + IN_FLIGHT):
            if number < requests:
                connection.sendall(frame)
            if number >= IN_FLIGHT:
                (length,) = struct.unpack(">i", stream.read(4))
                (code,) = struct.unpack_from(">h", stream.read(length), code_at)
                assert code == 0, f"refused with {code}"


def frame_of(topic: str, batch_bytes: int, *, acks: int = 1) -> bytes:
    """A request with one batch of so many bytes for partition 0."""
    count, now_ms = max(1, batch_bytes // RECORD_BYTES), int(time.time() * 1000)
    header = BatchHeader(0, 0, -1, 2, 0, 0, count - 1, now_ms, now_ms, -1, -1, -1, count)
    records = seal(header, b"".join(a_record(n, b"x" * RECORD_BYTES) for n in range(count)))
    values = {
        "transactional_id": None,
        "acks": acks,
        "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    body = encode_request(ApiKey.PRODUCE, VERSION, values)
    return request_frame(ApiKey.PRODUCE, VERSION, 1, _CLIENT, body)


def timed(
    running: LocalCluster, topic: str, batch_bytes: int, requests: int
) -> tuple[float, float]:
    """Requests a second, and the microseconds of broker 0's processor for each."""
    broker = [running.ready["pids"]["0"]]
    before, began = processor_s(broker), time.perf_counter()
    produce(running.address(0), topic, batch_bytes, requests)
    seconds = time.perf_counter() - began
    return requests / seconds, (processor_s(broker) - before) * 1e6 / requests

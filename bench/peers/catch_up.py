"""Copying partitions to a broker that has none of them."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from bench.peers.systems.system import READY_S, KafkaSystem
from confluent_kafka.admin import AdminClient, NewTopic

from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

PARTITIONS = 6
RECEIVER = 2
VERSION = 0
LOOK_EVERY_S = 0.05


def make_log(system: KafkaSystem, name: str) -> None:
    """Make partitions with one replica, none of them on the receiver."""
    replicas = [[index % RECEIVER] for index in range(PARTITIONS)]
    wanted = NewTopic(name, PARTITIONS, replica_assignment=replicas)
    admin = system.admin()  # a client that nothing refers to is collected
    admin.create_topics([wanted])[name].result(READY_S)


def copy(system: KafkaSystem, name: str) -> float:
    """Add a replica on the receiver to each partition, and return the seconds until all are in
    sync."""
    admin, began = system.admin(), time.perf_counter()
    partitions = [
        {"partition_index": index, "replicas": [index % RECEIVER, RECEIVER]}
        for index in range(PARTITIONS)
    ]
    values = {"timeout": 30_000, "topics": [{"name": name, "partitions": partitions}]}
    reply = _ask(system.bootstrap.partition(",")[0], values)
    codes = [int(one.error_code) for topic in reply.responses for one in topic.partitions]
    assert codes == [0] * PARTITIONS, codes
    until = time.monotonic() + READY_S
    while not _in_sync(admin, name):
        if time.monotonic() > until:
            raise TimeoutError(f"{name} is not copied after {READY_S:.0f} s")
        time.sleep(LOOK_EVERY_S)
    return time.perf_counter() - began


def _in_sync(admin: AdminClient, name: str) -> bool:
    found = admin.list_topics(name, timeout=10).topics[name].partitions.values()
    return all(RECEIVER in one.isrs for one in found)


def _ask(address: str, values: dict[str, Any]) -> Any:
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    frame = request_frame(key, VERSION, 1, "bench", encode_request(key, VERSION, values))
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(frame)
        with connection.makefile("rb") as replies:
            (size,) = struct.unpack(">i", replies.read(4))
            return decode_response(key, VERSION, replies.read(size)[5:])  # no tags

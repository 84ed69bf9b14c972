"""Replicas move between real processes while a client writes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)

from plimsoll_core.errors import Reason
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

ROW = 3
VALUES = [b"%d" % n for n in range(2_000)]


def ask(cluster: LocalCluster, broker: int, key: ApiKey, values: dict[str, Any]) -> Any:
    """One request on a connection of its own, in the newest version."""
    version = SUPPORTED[key].last
    frame = request_frame(key, version, 1, "test", encode_request(key, version, values))
    with socket.create_connection(cluster.address(broker), timeout=30) as connection:
        connection.sendall(frame)
        with connection.makefile("rb") as replies:
            (size,) = struct.unpack(">i", replies.read(4))
            reply = replies.read(size)
    return decode_response(key, version, reply[5:])  # correlation id, no tags


def move(cluster: LocalCluster, broker: int, wanted: dict[int, list[int] | None]) -> list[int]:
    """Error codes by partition."""
    partitions = [
        {"partition_index": index, "replicas": replicas} for index, replicas in wanted.items()
    ]
    values = {"topics": [{"name": "t", "partitions": partitions}], "timeout": 30_000}
    reply = ask(cluster, broker, ApiKey.ALTER_PARTITION_REASSIGNMENTS, values)
    assert reply.error_code == 0
    return [int(each.error_code) for topic in reply.responses for each in topic.partitions]


def moving(cluster: LocalCluster, broker: int) -> bool:
    values = {"topics": None, "timeout": 30_000}
    return bool(ask(cluster, broker, ApiKey.LIST_PARTITION_REASSIGNMENTS, values).topics)


def folders(cluster: LocalCluster, broker: int) -> set[str]:
    """The partitions of t that a broker has a folder for, except those that it is deleting."""
    found = (cluster.directory / f"broker-{broker}").glob("t-*")
    return {path.name for path in found if not path.name.endswith("-delete")}


def placed(cluster: LocalCluster) -> dict[int, list[int]]:
    return {index: list(p.replicas) for index, p in cluster.topic("t").items()}


def in_sync(cluster: LocalCluster, condition: Callable[[list[int]], bool]) -> None:
    def fulfilled() -> bool:
        found = cluster.topic("t")
        return 0 in found and condition(list(found[0].isrs))

    wait_for("the ISR changes", fulfilled)


def test_partitions_move_while_a_client_writes(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "c", brokers=4) as cluster:
        cluster.create_topic("t", ROW, {"min.insync.replicas": "2"})
        cluster.wait_isr("t", 3)
        before = produce(cluster.bootstrap, "t", VALUES)
        target = {
            index: [*({0, 1, 2, 3} - set(row)), *row[:2]] for index, row in placed(cluster).items()
        }
        assert move(cluster, 1, dict(target)) == [0] * ROW
        meanwhile = produce(cluster.bootstrap, "t", [b"m" + value for value in VALUES])
        wait_for("every move ends", lambda: not moving(cluster, 1))
        assert placed(cluster) == target
        cluster.wait_isr("t", 3)
        found = consume_all(cluster.bootstrap, "t", ROW)
        assert_nothing_lost(before, found)
        assert_nothing_lost(meanwhile, found)
        for broker in range(4):
            hosted = {f"t-{index}" for index, row in target.items() if broker in row}
            wait_for(
                f"broker {broker} holds {hosted} and no more",
                lambda broker=broker, hosted=hosted: folders(cluster, broker) == hosted,
            )


def test_replica_dropped_while_down_sets_copy_aside(tmp_path: Path) -> None:
    """KAFKA-13972: Reassign 1,2,3→2,4 with 2 down, so that 4 alone is too few and the move waits;
    cancel; 4 down meanwhile. => 4 deletes its copy when back."""
    with LocalCluster(tmp_path / "c", brokers=4, restart=False) as cluster:
        cluster.create_topic("t", 1, {"min.insync.replicas": "2"})
        cluster.wait_isr("t", 3)
        acked = produce(cluster.bootstrap, "t", VALUES)
        row = placed(cluster)[0]
        new = next(broker for broker in range(4) if broker not in row)
        leader, follower = row[:2]
        cluster.kill_broker(follower)
        in_sync(cluster, lambda isr: follower not in isr)
        assert move(cluster, leader, {0: [follower, new]}) == [0]
        in_sync(cluster, lambda isr: new in isr)
        cluster.kill_broker(new)
        in_sync(cluster, lambda isr: new not in isr)
        assert move(cluster, leader, {0: None}) == [0]
        assert move(cluster, leader, {0: None}) == [Reason.NoReassignmentInProgress.code]
        assert folders(cluster, new) == {"t-0"}
        cluster.stop()
        cluster.start()
        (aside,) = wait_for(
            "it is set aside, never to be served",
            lambda: [name for name in folders(cluster, new) if name.endswith("-stray")],
        )
        assert folders(cluster, new) == {aside}
        assert set(placed(cluster)[0]) == set(row)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", 1))


def test_declared_factor_is_moved_to_and_protected(tmp_path: Path) -> None:
    """`plimsoll local` takes an edited file at its next start."""
    file = tmp_path / "topic.yaml"
    text = (
        "apiVersion: plimsoll.dev/v1alpha1\nkind: Topic\nmetadata: {{name: t}}\n"
        "spec: {{clusterRef: {{name: local}}, partitions: 3, replicationFactor: {factor},"
        " minInSyncReplicas: 2}}\n"
    )
    file.write_text(text.format(factor=2))
    cluster = LocalCluster(tmp_path / "c", brokers=4, files=(file,))
    with cluster:
        cluster.wait_isr("t", 2)
        acked = produce(cluster.bootstrap, "t", VALUES)
        wanted = sorted({0, 1, 2, 3} - set(placed(cluster)[0]))
        refused = move(cluster, 0, {0: [*placed(cluster)[0], wanted[0]]})
        assert refused == [Reason.PolicyViolation.code]
    for factor in (4, 3):
        file.write_text(text.format(factor=factor))
        with cluster:
            # Right after a start three may be in sync of the four that there were before.
            wait_for(
                f"{factor} replicas of each partition",
                lambda: {len(row) for row in placed(cluster).values()} == {factor},  # noqa: B023
            )
            cluster.wait_isr("t", factor)
            assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", ROW))


def test_reassignment_in_a_file_is_carried_out_once(tmp_path: Path) -> None:
    """`plimsoll local -f`: moved off a broker; out of the file again, nothing moves back."""
    topic, move = tmp_path / "topic.yaml", tmp_path / "move.yaml"
    head = "apiVersion: plimsoll.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"
    topic.write_text(
        head.format(kind="Topic", name="t")
        + "spec: {clusterRef: {name: local}, partitions: 3, minInSyncReplicas: 2}\n"
    )
    move.write_text(
        head.format(kind="Reassignment", name="away")
        + "spec: {clusterRef: {name: local}, moves: [{topic: t, awayFrom: [1]}]}\n"
    )

    def off() -> bool:
        return all(1 not in row for row in placed(cluster).values())

    cluster = LocalCluster(tmp_path / "c", brokers=4, files=(topic, move))
    with cluster:
        wait_for("nothing is on broker 1", lambda: placed(cluster) and off())
        acked = produce(cluster.bootstrap, "t", VALUES)
    cluster.files = (topic,)
    with cluster:
        cluster.wait_isr("t", 3)
        assert off()
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", ROW))
        forgotten = [
            record
            for record in cluster.metadata_records()
            if record["type"] == "ReassignmentForgotten"
        ]
        assert len(forgotten) == 1

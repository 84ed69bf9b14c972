"""What a real client is told by the survivors of a SIGKILL, before the broker is back."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.integration.local_cluster import LocalCluster, wait_for

from plimsoll_core.cluster.recent_fences import LISTED_MS


def test_killed_leader_is_listed_beside_successors(tmp_path: Path) -> None:
    """In one answer with their new leaders: librdkafka loses track of partitions for a second or
    two when the broker that led them is missing there."""
    with LocalCluster(tmp_path / "c") as cluster:
        cluster.create_topic("t", 6, {"min.insync.replicas": "2"})
        cluster.wait_isr("t", 3)
        survivors = ",".join(cluster.bootstrap.split(",")[1:])
        admin = AdminClient({"bootstrap.servers": survivors, "log_level": 0})
        assert set(admin.list_topics("t", timeout=10).brokers) == {0, 1, 2}
        cluster.kill_broker(0)
        killed_s = time.monotonic()

        def moved() -> set[int] | None:
            try:
                told = admin.list_topics("t", timeout=5)
            except KafkaException:
                return None
            leaders = {one.leader for one in told.topics["t"].partitions.values()}
            return None if leaders & {0, -1} else set(told.brokers)

        listed = wait_for("leaders that live", moved)
        # On a machine where elections or this client take longer it is forgotten by then, rightly;
        # tests/plimsoll_broker/test_metadata_at_failover.py holds the rule on virtual time.
        if time.monotonic() - killed_s < LISTED_MS / 1000:
            assert listed == {0, 1, 2}
        assert listed >= {1, 2}

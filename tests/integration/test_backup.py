"""The metadata of a local cluster comes back from its backup when every other copy is gone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.integration.local_cluster import (
    DidNotStart,
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
    wait_for,
)

from plimsoll_operator.api.labels import RESTORE_FROM_BACKUP

PARTITIONS = 3
LOG_CLUSTER = "/apis/plimsoll.dev/v1alpha1/namespaces/default/logclusters/main"


def declare(path: Path, **annotations: str) -> Path:
    metadata = json.dumps({"name": "main", "annotations": annotations})
    path.write_text(f"""\
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {metadata}
spec:
  storage: {{size: 1Gi}}
  backup: {{}}
""")
    return path


def status_of(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.api.ask("GET", LOG_CLUSTER)[1].get("status") or {}
    return found


def backed_up(cluster: LocalCluster) -> int | None:
    """The metadata offset, once all of it is in the backup."""
    shown = status_of(cluster)
    stored: int = (shown.get("backup") or {}).get("offset", 0)
    return stored if stored and stored >= shown["metadataLog"]["offset"] else None


def lose_metadata(root: Path) -> None:
    shutil.rmtree(root / "metadata")
    for broker_id in range(3):
        shutil.rmtree(root / f"broker-{broker_id}" / "__cluster_metadata")


def choice_of(cluster: LocalCluster) -> str:
    """What a start without a person says that it would restore."""
    with pytest.raises(DidNotStart):
        cluster.start()
    found = re.findall(
        r"restore the backup .* --restore-metadata (\d+-[0-9a-f]+)\.", cluster.said()
    )
    assert found, cluster.said()
    return str(found[-1])


def test_lost_metadata_is_restored_from_the_backup(tmp_path: Path) -> None:
    file = declare(tmp_path / "main.yaml")
    cluster = LocalCluster(tmp_path / "c", files=[file])
    with cluster:
        cluster.create_topic("t", PARTITIONS)
        acked = produce(cluster.bootstrap, "t", [b"%06d" % number for number in range(2_000)])
        wait_for("a backup of everything", lambda: backed_up(cluster))
        conditions = {one["type"]: one for one in status_of(cluster)["conditions"]}
        assert conditions["BackedUp"]["status"] == "True"
    lose_metadata(tmp_path / "c")
    declare(file, **{RESTORE_FROM_BACKUP: "newest"})
    cluster.arguments = ("--restore-metadata", choice_of(cluster))
    with cluster:
        cluster.wait_isr("t", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))
        wait_for("the backup goes on", lambda: backed_up(cluster))


@pytest.mark.long
def test_killed_operator_leaves_a_whole_backup(tmp_path: Path) -> None:
    """Topics that were made before the last stored offset are in it; the next operator goes on."""
    file = declare(tmp_path / "main.yaml")
    cluster = LocalCluster(tmp_path / "c", files=[file])
    cluster.start()
    for number in range(3):
        cluster.create_topic(f"before-{number}", PARTITIONS)
        cluster.kill_everything()
        cluster.start()
    acked = produce(cluster.bootstrap, "before-0", [b"%06d" % number for number in range(500)])
    wait_for("a backup of everything", lambda: backed_up(cluster))
    cluster.create_topic("late", PARTITIONS)
    cluster.kill_everything()
    lose_metadata(tmp_path / "c")
    declare(file, **{RESTORE_FROM_BACKUP: "newest"})
    cluster.arguments = ("--restore-metadata", choice_of(cluster))
    with cluster:
        for number in range(3):
            cluster.wait_isr(f"before-{number}", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "before-0", PARTITIONS))


def test_newer_copies_of_brokers_win_over_a_backup(tmp_path: Path) -> None:
    file = declare(tmp_path / "main.yaml")
    cluster = LocalCluster(tmp_path / "c", files=[file])
    with cluster:
        cluster.create_topic("t", PARTITIONS)
        offset = wait_for("a backup of everything", lambda: backed_up(cluster))
        cluster.create_topic("later", PARTITIONS)
        wait_for("a backup of everything", lambda: backed_up(cluster))
    shutil.rmtree(tmp_path / "c" / "metadata")
    declare(file, **{RESTORE_FROM_BACKUP: str(offset)})
    choice = choice_of(cluster)
    assert choice.startswith(f"{offset}-")
    cluster.arguments = ("--restore-metadata", choice)
    with pytest.raises(DidNotStart):
        cluster.start()
    assert "wins over a backup" in cluster.said()
    declare(file)
    cluster.arguments = ()
    with cluster:
        cluster.wait_isr("later", 3)


def test_earlier_point_loses_no_later_record(tmp_path: Path) -> None:
    """Brokers 0 and 1 are in sync by the point and stopped cleanly in the lifetimes that the point
    knows; broker 2 acknowledged records after that. Whichever registers last must not lead."""
    file = declare(tmp_path / "main.yaml")
    cluster = LocalCluster(tmp_path / "c", files=[file], restart=False)
    with cluster:
        cluster.create_topic("t", PARTITIONS, {"min.insync.replicas": "1"})
        cluster.wait_isr("t", 3)
        acked = produce(cluster.bootstrap, "t", [b"%06d" % number for number in range(500)])
        point = wait_for("a backup of everything", lambda: backed_up(cluster))
        for stopped in ("0", "1"):
            os.kill(cluster.pids[stopped], signal.SIGTERM)
        cluster.wait_isr("t", 1)
        later = produce(cluster.bootstrap, "t", [b"later %06d" % number for number in range(500)])
        acked.records |= later.records
        wait_for("a backup of everything", lambda: backed_up(cluster))
    lose_metadata(tmp_path / "c")
    declare(file, **{RESTORE_FROM_BACKUP: str(point)})
    cluster.arguments = ("--restore-metadata", choice_of(cluster))
    with cluster:
        cluster.wait_isr("t", 3)
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))


def test_lost_volumes_leave_topics_without_records(tmp_path: Path) -> None:
    file = declare(tmp_path / "main.yaml")
    cluster = LocalCluster(tmp_path / "c", files=[file])
    with cluster:
        cluster.create_topic("t", PARTITIONS)
        produce(cluster.bootstrap, "t", [b"%06d" % number for number in range(100)])
        wait_for("a backup of everything", lambda: backed_up(cluster))
        before = cluster.api.ask("GET", LOG_CLUSTER)[1]["status"]["clusterId"]
    shutil.rmtree(tmp_path / "c" / "metadata")
    for broker_id in range(3):
        shutil.rmtree(tmp_path / "c" / f"broker-{broker_id}")
    declare(file, **{RESTORE_FROM_BACKUP: "newest"})
    cluster.arguments = ("--restore-metadata", choice_of(cluster))
    # No replica is complete: the leaders are any brokers that come back.
    file.write_text(f"{file.read_text()}  uncleanRecovery: Proactive\n")
    with cluster:
        assert cluster.api.ask("GET", LOG_CLUSTER)[1]["status"]["clusterId"] == before
        cluster.wait_isr("t", 3)
        assert not consume_all(cluster.bootstrap, "t", PARTITIONS)
        acked = produce(cluster.bootstrap, "t", [b"%06d" % number for number in range(100)])
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "t", PARTITIONS))

"""Kafka's own segment reader accepts what a broker wrote."""

from pathlib import Path

from tests.conformance import scripts
from tests.conformance.conftest import PARTITIONS
from tests.conformance.kafka_jars import KafkaJars
from tests.integration.local_cluster import LocalCluster
from tests.plimsoll_broker.storage.conftest import TOPIC_ID
from tests.plimsoll_broker.storage.test_transaction_index import end, write

from plimsoll_broker.storage.disk import Disk
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_store import LogStore

EACH = 400
SMALL_SEGMENTS = """\
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main}
spec:
  brokers: {count: 3}
  storage: {size: 1Gi}
  config: {log.segment.bytes: 16384}
"""
COMPLAINTS = ("invalid", "corrupt", "mismatch", "exception", "error:", "does not", "out of order")


def partition_files(cluster: LocalCluster, topic: str, broker: int, suffix: str) -> list[Path]:
    return sorted(cluster.directory.rglob(f"*broker-{broker}*/**/{topic}-*/*{suffix}"))


def test_dump_log_segments_reads_every_record_without_complaint(
    tmp_path: Path, jars: KafkaJars
) -> None:
    records = scripts.sent(PARTITIONS, EACH)
    file = tmp_path / "cluster.yaml"
    file.write_text(SMALL_SEGMENTS)
    with LocalCluster(tmp_path / "data", brokers=None, files=[file]) as cluster:
        cluster.create_topic("dumped", PARTITIONS, {})
        cluster.wait_isr("dumped", 3)
        assert scripts.with_aiokafka(cluster.bootstrap, "dumped", records) == records
    logs = partition_files(cluster, "dumped", 0, ".log")
    assert len(logs) > PARTITIONS, "segments rolled"
    dumped = 0
    for suffix in (".log", ".index", ".timeindex"):
        files = partition_files(cluster, "dumped", 0, suffix)
        printed = scripts.dump_segments(files, jars)
        assert [str(file) for file in files if f"Dumping {file}" not in printed] == []
        low = printed.lower()
        assert not [word for word in COMPLAINTS if word in low.replace("isvalid", "")], printed
        dumped += printed.count("| offset:")
    assert dumped == PARTITIONS * EACH


def test_dump_log_segments_reads_transactions(tmp_path: Path, jars: KafkaJars) -> None:
    store = LogStore(tmp_path, Disk())
    store.load(0)
    log = store.open_log("dumped", TOPIC_ID, 0, LogConfig(), 0)
    write(log, 7)
    write(log, 8)
    end(log, 7)
    end(log, 8, commits=True)
    store.close(None, {})
    names = ("0" * 20 + ".log", "0" * 20 + ".txnindex", f"{4:020d}.snapshot")
    files = [tmp_path / "dumped-0" / name for name in names]
    printed = scripts.dump_segments(files[:1], jars)
    assert "endTxnMarker: ABORT coordinatorEpoch: 0" in printed, printed
    assert "endTxnMarker: COMMIT coordinatorEpoch: 0" in printed, printed
    printed = scripts.dump_segments(files[1:2], jars)
    aborted = "version: 0 producerId: 7 firstOffset: 0 lastOffset: 2 lastStableOffset: 1"
    assert aborted in printed, printed
    printed = scripts.dump_segments(files[2:], jars)
    assert "producerId: 8" in printed, printed

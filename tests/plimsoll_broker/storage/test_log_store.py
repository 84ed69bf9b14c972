"""A volume belongs to one broker of one cluster, and its marker tells the truth about its stop."""

import json
from uuid import UUID

import pytest
from tests.plimsoll_broker.test_periodic_chores import no_sync_in_this_thread

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_store import DELETE_DELAY_MS, STRAY_DELAY_MS, LogStore
from plimsoll_core.replica.producer_states import ProducerEntry

CLUSTER_ID = UUID("11111111-2222-3333-4444-555555555555")
TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
OTHER_ID = UUID("ffffffff-1234-5678-1234-567812345678")


# --- whose volume ---------------------------------------------------------------------------------


def test_empty_volume_is_unowned_until_formatted(tmp_path):
    store = LogStore(tmp_path / "new")
    assert store.open() is None
    assert store.meta is None
    assert store.identify(CLUSTER_ID, 1) is None
    store.format(CLUSTER_ID, 1, OTHER_ID)
    text = (tmp_path / "new" / "meta.properties").read_text()
    assert "version=1\n" in text
    assert "cluster.id=ERERESIiMzNERFVVVVVVVQ\n" in text
    assert "node.id=1\n" in text
    assert store.meta.directory_id == OTHER_ID
    store.release_lock()


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "names"),
    [(OTHER_ID, 1, str(OTHER_ID)), (CLUSTER_ID, 2, "broker 2")],
)
def test_foreign_volume_is_refused_with_a_sentence(volume, cluster_id, node_id, names):
    store = volume.start()
    refused = store.identify(cluster_id, node_id)
    assert refused.reason == "ForeignVolume"
    assert names in refused.message
    assert "mount the right volume" in refused.message
    assert store.identify(CLUSTER_ID, 1) is None


def test_volume_in_use_is_refused(volume):
    volume.start()
    assert LogStore(volume.path).open().reason == "VolumeInUse"


def test_malformed_meta_file_is_not_overwritten(volume):
    store = volume.start()
    for name in ("meta.properties", "meta.properties.copy"):
        (volume.path / name).write_text("version=7\n")
    with pytest.raises(StorageError) as raised:
        store.identify(CLUSTER_ID, 1)
    assert raised.value.fault is StorageFault.CORRUPT


# --- the clean-stop marker ------------------------------------------------------------------------


def test_clean_stop_leaves_epoch_for_next_start(volume, fill):
    log = volume.log()
    fill(log, 3)
    assert volume.store.close(42, {}) is True
    marker = volume.path / ".kafka_cleanshutdown"
    assert json.loads(marker.read_text()) == {"version": 0, "brokerEpoch": 42}
    store = LogStore(volume.path)
    assert store.open() is None
    assert store.take_clean_marker() == 42
    assert not marker.exists()
    assert store.take_clean_marker() is None
    store.release_lock()


def test_process_that_never_registered_leaves_no_marker(volume):
    store = volume.start()
    assert store.close(None, {}) is False
    assert not (volume.path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"brokerEpoch": "x"}', '{"brokerEpoch": true}'])
def test_marker_without_an_epoch_counts_as_none(volume, text):
    volume.start().close(None, {})
    (volume.path / ".kafka_cleanshutdown").write_text(text)
    store = LogStore(volume.path)
    assert store.take_clean_marker() is None
    assert not (volume.path / ".kafka_cleanshutdown").exists()


def unsealed(path, seal):
    """Without the line with the CRC, which must be there."""
    text, _, last = path.read_text().rstrip("\n").rpartition("\n")
    assert last.startswith(seal)
    return text + "\n"


def test_checkpoints_are_kafka_s_text_files(volume, fill):
    log = volume.log()
    fill(log, 3)
    log.advance_log_start(5)
    assert volume.store.close(42, {("orders", 3): 20})
    read = {
        name: unsealed(volume.path / name, "crc32c ")
        for name in (
            "replication-offset-checkpoint",
            "recovery-point-offset-checkpoint",
            "log-start-offset-checkpoint",
        )
    }
    assert read == {
        "replication-offset-checkpoint": "0\n1\norders 3 20\n",
        "recovery-point-offset-checkpoint": "0\n1\norders 3 30\n",
        "log-start-offset-checkpoint": "0\n1\norders 3 5\n",
    }
    directory = volume.directory
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 5\n"
    metadata = unsealed(directory / "partition.metadata", "crc32c: ")
    assert metadata == "version: 0\ntopic_id: EjRWeBI0VngSNFZ4EjRWeA\n"


@pytest.mark.parametrize(("stored", "expected"), [(12, 12), (400, 30), (-5, 0), ("x", 0)])
def test_high_watermark_is_within_the_log(volume, fill, stored, expected):
    log = volume.log()
    fill(log, 3)
    volume.store.close(42, {})
    path = volume.path / "replication-offset-checkpoint"
    path.write_bytes(checkpoint_formats.encode_offsets({("orders", 3): stored}))
    log = volume.log()
    assert volume.store.high_watermark(log) == expected


def test_high_watermarks_of_closed_partitions_are_kept(volume):
    store = volume.start()
    store.checkpoint_high_watermarks({("a", 0): 1, ("b", 0): 2})
    store = volume.start()
    store.checkpoint_high_watermarks({("a", 0): 5})
    text = unsealed(volume.path / "replication-offset-checkpoint", "crc32c ")
    assert text == "0\n2\na 0 5\nb 0 2\n"


# --- partitions -----------------------------------------------------------------------------------


def test_volume_says_which_partitions_it_holds(volume, fill):
    fill(volume.log(), 1)
    store = volume.start()
    store.open_log("with-dashes", OTHER_ID, 12, LogConfig(), 0)
    (volume.path / "no-metadata-0").mkdir()
    (volume.path / "not a partition").mkdir()
    store = volume.start()
    found = {(each.topic, each.index): each.topic_id for each in store.load(0)}
    assert found == {
        ("orders", 3): TOPIC_ID,
        ("with-dashes", 12): OTHER_ID,
        ("no-metadata", 0): None,
    }


def test_other_topic_of_same_name_is_set_aside(volume, fill):
    fill(volume.log(), 3)
    store = volume.start()
    log = store.open_log("orders", OTHER_ID, 3, LogConfig(), 1_000)
    assert log.log_end_offset == 0
    (stray,) = volume.path.glob("*-stray")
    assert stray.name.startswith("orders-3.")
    assert (stray / "00000000000000000000.log").stat().st_size > 0
    assert store.deleted.due(1_000 + STRAY_DELAY_MS - 1) == []
    assert store.deleted.due(1_000 + STRAY_DELAY_MS) == [stray]


def test_doubted_logs_are_set_aside_at_start(volume, fill):
    """A history was given up: what other replicas have too is copied anew."""
    fill(volume.log(), 3)
    for replicated, left in ((False, 30), (True, 0)):
        assert volume.store.close(7, {}) is True
        store = volume.start()
        assert store.clean_epoch == 7
        store.doubt_logs(lambda *_, shared=replicated: shared, 0)
        assert store.clean_epoch is None
        store.load(0)
        log = store.open_log("orders", TOPIC_ID, 3, volume.config, 0)
        assert log.log_end_offset == left
    assert len(list(volume.path.glob("orders-3.*-stray"))) == 1


def test_recreated_topic_inherits_no_checkpoints(volume, fill):
    """Kill -9 right after: the old start would throw the new log away, the old recovery point
    would keep its records from being checked."""
    log = volume.log()
    fill(log, 30)
    log.flush()
    log.advance_log_start(250)
    volume.store.checkpoint_recovery_points()
    volume.store.checkpoint_log_starts()
    volume.store.delete_log(log, 0)
    fill(volume.store.open_log("orders", OTHER_ID, 3, volume.config, 0), 2)
    again = volume.start().open_log("orders", OTHER_ID, 3, volume.config, 0)
    assert (again.log_start_offset, again.log_end_offset) == (0, 20)
    assert again.recovery_point == 0


def test_early_recovered_log_of_deleted_topic_is_replaced(volume, fill):
    """The image moves on while a start recovers logs: the topic is deleted and made again."""
    fill(volume.log(), 3)
    store = volume.start()
    (found,) = store.load(0)
    store.open_early("orders", TOPIC_ID, 3, volume.config, 0)
    store.set_aside(found.path, 0)
    log = store.open_log("orders", OTHER_ID, 3, volume.config, 0)
    assert (log.log_end_offset, store.logs) == (0, {("orders", 3): log})
    assert store.close(7, {}) is True


def test_deleted_log_goes_a_minute_later(volume, fill):
    log = volume.log()
    fill(log, 3)
    store = volume.store
    store.delete_log(log, now_ms=5_000)
    assert store.logs == {}
    assert not volume.directory.exists()
    assert store.deleted.due(5_000 + DELETE_DELAY_MS - 1) == []
    (path,) = store.deleted.due(5_000 + DELETE_DELAY_MS)
    assert path.name.endswith("-delete")
    store.disk.remove_tree(path)
    assert not path.exists()
    log = store.open_log("orders", OTHER_ID, 3, LogConfig(), 6_000)
    assert (log.log_end_offset, store.high_watermark(log)) == (0, 0)


def test_deletion_that_a_crash_interrupted_is_finished(volume, fill):
    log = volume.log()
    fill(log, 3)
    volume.store.delete_log(log, now_ms=5_000)
    store = volume.start()
    assert len(store.deleted.due(0)) == 1


# --- a reader that is still at it -----------------------------------------------------------------


def test_deleted_file_stays_readable_to_its_holder(volume, fill, read_all):
    log = volume.log()
    fill(log, 3)
    segment = log.segments[0]
    data = read_all(log)
    volume.store.delete_log(log, 0)
    for path in volume.store.deleted.due(DELETE_DELAY_MS):
        volume.store.disk.remove_tree(path)
    assert segment.file.pread(len(data), 0) == data


# --- codecs ---------------------------------------------------------------------------------------


def test_producer_snapshot_is_kafka_s_format():
    entry = ProducerEntry(4711, 3, 99, 1234, 9, 1_700_000_000_000)
    data = checkpoint_formats.encode_snapshot([entry], "orders-3 1235")
    assert len(data) == 2 + 4 + 4 + 46 + 46
    assert data[:2] == b"\x00\x01"
    assert checkpoint_formats.decode_snapshot(data, "orders-3 1235") == [entry]
    assert checkpoint_formats.decode_snapshot(data[:-1], "orders-3 1235") is None
    for other in ("orders-3 1236", "orders-4 1235"):
        assert checkpoint_formats.decode_snapshot(data, other) is None
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1
        assert checkpoint_formats.decode_snapshot(bytes(broken), "orders-3 1235") is None


@pytest.mark.parametrize(
    "text", ["", "0", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\nx\n", "\xff"]
)
def test_broken_offset_checkpoint_is_none(text):
    assert checkpoint_formats.decode_offsets(text.encode("latin-1")) is None


def test_offsets_of_many_topics_come_back():
    offsets = {("a.b_c-d", 0): 0, ("a", 11): 2**62, ("a", 2): 5}
    assert checkpoint_formats.decode_offsets(checkpoint_formats.encode_offsets(offsets)) == offsets


# --- many partitions ------------------------------------------------------------------------------


class CountingDisk(Disk):
    def __init__(self):
        self.synced = []

    def sync(self, path):
        self.synced.append(path.name)
        super().sync(path)


def test_new_log_identity_is_durable_before_records(volume, fill):
    disk = CountingDisk()
    log = volume.log(disk)
    assert disk.synced == []
    fill(log, 1)
    assert disk.synced == ["partition.metadata"]
    fill(log, 1)
    assert disk.synced == ["partition.metadata"]
    assert volume.store.begin_new() is None


def test_new_logs_can_be_made_durable_beforehand(volume, fill):
    disk = CountingDisk()
    log = volume.log(disk)
    volume.store.open_log("other", TOPIC_ID, 0, LogConfig(), 0)
    deleted = volume.store.open_log("gone", TOPIC_ID, 0, LogConfig(), 0)
    sync = volume.store.begin_new()
    volume.store.delete_log(deleted, 0)
    sync()
    assert disk.synced == ["partition.metadata"] * 2
    fill(log, 1)
    assert len(disk.synced) == 2


def test_clean_stops_do_not_pile_up_snapshots(volume, fill):
    for life in range(5):
        log = volume.log()
        assert log.log_end_offset == 10 * life
        fill(log, 1)
        assert volume.store.close(life, {})
    volume.log()
    assert [path.name for path in volume.directory.glob("*.snapshot")] == [
        "00000000000000000050.snapshot"
    ]


def test_high_watermark_does_not_outlive_its_records(volume, fill):
    """Found by simulation: after an unclean election a follower cut committed records, grew past
    its old high watermark with others and was killed before the next checkpoint."""
    log = volume.log()
    fill(log, 5)
    volume.store.checkpoint_high_watermarks({("orders", 3): 50})
    log.truncate_to(20)
    fill(log, 4)
    grown = volume.log()
    assert grown.log_end_offset == 60
    assert volume.store.high_watermark(grown) == 20


def test_high_watermark_beyond_log_is_lowered_before_growth(volume, fill):
    log = volume.log()
    fill(log, 2)
    volume.store.checkpoint_high_watermarks({("orders", 3): 50})
    assert log.log_end_offset == 20
    log = volume.log()  # as after a power cut that took the log's end
    volume.store.save_lowered()
    fill(log, 4)
    grown = volume.log()
    assert grown.log_end_offset == 60
    assert volume.store.high_watermark(grown) == 20


def test_checkpoint_begun_before_truncation_does_not_undo_it(volume, fill):
    log = volume.log()
    fill(log, 5)
    finish = volume.store.begin_high_watermarks({("orders", 3): 50})
    log.truncate_to(20)
    finish()
    assert volume.store.high_watermark(volume.log()) == 20


def test_recreated_topic_has_no_old_high_watermark(volume, fill):
    log = volume.log()
    fill(log, 5)
    volume.store.checkpoint_high_watermarks({("orders", 3): 50})
    volume.store.delete_log(log, 0)
    again = volume.store.open_log("orders", UUID(int=7), 3, volume.config, 0)
    fill(again, 3)
    volume.start()
    again = volume.store.open_log("orders", UUID(int=7), 3, volume.config, 0)
    assert again.log_end_offset == 30
    assert volume.store.high_watermark(again) == 0


def test_checkpoint_of_two_threads_keeps_newer_one(volume):
    """A checkpoint that was on its way while logs were about to be cut."""
    volume.start()
    volume.store.checkpoint_high_watermarks({("orders", 3): 50})
    older = volume.store.begin_high_watermarks({("orders", 3): 60})
    newer = volume.store.begin_lower({("orders", 3): 20})
    newer()
    older()
    text = (volume.store.directory / "replication-offset-checkpoint").read_text()
    assert text.split("\n")[2] == "orders 3 20"


def test_truncation_skips_high_watermarks_already_lowered(volume):
    volume.start()
    volume.store.checkpoint_high_watermarks({("orders", 3): 50, ("orders", 4): 50})
    volume.store.begin_lower({("orders", 3): 20, ("orders", 4): 20})()
    path = volume.store.directory / "replication-offset-checkpoint"
    written = path.stat().st_ino
    volume.store.before_cut(("orders", 3), 20)
    volume.store.before_cut(("orders", 4), 20)
    assert path.stat().st_ino == written


def test_truncation_writes_unwritten_lower_high_watermark(volume):
    volume.start()
    volume.store.checkpoint_high_watermarks({("orders", 3): 50})
    finish = volume.store.begin_lower({("orders", 3): 20})
    volume.store.before_cut(("orders", 3), 30)
    text = (volume.store.directory / "replication-offset-checkpoint").read_text()
    assert text.split("\n")[2] == "orders 3 20"
    finish()


def deleted(volume, fill):
    """The log of a topic that had records and checkpoints."""
    log = volume.log()
    fill(log, 3)
    log.flush()
    volume.store.checkpoint_recovery_points()
    volume.store.checkpoint_high_watermarks({("orders", 3): 30})
    volume.store.delete_log(log, 0)
    return log


def test_deletion_delays_no_new_log_of_others(volume, fill, monkeypatch):
    """The next new log, of whichever topic, wrote and synced all checkpoint files on the loop."""
    deleted(volume, fill)
    with no_sync_in_this_thread(monkeypatch):
        volume.store.open_log("payments", OTHER_ID, 0, volume.config, 0)


def test_forgotten_checkpoints_are_written_with_renames(volume, fill, monkeypatch):
    deleted(volume, fill)
    volume.store.begin_new()()
    assert volume.store.begin_new() is None
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        assert "orders" not in (volume.path / name).read_text()
    with no_sync_in_this_thread(monkeypatch):
        volume.store.open_log("orders", OTHER_ID, 3, volume.config, 0)


def test_pending_checkpoint_does_not_outlive_recreation(volume, fill):
    """A thread that was to save the old log's values comes after the new log was made."""
    log = volume.log()
    fill(log, 3)
    pending = volume.store.begin_high_watermarks({("orders", 3): 30})
    volume.store.delete_log(log, 0)
    volume.store.open_log("orders", OTHER_ID, 3, volume.config, 0)
    pending()
    assert volume.start()._high_watermarks.get(("orders", 3)) is None


class Looks(Disk):
    """Counts how often a directory or a small file is read."""

    def __init__(self):
        self.count = 0

    def list(self, path):
        self.count += path.name == "orders-3"
        return super().list(path)

    def read(self, path):
        self.count += path.parent.name == "orders-3"
        return super().read(path)


def test_new_log_reads_nothing_in_its_directory(volume, fill):
    """Half of the processor time of a new log, which the event loop makes, went into that."""
    disk = Looks()
    fill(volume.log(disk), 1)
    assert disk.count == 0
    assert volume.log().log_end_offset == 10

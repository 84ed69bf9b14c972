"""Whatever a byte of the small files becomes: the broker starts, and what they said is found."""

from __future__ import annotations

import pytest
from tests.plimsoll_broker.storage.conftest import fill, read_all
from tests.plimsoll_broker.storage.simulated import CLUSTER_ID, ORDERS, TOPIC_ID, Machine

from plimsoll_broker.storage import checkpoint_formats
from plimsoll_broker.storage.disk import StorageError
from plimsoll_sim.environment.simulated_disk import FileNode


@pytest.fixture(scope="module", params=["crash", "clean stop"])
def written(request: pytest.FixtureRequest) -> tuple[Machine, bytes, bool]:
    machine = Machine()
    log = machine.log()
    for term in range(4):
        fill(log, 6, epoch=3 * term, producer_id=7, producer_epoch=0, base_sequence=60 * term)
    log.advance_log_start(20)
    assert machine.store.identify(CLUSTER_ID, 1) is None
    data = read_all(log)
    log.flush(checkpoint=True)
    machine.store.checkpoint_recovery_points()
    machine.store.checkpoint_log_starts()
    machine.store.checkpoint_high_watermarks({ORDERS: 150})
    clean = request.param == "clean stop"
    if clean:
        assert machine.store.close(7, {ORDERS: 150})
    return machine, data, clean


def node(machine: Machine, name: str) -> FileNode:
    found = machine.volume.find(machine.store.directory / name)
    assert isinstance(found, FileNode)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        checkpoint_formats.HIGH_WATERMARKS,
        checkpoint_formats.RECOVERY_POINTS,
        checkpoint_formats.LOG_STARTS,
        checkpoint_formats.META_PROPERTIES,
        checkpoint_formats.META_COPY,
        f"orders-3/{checkpoint_formats.EPOCHS}",
        f"orders-3/{checkpoint_formats.PARTITION_METADATA}",
        "orders-3/00000000000000000240.snapshot",
    ],
)
def test_flipped_checkpoint_bit_is_detected_and_start_continues(
    written: tuple[Machine, bytes, bool], name: str
) -> None:
    pristine, data, clean = written
    for byte in range(len(node(pristine, name).data)):
        for bit in (0, 1, 3, 6):
            machine = pristine.copy()
            node(machine, name).data[byte] ^= 1 << bit
            flip = (name, byte, bit)
            try:
                log = machine.log()
            except StorageError:
                assert clean, flip
                assert name.endswith(checkpoint_formats.PARTITION_METADATA), flip
                log = machine.log()  # no clean stop lies before this start
            assert machine.store.identify(CLUSTER_ID, 1) is None, flip
            assert machine.store.meta is not None
            if name.endswith(checkpoint_formats.PARTITION_METADATA) and log.log_end_offset == 0:
                assert [path for path in machine.store.disk.list(machine.store.directory)
                        if path.endswith("-stray")], flip  # fmt: skip
                continue
            assert log.topic_id == TOPIC_ID
            assert log.log_end_offset == 240, flip
            start = log.log_start_offset
            assert start in ((0, 20) if name == checkpoint_formats.LOG_STARTS else (20,)), flip
            assert machine.store.high_watermark(log) in (150, start), flip
            assert read_all(log).endswith(data), flip
            terms = [(max(epoch, start), first) for first, epoch in enumerate((0, 60, 120, 180))]
            assert log.epochs.entries == [(3 * term, at) for at, term in terms], flip
            assert [entry.last_offset for entry in log.producers.snapshot()][-1] == 239, flip


def test_checkpoint_files_without_crc_are_invalid() -> None:
    assert checkpoint_formats.decode_offsets(b"0\n1\norders 3 20\n") is None
    text = checkpoint_formats.encode_partition_metadata(TOPIC_ID).split(b"crc32c")[0]
    assert checkpoint_formats.decode_partition_metadata(text) is None
    meta = checkpoint_formats.Meta(cluster_id=CLUSTER_ID, node_id=1, directory_id=TOPIC_ID)
    text = checkpoint_formats.encode_meta(meta).split(b"# crc32c")[0]
    assert checkpoint_formats.decode_meta(text) is None


def test_directory_missing_after_clean_stop_is_reported() -> None:
    machine = Machine()
    fill(machine.log(), 5)
    assert machine.store.close(7, {ORDERS: 50})
    del machine.volume.folder(machine.store.directory).entries["orders-3"]
    with pytest.raises(StorageError, match="the log directory is missing"):
        machine.log()
    assert machine.log().log_end_offset == 0


def test_directory_missing_after_kill_may_begin_anew() -> None:
    """Found by seed 1208622: a topic's deletion outlived a power cut, the recovery points' file
    without it did not, and the topic that was made again under its name had no log."""
    machine = Machine()
    fill(machine.log(), 5)
    machine.store.checkpoint_recovery_points()
    del machine.volume.folder(machine.store.directory).entries["orders-3"]
    assert machine.start().close(7, {}), "a kill, and a life without the topic"
    assert machine.log().log_end_offset == 0

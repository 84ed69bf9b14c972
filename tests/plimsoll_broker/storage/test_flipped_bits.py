"""A changed byte of a log prevents no start, and no reader gets it without an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.plimsoll_broker.storage.conftest import fill, read_all
from tests.plimsoll_broker.storage.simulated import ORDERS, Machine

from plimsoll_broker.storage.disk import StorageError, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_sim.environment.simulated_disk import FileNode

BATCH = 161
HEADER = 61
UNCHECKED = range(12, 16)
"""A leader epoch that nothing contradicts is as good as another."""


@pytest.fixture(scope="module", params=["crash", "crash, all flushed", "clean stop"])
def written(request: pytest.FixtureRequest) -> tuple[Machine, bytes]:
    """Three segments of eight batches, one after the other in four terms; the last is active."""
    machine = Machine(LogConfig(segment_bytes=8 * BATCH, index_interval_bytes=300))
    log = machine.log()
    for term in range(4):
        fill(log, 6, epoch=2 * term)
    assert [segment.base_offset for segment in log.segments] == [0, 80, 160]
    data = read_all(log)
    if request.param == "crash, all flushed":
        log.flush(checkpoint=True)
        machine.store.checkpoint_recovery_points()
    elif request.param == "clean stop":
        assert machine.store.close(7, {ORDERS: 240})
    return machine, data


def node(machine: Machine, name: str) -> FileNode:
    found = machine.volume.find(machine.store.directory / "orders-3" / name)
    assert isinstance(found, FileNode)
    return found


def opened(machine: Machine) -> Log | None:
    """None: out of service, for the reason that its file does not hold what it should."""
    try:
        return machine.log()
    except StorageError as error:
        if error.fault is not StorageFault.CORRUPT:
            raise
        return None


def readable(log: Log) -> tuple[bytes, bool]:
    """What a consumer gets, batch by batch, and whether it then meets an error."""
    assert log.log_end_offset <= 240, "it ends beyond what was written"
    data = b""
    for offset in range(log.log_start_offset, log.log_end_offset, 10):
        try:
            chunk = log.read(offset, 10, log.log_end_offset)
            assert chunk, "nothing is there, and without an error"
            data += chunk
        except StorageError as error:
            if error.fault is not StorageFault.CORRUPT:
                raise
            return data, True
    return data, False


def flips() -> Iterator[tuple[int, int, int, int]]:
    """Segment, batch, byte, bit: all of what the CRC does not cover, and a bit of each other byte
    of the header and of some behind it."""
    for segment in (0, 80, 160):
        for batch in (0, 3, 7):
            for byte in range(HEADER):
                for bit in range(8) if byte < 17 else [byte % 8]:
                    yield segment, batch, byte, bit
            yield segment, batch, 100, 3


@pytest.mark.slow
def test_batch_with_flipped_bit_is_never_read(
    written: tuple[Machine, bytes],
) -> None:
    pristine, data = written
    for segment, batch, byte, bit in flips():
        machine = pristine.copy()
        name = f"{segment:020d}.log"
        node(machine, name).data[batch * BATCH + byte] ^= 1 << bit
        log = opened(machine)
        if log is None:
            assert machine.store.clean_epoch is not None, "else it would have been cut"
            again = opened(machine)  # no clean stop lies before this start
            assert again is not None
            log = again
        at = (segment // 10 + batch) * BATCH
        got, failed = readable(log)
        flip = (segment, batch, byte, bit)
        if byte in UNCHECKED and len(got) > at:
            assert len(got) == len(data), flip
            continue
        assert data.startswith(got), flip
        assert len(got) <= at, (flip, "the batch was read as if nothing were")
        assert failed or log.log_end_offset * BATCH // 10 == len(got), flip
        if not failed:
            fill(log, 3, epoch=9)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_flipped_bit_of_an_index_changes_no_answer(
    written: tuple[Machine, bytes], suffix: str
) -> None:
    pristine, data = written
    for segment in (0, 80, 160):
        name = f"{segment:020d}.{suffix}"
        if pristine.volume.find(pristine.store.directory / "orders-3" / name) is None:
            continue
        for byte in range(len(node(pristine, name).data)):
            for bit in (0, 3, 7):
                machine = pristine.copy()
                node(machine, name).data[byte] ^= 1 << bit
                log = opened(machine)
                assert log is not None, (name, byte, bit, list(node(machine, name).data))
                assert readable(log) == (data, False), (name, byte, bit)
                assert [segment.max_timestamp for segment in log.segments] == [1079, 1159, 1239]
                for part in log.segments:
                    first = range(part.base_offset, part.base_offset + 80)
                    late = [at for at in first if part.offset_before(1000 + at) > at + 9]
                    assert late == [], "a search by time begins behind what it looks for"

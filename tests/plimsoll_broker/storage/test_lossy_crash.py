"""Power cuts: whatever each file kept, the next start finds a prefix of the log, and all of the
flushed part of it, with terms and producers to match.

The disk model is the protocol's: every file keeps what was synced plus an arbitrary prefix of the
rest; a file that was replaced is old or new.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_broker.storage.conftest import Volume, a_batch, found_at, read_all

from plimsoll_broker.storage.disk import Disk, DiskFile
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_core.replica.leader_epochs import EpochCache
from plimsoll_core.replica.producer_states import ProducerStates
from plimsoll_wire.batches import iter_headers


class LossyFile(DiskFile):
    """Tells its disk what is durable."""

    __slots__ = ("disk",)

    def fsync(self):
        super().fsync()
        self.disk.durable[self.path] = self.size()

    def truncate(self, size):
        super().truncate(size)
        self.disk.durable[self.path] = min(self.disk.durable[self.path], size)


class LossyDisk(Disk):
    def __init__(self):
        self.durable = {}
        self.replaced = {}

    def open(self, path, *, make=True):
        size = self.size(path)
        file = super().open(path, make=make)
        lossy = LossyFile(_taken(file), path, self)
        lossy.disk = self
        self.durable.setdefault(path, size or 0)
        return lossy

    def rename(self, old, new):
        super().rename(old, new)
        if new.is_dir():
            return
        self.replaced.setdefault(new, None)
        self.replaced.pop(old, None)

    def replace(self, path, data, *, sync):
        before = self.read(path)
        super().replace(path, data, sync=sync)
        self.durable.pop(path, None)
        if sync:
            self.replaced.pop(path, None)
        else:
            self.replaced.setdefault(path, before)

    def sync(self, path):
        super().sync(path)
        self.replaced.pop(path, None)

    def cut_power(self, draw):
        """Leave on the real disk what a power cut might."""
        for path, before in sorted(self.replaced.items()):
            if path.exists() and draw(st.booleans()):
                if before is None:
                    path.unlink()
                else:
                    path.write_bytes(before)
        for path, durable in sorted(self.durable.items()):
            if path.exists():
                size = path.stat().st_size
                if size > durable:
                    with path.open("r+b") as file:
                        file.truncate(draw(st.integers(durable, size)))


def _taken(file):
    """The descriptor of a file that is given up."""
    fd, file._fd = file._fd, -1
    return fd


class Model:
    """Batches as they were appended, and how many of them are promised to survive."""

    def __init__(self):
        self.batches = []
        self.safe_offset = 0
        self.epoch = 0

    @property
    def end_offset(self):
        return 10 * len(self.batches)

    def data(self):
        return b"".join(self.batches)

    def headers(self):
        return list(iter_headers(self.data()))


def check(log, model):
    """The log is a prefix of the model, and no shorter than promised."""
    data = read_all(log)
    assert model.data().startswith(data)
    assert log.log_end_offset >= model.safe_offset
    del model.batches[log.log_end_offset // 10 :]
    assert data == model.data()
    terms, producers = EpochCache(), ProducerStates()
    for header in model.headers():
        terms.assign(header.leader_epoch, header.base_offset)
        producers.update(header)
    assert log.epochs.entries == terms.entries
    assert log.producers.snapshot() == producers.snapshot()
    assert found_at(log, None) == newest(model)


def newest(model):
    """Return time and offset of the last record, None if there is none."""
    return (999 + model.end_offset, model.end_offset - 1) if model.batches else None


def step(volume, log, model, action, number):
    if action == "append":
        for _ in range(number):
            data = a_batch(
                model.end_offset,
                epoch=model.epoch,
                producer_id=7,
                producer_epoch=0,
                base_sequence=model.end_offset,
            )
            log.append(data, list(iter_headers(data)))
            model.batches.append(data)
    elif action == "new term":
        model.epoch += 1
        log.epochs.assign(model.epoch, log.log_end_offset)
    elif action == "flush":
        log.flush()
        if number % 2:
            volume.store.checkpoint_recovery_points()
            model.safe_offset = log.recovery_point
    elif action == "checkpoint":
        flush = log.begin_flush(checkpoint=True)
        flush.sync()
        log.flushed(flush)
        volume.store.checkpoint_recovery_points()
        model.safe_offset = log.recovery_point
        if number % 2:
            log.prune_snapshots()
    elif action == "truncate":
        offset = max(model.end_offset - 10 * number, 0)
        log.truncate_to(offset)
        del model.batches[offset // 10 :]
        model.safe_offset = min(model.safe_offset, offset)
        model.epoch += 1


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "append", "new term", "flush", "checkpoint", "truncate"]
        ),
        st.integers(1, 20),
    ),
    max_size=10,
)


@pytest.mark.slow
@given(lives=st.lists(steps, min_size=1, max_size=4), data=st.data())
@settings(max_examples=120)
def test_power_cut_loses_and_tears_nothing_flushed(lives, data):
    root = Path(tempfile.mkdtemp())
    try:
        volume = Volume(root / "data")
        sizes = {"segment_bytes": data.draw(st.sampled_from([1_300, 100_000]))}
        volume.config = LogConfig(index_interval_bytes=200, **sizes)
        model = Model()
        for actions in lives:
            disk = LossyDisk()
            log = volume.log(disk)
            check(log, model)
            for action, number in actions:
                step(volume, log, model, action, number)
            disk.cut_power(data.draw)
        check(volume.log(), model)
        volume.store.release_lock()
    finally:
        shutil.rmtree(root)

"""Files that are gone, or shorter by whole batches, between two lives of a broker: what is left
contradicts nothing, and is not taken for all there was."""

from __future__ import annotations

import pytest
from tests.plimsoll_broker.storage.conftest import fill, read_all
from tests.plimsoll_broker.storage.simulated import ORDERS, Machine

from plimsoll_broker.storage.disk import StorageError
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_sim.environment.simulated_disk import FileNode, Folder

BATCH_BYTES = 161
CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=300)
METADATA = "partition.metadata"


def a_log(batches: int = 40) -> tuple[Machine, bytes]:
    """Segments begin at 0, 120, 240 and 360."""
    machine = Machine(CONFIG)
    log = machine.log()
    fill(log, batches, producer_id=7, producer_epoch=0, base_sequence=0)
    return machine, read_all(log)


def files(machine: Machine) -> Folder:
    return machine.volume.folder(machine.store.directory / "orders-3")


def take(machine: Machine, name: str, *, but: str | None = None) -> None:
    entries = files(machine).entries
    for each in [one for one in entries if one.startswith(name) and one != but]:
        del entries[each]


def cut_off(machine: Machine, name: str, batches: int) -> None:
    node = files(machine).entries[f"{name}.log"]
    assert isinstance(node, FileNode)
    node.truncate(len(node.data) - batches * BATCH_BYTES)
    node.sync()


FIRST, LAST = f"{0:020d}", f"{360:020d}"
LOSSES = {
    "last batch": lambda machine: cut_off(machine, LAST, 1),
    "all batches of the last segment": lambda machine: cut_off(machine, LAST, 4),
    "last segment": lambda machine: take(machine, LAST),
    "last segment without its indexes": lambda machine: take(machine, f"{LAST}.log"),
    "first segment": lambda machine: take(machine, FIRST),
    "two segments": lambda machine: (take(machine, FIRST), take(machine, f"{120:020d}")),
    "all but whose log it is": lambda machine: take(machine, "", but=METADATA),
    "everything in the directory": lambda machine: take(machine, ""),
    "whose log it is": lambda machine: take(machine, METADATA),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_file_missing_after_clean_stop_disables_log(
    loss: str,
) -> None:
    machine, data = a_log()
    assert machine.store.close(7, {ORDERS: 400})
    LOSSES[loss](machine)
    with pytest.raises(
        StorageError, match=r"was on the disk up to|the log began at|does not name the partition"
    ):
        machine.log()
    assert not machine.store.close(8, {}), "what could not be opened was not closed"
    log = machine.log()  # no clean stop lies before it: nobody counts on this replica
    assert machine.store.clean_epoch is None
    held = read_all(log)
    assert held in data, "a part of what was there"
    assert machine.store.high_watermark(log) <= log.log_end_offset


@pytest.mark.parametrize("loss", LOSSES)
def test_file_missing_after_kill_leaves_the_rest(loss: str) -> None:
    machine, data = a_log()
    log = machine.store.logs[ORDERS]
    log.flush(checkpoint=True)
    machine.store.checkpoint_recovery_points()
    LOSSES[loss](machine)
    assert read_all(machine.log()) in data


def test_cleanly_stopped_log_opens_at_any_start() -> None:
    machine, data = a_log()
    log = machine.store.logs[ORDERS]
    for start in (30, 125, 400):  # within the first segment, behind it, at its end
        log.advance_log_start(start)
        machine.remove(synced=True)
        assert machine.store.close(7, {ORDERS: 400})
        log = machine.log()
        assert (log.log_start_offset, log.log_end_offset) == (start, 400)
        assert data.endswith(read_all(log))


def test_log_discarded_before_clean_stop_opens_there() -> None:
    machine, _ = a_log()
    for offset in (200, 900, 10):
        assert machine.store.close(7, {})
        log = machine.log()
        log.discard_to(offset)
        log.settle()
        assert machine.store.close(8, {})
        log = machine.log()
        assert (log.log_start_offset, log.log_end_offset) == (offset, offset)


def test_saved_starts_are_forgotten_when_files_state_them() -> None:
    machine, _ = a_log()
    assert machine.store.close(7, {ORDERS: 400})
    log = machine.log()
    assert machine.store.saved_log_start(log) == 0
    log.advance_log_start(240)
    machine.remove(synced=True)
    machine.store.checkpoint_log_starts()
    assert machine.log().log_start_offset == 240, "killed"

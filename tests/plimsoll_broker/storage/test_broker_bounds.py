"""What all logs of a broker have together: files that may be refused, and what they remember."""

import pytest
from tests.plimsoll_broker.storage.conftest import TOPIC_ID

from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault


@pytest.mark.parametrize(("refused", "batches"), [("open", 40), ("remove", 40), ("remove", 1)])
def test_log_that_cannot_begin_again_keeps_segment(volume, fill, monkeypatch, refused, batches):
    """Its broker looks at the ends of every log, of one out of service too: it ended with it."""
    log = volume.log()
    fill(log, batches)
    with monkeypatch.context() as patched:
        patched.setattr(Disk, refused, _refuses)
        with pytest.raises(StorageError) as met:
            log.discard_to(1_000)
    log.give_up(met.value)
    assert log.segments
    assert log.size >= 0
    assert log.unflushed_bytes >= 0
    again = volume.store.begin_reopen(log)()
    assert again.log_start_offset <= again.log_end_offset <= 10 * batches


def _refuses(_, path, **__):
    raise StorageError(StorageFault.DESCRIPTORS, path, "too many open files")


def test_logs_of_store_share_producer_memory(volume, fill):
    store = volume.start()
    store.producers.bound(80)
    logs = [store.open_log("orders", TOPIC_ID, n, volume.config, 0) for n in range(4)]
    for number in range(60):
        for log in logs:
            fill(log, 1, producer_id=number, producer_epoch=0, base_sequence=0)
        assert sum(len(log.producers) for log in logs) <= 80


def test_log_reopened_in_thread_shares_its_producers(volume, fill):
    """Others were made to forget from that thread, while the event loop wrote to them."""
    store = volume.start()
    log, other = (store.open_log("orders", TOPIC_ID, n, volume.config, 0) for n in range(2))
    for number in range(30):
        for one in (log, other):
            fill(one, 1, producer_id=number, producer_epoch=0, base_sequence=0)
    store.producers.bound(70)
    again = store.begin_reopen(log)()
    assert (len(again.producers), len(other.producers)) == (30, 30)
    store.reopened(log, again)
    assert (len(log.producers), len(again.producers), len(other.producers)) == (0, 30, 30)
    for number in range(30, 35):
        fill(again, 1, producer_id=number, producer_epoch=0, base_sequence=0)
    assert len(again.producers) + len(other.producers) < 60, "they count"

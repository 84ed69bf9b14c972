"""What must not be served is kept for a day, and no longer."""

import time
from uuid import UUID

from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_store import STRAY_DELAY_MS

TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
OTHER_ID = UUID("ffffffff-1234-5678-1234-567812345678")


def test_strays_day_goes_on_over_restarts(volume, fill, monkeypatch):
    wall_ms = 1_700_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: wall_ms * 1_000_000)
    fill(volume.log(), 3)
    store = volume.start()
    store.open_log("orders", OTHER_ID, 3, LogConfig(), 0)
    (stray,) = volume.path.glob("*-stray")
    for _ in range(3):  # a start every ten hours
        store = volume.start()
        assert store.deleted.due(0) == []
        wall_ms += 10 * 3600 * 1000
    assert store.deleted.due(STRAY_DELAY_MS - 20 * 3600 * 1000) == [stray]
    store = volume.start()
    assert store.deleted.due(0) == [stray]


def test_topic_with_the_longest_name_can_be_deleted(volume):
    store = volume.start()
    log = store.open_log("t" * 249, TOPIC_ID, 0, LogConfig(), 0)
    store.delete_log(log, 0)
    assert len(list(volume.path.glob("*-delete"))) == 1

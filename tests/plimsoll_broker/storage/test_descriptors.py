"""What is removed is let go of: its descriptor, and with it the space on the disk."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from tests.plimsoll_broker.storage.conftest import Volume, fill

from plimsoll_broker.replication.segment_removal import removable
from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.log_config import LogConfig


def deleted_but_open(directory: Path) -> list[str]:
    gc.collect()
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return [link for link in links if link.startswith(str(directory)) and "(deleted)" in link]


def retain(log: Log) -> None:
    log.apply_retention(0, log.log_end_offset)
    log.remove_first(removable(log, log.log_start_offset, 1_000))


@pytest.mark.slow
@pytest.mark.parametrize(
    "remove",
    [retain, lambda log: log.truncate_to(10), lambda log: log.discard_to(500)],
    ids=["retention", "cut", "discard"],
)
def test_removed_segments_are_closed_before_the_next_checkpoint(volume: Volume, remove) -> None:
    volume.config = LogConfig(segment_bytes=2_000, retention_bytes=2_000)
    log = volume.log()
    for _ in range(5):
        fill(log, 40)
        log.flush()
        fill(log, 40)
        remove(log)
        assert deleted_but_open(volume.path) == []

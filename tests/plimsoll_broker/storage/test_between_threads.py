"""The store and a thread of its own change the same thing, each between two steps of the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from plimsoll_broker.storage.checkpoint_files import OffsetFile
from plimsoll_broker.storage.disk import Disk
from plimsoll_broker.storage.log_config import LogConfig
from plimsoll_broker.storage.log_store import LogStore

NAME = ("t", 0)


class NewLogs(dict):
    """A thread that has looked stops until the other one has moved, or waits for it."""

    def __init__(self, *items: object) -> None:
        super().__init__(*items)  # type: ignore[arg-type]
        self.looks = 0
        self.looked, self.moved = threading.Event(), threading.Event()

    def get(self, *args: object) -> object:
        found = super().get(*args)  # type: ignore[arg-type]
        if threading.current_thread() is not threading.main_thread():
            self.looks += 1
            if self.looks == 2:  # before the sync, and after it
                self.looked.set()
                assert self.moved.wait(30)
        return found


class Turns:
    """A lock that says when it has to be waited for."""

    def __init__(self, waited: threading.Event) -> None:
        self._lock, self._waited = threading.Lock(), waited

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_log_replaced_during_sync_is_not_durable(
    tmp_path: Path,
) -> None:
    store = LogStore(tmp_path)
    assert store.open() is None
    store.load(0)
    old = store.open_log("t", uuid4(), 0, LogConfig(), 0)
    new_logs = store.new_logs._new = NewLogs(store.new_logs._new)
    store.new_logs._changing = Turns(new_logs.moved)  # type: ignore[assignment]
    make_durable = store.begin_new()
    assert make_durable is not None
    thread = threading.Thread(target=make_durable)
    thread.start()
    assert new_logs.looked.wait(30)
    store.delete_log(old, 0)
    store.open_log("t", uuid4(), 0, LogConfig(), 0)
    new_logs.moved.set()
    thread.join(30)
    assert store.new_logs.among([NAME]) == [NAME]
    store.release_lock()


class Offsets(dict):
    """Once it was copied, `lower` is called, as from another thread."""

    file: OffsetFile | None = None

    def __iter__(self) -> Iterator[object]:
        return super().__iter__()  # so that a copy asks for every value

    def __getitem__(self, name: object) -> object:
        offset = super().__getitem__(name)
        if self.file is not None:
            file, self.file = self.file, None
            file.lower(NAME, 3)
        return offset


def test_offset_lowered_during_save_is_saved_next(tmp_path: Path) -> None:
    file = OffsetFile(Disk(), tmp_path / "offsets")
    file.save({NAME: 7})
    offsets = file._offsets = Offsets(file._offsets)
    offsets.file = file
    file.save({})
    assert file.saved(NAME) == 7
    file.save_unsaved()
    assert file.saved(NAME) == 3

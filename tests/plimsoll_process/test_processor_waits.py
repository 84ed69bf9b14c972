"""How long a thread has waited for a processor, as the kernel tells it."""

from __future__ import annotations

import threading
from pathlib import Path

from plimsoll_process.loop_watch import ThreadWaits


def test_waits_are_read_anew_each_time(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    schedstat = tmp_path / "7" / "schedstat"
    schedstat.write_text("5000000 1500000000 12\n")
    waits = ThreadWaits(7, tmp_path)
    assert waits.seconds() == 1.5
    schedstat.write_text("6000000 2500000000 13\n")
    assert waits.seconds() == 2.5
    waits.close()
    assert waits.seconds() == 0.0


def test_kernel_without_these_figures_tells_of_no_waits(tmp_path: Path) -> None:
    waits = ThreadWaits(7, tmp_path)
    assert waits.seconds() == 0.0
    waits.close()


def test_own_thread_has_waited_at_least_no_time() -> None:
    waits = ThreadWaits(threading.get_native_id())
    before_s = waits.seconds()
    assert 0.0 <= before_s <= waits.seconds()
    waits.close()

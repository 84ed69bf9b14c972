"""Where a long test is, is printed; tests that are short share who waits for it."""

from __future__ import annotations

import faulthandler
import time

import pytest
from tests.long_tests import ARMED_AGAIN_S, LongTests


def test_long_tests_are_waited_for_by_one_thread_for_all_that_begin_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, armed = 1000.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda s, **_: armed.append(s))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: armed.append(0))
    tests = LongTests(120)
    for _ in range(3):
        tests.begin()
    assert armed == [120 + ARMED_AGAIN_S]
    now_s += ARMED_AGAIN_S
    tests.begin()
    tests.begin()
    tests.end()
    assert armed == [120 + ARMED_AGAIN_S] * 2 + [0]

"""Whether this machine was busy while something ran."""

import time

from dev.processor_time import Busy, read


def test_reading_counts_what_a_process_computes() -> None:
    before = read()
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    assert read()[0] - before[0] > 0.2
    assert Busy().told().startswith("processors: busy 0 s, idle ")

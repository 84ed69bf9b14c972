"""Whether this machine was busy while something ran."""

import subprocess
import sys
import time

import psutil
from dev.processor_time import Busiest, Busy, read


def test_reading_counts_what_a_process_computes() -> None:
    before = read()
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    assert read()[0] - before[0] > 0.2
    assert Busy().told().startswith("processors: busy 0 s, idle ")


def test_spinning_process_is_named() -> None:
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        process = psutil.Process(spinning.pid)
        while process.cpu_times().user < 0.1:
            pass
        busiest = Busiest()
        busiest.LEAST = 0.0
        busiest.COUNT = 1_000_000
        began = process.cpu_times().user
        while process.cpu_times().user < began + 0.2:
            pass
        told = [line for line in busiest.told() if f" {spinning.pid} " in line]
    finally:
        spinning.kill()
        spinning.wait()
    assert told
    assert not told[0].startswith("0%")

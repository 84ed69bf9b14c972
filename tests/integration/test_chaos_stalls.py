"""Stalls of chaos' clients: what a fault explains, on a quick machine and on a busy one."""

from __future__ import annotations

import pytest
from tests.integration.chaos_clients.frame import Stall
from tests.integration.chaos_stalls import RECOVERY_S, Outage, judged
from tests.integration.machine_share import MachineShare

KILL = "kill a broker"
LASTS_S = RECOVERY_S[KILL]


def machine(*measured: tuple[float, float]) -> MachineShare:
    share = MachineShare()
    for at_s, slowdown in measured:
        share.add(at_s, slowdown)
    return share


def unexplained(stall: Stall, *outages: Outage, share: MachineShare | None = None) -> float:
    (found,) = judged([stall], outages, share or machine())
    return found.unexplained_s


def test_fault_explains_a_stall_until_its_recovery_ends() -> None:
    killed = Outage(KILL, 100.0, 101.0)
    assert unexplained(Stall(100.0, 101.0 + LASTS_S), killed) == 0
    assert unexplained(Stall(100.0, 121.0 + LASTS_S), killed) == pytest.approx(20)


def test_stall_that_begins_after_a_recovery_is_unexplained() -> None:
    killed = Outage(KILL, 100.0, 101.0)
    assert unexplained(Stall(102.0 + LASTS_S, 109.0 + LASTS_S), killed) == pytest.approx(7)


def test_stall_before_fault_is_unexplained() -> None:
    assert unexplained(Stall(90.0, 102.0), Outage(KILL, 100.0, 101.0)) == pytest.approx(10)


def test_two_faults_explain_no_second_twice() -> None:
    faults = Outage(KILL, 100.0, 100.0), Outage(KILL, 104.0, 104.0)
    assert unexplained(Stall(100.0, 110.0 + LASTS_S), *faults) == pytest.approx(6)
    apart = Outage(KILL, 100.0, 100.0), Outage(KILL, 120.0 + LASTS_S, 120.0 + LASTS_S)
    assert unexplained(Stall(100.0, 121.0 + LASTS_S), *apart) == pytest.approx(20)


def test_recovery_takes_longer_on_a_busy_machine() -> None:
    busy = machine((100.0, 1.0), (1000.0, 4.0))
    killed = Outage(KILL, 100.0, 100.0)
    assert unexplained(Stall(100.0, 100.0 + 4 * LASTS_S), killed, share=busy) == 0
    ended_s = 100.0 + 4 * LASTS_S + 8
    assert unexplained(Stall(100.0, ended_s), killed, share=busy) == pytest.approx(2)


def test_interval_counts_its_processor_time() -> None:
    share = machine((10.0, 1.0), (20.0, 5.0))
    assert share.idle_s(0.0, 10.0) == pytest.approx(10)
    assert share.idle_s(5.0, 20.0) == pytest.approx(7)
    assert share.idle_s(15.0, 40.0) == pytest.approx(5)
    assert share.slowdown(10.0, 20.0) == pytest.approx(5)


def test_measured_share_is_that_of_this_machine() -> None:
    with MachineShare.measured() as share:
        pass
    assert share.slowdown(0.0, 1.0) >= 1

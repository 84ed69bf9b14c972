"""Which stalls of chaos' clients no fault explains.

A fault explains a stall from its beginning until the cluster and its clients had `RECOVERY_S` of an
idle machine's time after its end (machine_share.py).  What a client got nothing done beyond that is
bounded by `UNEXPLAINED_S_MAX`, in the same time.  Pure; called by chaos.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.integration.chaos_clients.frame import SESSION_MS, Stall
from tests.integration.machine_share import MachineShare

UNEXPLAINED_S_MAX = 5.0
READER_S = SESSION_MS / 1000
"""A group waits so much longer, for the session of a member that lost its coordinator."""


class Outage(NamedTuple):
    """A fault, from when to when it was done, in seconds of the monotonic clock."""

    name: str
    began_s: float
    ended_s: float


RECOVERY_S = {
    "kill a broker": 8.0,
    "kill two brokers": 10.0,
    "kill all brokers": 10.0,
    "freeze a broker": 8.0,
    "kill everything": 10.0,
    "restart everything": 10.0,
}
"""A start of the processes that were killed, a session that has to time out, an election, and the
clients' own waits before they connect again."""


class Judged(NamedTuple):
    """A stall: how long it was, on an idle machine, and how much of that no fault explains."""

    stall: Stall
    idle_s: float
    unexplained_s: float


def judged(
    stalls: Sequence[Stall], outages: Sequence[Outage], machine: MachineShare, more_s: float = 0.0
) -> list[Judged]:
    """`more_s`: of recovery, for clients that need more than to find a leader."""
    return [_judged(stall, outages, machine, more_s) for stall in stalls]


def _judged(
    stall: Stall, outages: Sequence[Outage], machine: MachineShare, more_s: float
) -> Judged:
    """Seconds of the stall are counted from its beginning, as on an idle machine."""
    whole_s = machine.idle_s(*stall)
    explained_until_s = unexplained_s = 0.0
    for outage in sorted(outages, key=lambda one: one.began_s):
        if outage.began_s >= stall.ended_s:
            break
        left_s = RECOVERY_S[outage.name] + more_s
        if outage.ended_s < stall.began_s:
            left_s -= machine.idle_s(outage.ended_s, stall.began_s)
        began_s = machine.idle_s(stall.began_s, max(outage.began_s, stall.began_s))
        ended_s = machine.idle_s(stall.began_s, max(outage.ended_s, stall.began_s)) + left_s
        if ended_s > explained_until_s:
            unexplained_s += max(0.0, began_s - explained_until_s)
            explained_until_s = ended_s
    unexplained_s += max(0.0, whole_s - explained_until_s)
    return Judged(stall, whole_s, unexplained_s)

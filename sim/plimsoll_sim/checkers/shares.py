"""Checks principals' shares of brokers' pools: A11 HeldWithinShare · A12 RoomForNewcomers.

Reads the pools after each step of a broker, in runs with tenants that log in or clients that hoard
groups. A coordinator's loading counts in full, whatever the share, so the memory of groups, and
that of transactional ids, is checked only while all of them are loaded.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_broker.coordinator.coordinator_shard import ShardPhase
from plimsoll_broker.coordinator.coordinators import Coordinators
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_sim.hosts.brokers import BrokerHost
from plimsoll_sim.oracle.partition_ghost import Violation

OF_GROUPS = ("group memory", "groups", "members")
"""Pools that contain groups, and that count a loading group in full."""
OF_TRANSACTIONS = "transaction memory"
"""The pool that counts loading transactional ids in full."""
SLACK_PART = 16
"""Allowance beyond a principal's share, as a fraction of the pool (1/16): for requests admitted in
one moment, and replies that are counted once they are made."""
WANTED_US_MAX = 10_000_000
"""Longest time in virtual microseconds for which a principal with less than an equal share may be
refused."""


class ShareChecker:
    """Checks all brokers of a world. `looks`: False in runs in which no client takes more than a
    little."""

    def __init__(self, now_us: Callable[[], int], *, looks: bool) -> None:
        self._now_us = now_us
        self._looks = looks
        self._held: dict[tuple[str, int, str, str], int] = {}
        self._wanted_us: dict[str, int] = {}

    def look(self, host: BrokerHost) -> None:
        """Check the pools of a broker after a step in which the broker ran."""
        node = host.node
        if not self._looks or host.manager is None or node is None or node._serving is None:
            return
        coordinators = node._serving.coordinators
        for name, pool in node._serving.clients.memory.holdings.pools():
            self._judge(host, name, pool, may_grow=_loads(coordinators, name))
        self._newcomers(host, coordinators)

    def _judge(self, host: BrokerHost, name: str, pool: FairPool, *, may_grow: bool) -> None:
        principal = pool.largest()
        if principal is None:
            return
        held, key = pool.held(principal), (host.name, host.lives, name, principal)
        before, self._held[key] = self._held.get(key, 0), held
        if may_grow:
            return
        bound = max(pool.capacity // 2, pool.floor) + pool.capacity // SLACK_PART
        if before < held > bound:
            text = f"{host.name}: {principal} has {held} of {pool.capacity} of its {name}"
            raise Violation("HeldWithinShare", text)

    def _newcomers(self, host: BrokerHost, coordinators: Coordinators) -> None:
        if not coordinators.memory.wants_room:
            self._wanted_us.pop(host.name, None)
            return
        since_us = self._wanted_us.setdefault(host.name, self._now_us())
        if self._now_us() - since_us > WANTED_US_MAX:
            text = f"{host.name}: a principal with less than an equal share finds no room"
            raise Violation("RoomForNewcomers", text)


def _loads(coordinators: Coordinators, name: str) -> bool:
    """Return True if a coordinator loads what the pool of this name counts."""
    if name == OF_TRANSACTIONS and (served := coordinators.transactions) is not None:
        return any(one.phase is not ShardPhase.ACTIVE for one in served.coordinators.shards())
    return name in OF_GROUPS and not all(
        shard.phase is ShardPhase.ACTIVE and not shard.holds_back for shard in coordinators.shards()
    )

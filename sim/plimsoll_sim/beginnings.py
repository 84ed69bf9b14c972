"""Faults about where logs begin, and about disks and clocks that decide it.

Retention and clients let go of old records; a replica that was left behind must then begin again
where its leader does, whatever it has on its disk, and whoever leads.  As in `stories`, which tells
how stories are told.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll_broker.hosted import Hosted
from plimsoll_core.election_messages import NamedLeader, NameLeaders
from plimsoll_core.ids import BrokerId
from plimsoll_core.model import PartitionKey
from plimsoll_sim.brokers import BrokerHost
from plimsoll_sim.plots import Plots
from plimsoll_sim.stories import Moment
from plimsoll_sim.world import TOPIC

SLOW_IO_US = (200_000, 3_000_000)
ALL_KEPT = {"retention.bytes": "-1", "retention.ms": "-1"}
KEPT_BYTES = (100, 300, 1_000)
KEPT_MS = (1_000, 5_000, 20_000)
NAMED_TIMES_MAX = 10
CLOCK_STEPS_MS = (-86_400_000, -3_600_000, -5_000, 5_000, 3_600_000, 86_400_000)


def delete_records(host: BrokerHost, hosted: Hosted, offset: int) -> None:
    """The leader's log begins at `offset` from now on, as after a client's DeleteRecords."""
    manager, process = host.manager, host.process
    assert manager is not None
    assert process is not None

    def delete() -> None:
        manager.driver.advance_log_start(hosted, offset)
        hosted.replica.start_moved()
        manager.touch(hosted)
        manager.store.checkpoint_log_starts()

    process.call(delete)


class Beginnings(Plots):
    """The part of `faults.Chaos` that moves the beginnings of logs."""

    def _slow_disk(self) -> str | None:
        """Whatever goes to a thread takes so much longer there."""
        host = self._running()
        if host is None:
            return None
        slow = self.world.loop.slow_io
        slow[host.name] = SLOW_IO_US

        def quick() -> None:
            slow.pop(host.name, None)

        self._after(quick)
        return host.name

    def _step_wall_clock(self) -> str | None:
        host = self._running()
        if host is None or host.process is None:
            return None
        host.process.wall_offset_ms = self._rng.choice(CLOCK_STEPS_MS)
        return f"{host.name} by {host.process.wall_offset_ms} ms"

    def _change_retention(self) -> str | None:
        wanted = self.world.wishes.topics.get(TOPIC)
        if wanted is None:
            return None
        configs = {k: v for k, v in wanted.configs.items() if not k.startswith("retention.")}
        if self._rng.random() < 0.5:
            configs["retention.bytes"] = str(self._rng.choice(KEPT_BYTES))
        if self._rng.random() < 0.5:
            configs["retention.ms"] = str(self._rng.choice(KEPT_MS))
        self.world.declare(configs=configs)
        return f"{configs}"

    def _delete_records(self) -> str | None:
        """A client lets go of the oldest records."""
        found = [(p, host, hosted) for p, host in self._led() if (hosted := host.hosted(p.key))]
        if not found:
            return None
        p, host, hosted = self._rng.choice(found)
        start, end = hosted.log.log_start_offset, hosted.replica.high_watermark
        ghost = self.world.ghost.partitions.get(p.key)
        if start >= end or ghost is None or host.process is None or host.process.paused:
            return None
        offset = self._rng.randint(start + 1, end)
        ghost.deleted = max(ghost.deleted, offset)
        delete_records(host, hosted, offset)
        return f"{TOPIC}-{p.index} up to {offset} at {host.name}"

    # --- left behind ------------------------------------------------------------------------------

    def _left_behind(self) -> str | None:
        """Whoever is so far behind that its end is below the others' beginning leads, for nobody
        else is there; the others come back, follow it, and die again."""
        found = [one for one in self._followers() if len(one[0].isr) > 1]
        if not found:
            return None
        p, leader, behind = self._rng.choice(found)
        self._tell(self._fell_behind(p.key, leader, behind))
        return f"{TOPIC}-{p.index}: {behind.name} behind {leader.name}"

    def _fell_behind(
        self, key: PartitionKey, leader: BrokerHost, behind: BrokerHost
    ) -> Iterator[Moment]:
        world, rng = self.world, self._rng
        wanted = world.wishes.topics.get(TOPIC)
        if wanted is None:
            return
        configs = dict(wanted.configs)
        few = {"retention.bytes": str(rng.choice(KEPT_BYTES))}
        world.declare(configs=configs | few)
        others = [host for host in world.brokers.values() if host is not behind]
        links = self._cut_all([(behind, host) for host in others])

        def passed() -> bool:
            hosted, end = leader.hosted(key), self._end(key, behind)
            return hosted is not None and hosted.log.log_start_offset > end >= 0

        yield passed, 12_000
        world.note(f"story: {behind.name} is behind the beginning: {passed()}")
        if passed():
            self._let_go(key, leader)
        if passed() and rng.random() < 0.7:
            # From now on there is room for what the two will have in common.
            world.declare(configs=configs | ALL_KEPT)
            yield None, rng.randint(50, 500)
            yield from self._led_by_the_last(key, behind)
        self._heal_all(links)
        world.declare(configs=configs)

    def _let_go(self, key: PartitionKey, leader: BrokerHost) -> None:
        """A client deletes most of what is left, perhaps: then only a checkpoint tells of it."""
        hosted, ghost = leader.hosted(key), self.world.ghost.partitions.get(key)
        if hosted is None or ghost is None or hosted.replica.leader is None:
            return
        start, end = hosted.log.log_start_offset, hosted.replica.high_watermark
        if self._rng.random() < 0.7 and start < end:
            offset = self._rng.choice((end, self._rng.randint(start + 1, end)))
            ghost.deleted = max(ghost.deleted, offset)
            delete_records(leader, hosted, offset)

    def _led_by_the_last(self, key: PartitionKey, behind: BrokerHost) -> Iterator[Moment]:
        world, rng = self.world, self._rng
        p = self._now(key)
        if p is None:
            return
        gone = [world.brokers[int(b)] for b in p.replicas if b != BrokerId(behind.id)]
        for host in gone:
            host.kill()
        yield from self._named(key, behind)
        world.note(f"story: {behind.name} leads: {self._leads(key, behind)}")
        self._heal_all([link for link in world.network.cuts if behind.name in link])
        yield None, rng.randint(50, 500)
        for host in gone:
            world.start_broker(host)
        yield (lambda: self._full(key)), 8_000
        world.note(f"story: all follow {behind.name}: {self._full(key)}")
        yield None, rng.randint(50, 500)
        again = rng.choice(gone)
        again.kill()
        yield None, rng.randint(50, 500)
        world.start_broker(again)
        yield (lambda: self._full(key)), 8_000
        behind.stop()
        yield None, rng.randint(500, 2_000)
        world.start_broker(behind)

    def _named(self, key: PartitionKey, host: BrokerHost) -> Iterator[Moment]:
        """A person names the leader, in the Topic object, once nobody leads."""
        for _ in range(NAMED_TIMES_MAX):
            yield (lambda: self._leads(key, host)), 500
            wanted, p = self.world.wishes.topics.get(TOPIC), self._now(key)
            if wanted is None or p is None or p.leader is not None:
                return
            named = NamedLeader(
                partition=p.index, leader=BrokerId(host.id), at_leader_epoch=p.leader_epoch
            )
            order = NameLeaders(object=wanted.object, leaders=(named,))
            self.world.wishes.orders.append(order)

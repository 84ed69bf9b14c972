"""Faults about where logs begin, and about disks and clocks that decide it.

Retention and clients let go of old records; a replica that was left behind must then begin again
where its leader does, whatever it has on its disk, and whoever leads.  As in `stories`, which tells
how stories are told.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.elections import NamedLeader, NameLeaders
from plimsoll_sim import requests
from plimsoll_sim.brokers import KAFKA_PORT, REPLICATION_PORT, BrokerHost
from plimsoll_sim.damage import cut_power
from plimsoll_sim.plots import Plots
from plimsoll_sim.stories import Moment
from plimsoll_sim.world import TOPIC

SLOW_IO_US = (200_000, 3_000_000)
ALL_KEPT = {"retention.bytes": "-1", "retention.ms": "-1"}
KEPT_BYTES = (100, 300, 1_000)
KEPT_MS = (1_000, 5_000, 20_000)
NAMED_TIMES_MAX = 10
CLOCK_STEPS_MS = (-86_400_000, -3_600_000, -5_000, 5_000, 3_600_000, 86_400_000)


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
        ghost = self.world.ghost.partitions.get(p.key)
        start, end = hosted.log.log_start_offset, hosted.log.log_end_offset
        if start >= end or ghost is None:
            return None
        if self._rng.random() < 0.7:  # what is not committed is refused
            end = max(hosted.replica.high_watermark, start + 1)
        offset = self._rng.randint(start + 1, end)
        requests.by_somebody(self.world, requests.delete_once(host.name, ghost, offset))
        return f"{TOPIC}-{p.index} up to {offset} at {host.name}"

    # --- strangers --------------------------------------------------------------------------------

    def _stranger(self) -> str | None:
        """Somebody fetches as a replica that has all: in an epoch that nobody registered, or in the
        registered one where clients ask; or that has nothing.  It knows of a controller that nobody
        else does."""
        found = self._followers()
        if not found:
            return None
        p, leader, follower = self._rng.choice(found)
        broker = self.world.ghost.image.brokers[BrokerId(follower.id)]
        ahead, port = self._rng.choice(
            (
                (1, REPLICATION_PORT),
                (2**40, REPLICATION_PORT),
                (0, KAFKA_PORT),
                (0, REPLICATION_PORT),
            )
        )
        # Where it is believed to be that follower it has nothing.
        believed = port == REPLICATION_PORT and not ahead
        claim = requests.Claim(
            follower.id,
            broker.broker_epoch + ahead,
            0 if believed else max(self._end(p.key, leader), 0),
            self._rng.choice((0, 2**31)),
        )
        requests.by_somebody(self.world, requests.pretend(leader.name, port, p, claim))
        return f"as {follower.name} at {leader.name}:{port}, {claim}"

    # --- what is not on the disk yet --------------------------------------------------------------

    def _unflushed_heir(self) -> str | None:
        """A follower's disk is slow; its leader dies, and it does, too, right after it was elected:
        whatever was acknowledged is on its disk."""
        found = [one for one in self._followers() if BrokerId(one[2].id) in one[0].isr]
        if not found:
            return None
        p, leader, heir = self._rng.choice(found)
        self._tell(self._inherited_unflushed(p.key, leader, heir))
        return f"{heir.name} after {leader.name}"

    def _inherited_unflushed(
        self, key: PartitionKey, leader: BrokerHost, heir: BrokerHost
    ) -> Iterator[Moment]:
        world, slow = self.world, self.world.loop.slow_io
        slow[heir.name] = SLOW_IO_US

        def behind() -> bool:
            hosted = heir.hosted(key)
            return hosted is not None and hosted.log.flushed_end < hosted.log.log_end_offset

        yield behind, 2_000
        yield None, self._rng.randint(0, 300)
        leader.kill()
        yield (lambda: self._leads(key, heir)), 3_000
        world.note(f"story: {heir.name} leads: {self._leads(key, heir)}")
        yield None, self._rng.choice((0, 0, 1_000))  # what it is sent now is not flushed either
        cut_power(world, heir)
        slow.pop(heir.name, None)
        for host in (heir, leader):
            self._back(host)

    # --- room -------------------------------------------------------------------------------------

    def _full_amid_a_proposal(self) -> str | None:
        """A leader's proposal is committed, and it hears nothing of that; its disk fills, and has
        room again.  It is still the leader, as far as it knows, and of whom?"""
        found = self._followers()
        if not found:
            return None
        p, leader, joiner = self._rng.choice(found)
        self._tell(self._forgot_its_proposal(p.key, leader, joiner))
        return f"{joiner.name} joins {leader.name}"

    def _forgot_its_proposal(
        self, key: PartitionKey, leader: BrokerHost, joiner: BrokerHost
    ) -> Iterator[Moment]:
        world, me = self.world, BrokerId(joiner.id)

        def in_sync() -> bool:
            p = self._now(key)
            return p is not None and me in p.isr

        links = self._cut_all([(leader, joiner)])
        yield (lambda: not in_sync()), 4_000
        hosts = {one.name for one in world.operators}
        news = world.network.sides(lambda source, to: source in hosts and to == leader.name)
        for end in news:
            world.network.stall(end)
        self._heal_all(links)
        yield in_sync, 3_000
        world.note(f"story: {joiner.name} is in sync, {leader.name} has not heard: {in_sync()}")
        away = [(leader.name, host) for host in hosts]
        for link in away:
            world.network.cut(*link)
        leader.volume.full = True
        hosted = leader.hosted(key)
        yield (lambda: hosted is None or hosted.replica.failed), 2_000
        leader.volume.full = False
        yield None, self._rng.randint(200, 2_000)
        self._heal_all(away)
        for end in news:
            world.network.unstall(end)

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
            requests.by_somebody(self.world, requests.delete_once(leader.name, ghost, offset))

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

"""Faults of several steps: what a broker remembers, holds or said in another life.

As in `stories`, which tells how they are told.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_sim.brokers import BrokerHost
from plimsoll_sim.damage import change_disk, cut_power, image_of
from plimsoll_sim.stories import Moment, Stories
from plimsoll_sim.world import TOPIC


class Lives(Stories):
    """The part of `faults.Chaos` that is about stopping and coming back."""

    def _now(self, key: PartitionKey) -> Partition | None:
        return self.world.ghost.image.partitions.get(key)

    def _leads(self, key: PartitionKey, host: BrokerHost) -> bool:
        p = self._now(key)
        return p is not None and p.leader == BrokerId(host.id)

    def _full(self, key: PartitionKey) -> bool:
        p = self._now(key)
        return p is not None and p.leader is not None and len(p.isr) == len(p.replicas)

    def _end(self, key: PartitionKey, host: BrokerHost) -> int:
        hosted = host.hosted(key)
        return -1 if hosted is None else hosted.log.log_end_offset

    def _knows(self, key: PartitionKey, host: BrokerHost, epoch: int) -> bool:
        hosted = host.hosted(key)
        return hosted is not None and hosted.replica.partition.leader_epoch >= epoch

    def _cut_all(self, pairs: list[tuple[BrokerHost, BrokerHost]]) -> list[tuple[str, str]]:
        links = [(a.name, b.name) for a, b in pairs] + [(b.name, a.name) for a, b in pairs]
        for link in links:
            self.world.network.cut(*link)
        return links

    def _heal_all(self, links: list[tuple[str, str]]) -> None:
        for link in links:
            self.world.network.heal(*link)

    def _any(self, replicas_min: int) -> Partition | None:
        image = self.world.ghost.image
        found = [p for p in image.partitions.values() if len(p.replicas) >= replicas_min]
        return self._rng.choice(found) if found else None

    # --- nobody grants the stop -------------------------------------------------------------------

    def _quiet_stop(self) -> str | None:
        """A broker stops cleanly while no controller is there, and is back before it is missed."""
        host = self._running()
        if host is None:
            return None
        self._tell(self._stopped_quietly(host))
        return host.name

    def _stopped_quietly(self, host: BrokerHost) -> Iterator[Moment]:
        world = self.world
        gone = [one for one in world.operators if one.running]
        for one in gone:
            one.kill()
        host.stop()
        yield (lambda: not host.running), 20_000
        for one in gone:
            world.start_operator(one)
        yield None, self._rng.randint(0, 500)
        world.start_broker(host)

    # --- what an earlier life said ----------------------------------------------------------------

    def _late_letters(self) -> str | None:
        """What a follower asked before it lost power arrives in its next life."""
        found = self._followers()
        if not found:
            return None
        _, leader, follower = self._rng.choice(found)
        self._tell(self._lettered(leader, follower))
        return f"{follower.name} to {leader.name}"

    def _lettered(self, leader: BrokerHost, follower: BrokerHost) -> Iterator[Moment]:
        world, network = self.world, self.world.network
        ends = network.sides(lambda source, to: (source, to) == (follower.name, leader.name))
        for end in ends:
            network.stall(end)
        yield (lambda: any(end.held for end in ends)), 2_000
        cut_power(world, follower)
        yield None, self._rng.randint(0, 300)
        world.start_broker(follower)

        def heard() -> bool:
            epoch = follower.epoch
            for hosted in leader.manager or ():
                leads = hosted.replica.leader
                known = None if leads is None else leads.followers.get(BrokerId(follower.id))
                if epoch is not None and known is not None and known.broker_epoch == epoch:
                    return True
            return False

        yield heard, 6_000
        world.note(f"story: {leader.name} has heard of {follower.name}'s next life: {heard()}")
        for end in ends:
            network.unstall(end)

    # --- a marker of another life -----------------------------------------------------------------

    def _old_marker(self) -> str | None:
        """The last one in sync has its disk of an earlier clean stop back, marker and all."""
        p = self._any(2)
        if p is None:
            return None
        host = self.world.brokers[int(self._rng.choice(p.replicas))]
        if not host.running:
            return None
        self._tell(self._restored(p, host))
        return f"{host.name} {TOPIC}-{p.index}"

    def _restored(self, p: Partition, host: BrokerHost) -> Iterator[Moment]:
        world = self.world
        host.stop()
        yield (lambda: not host.running), 5_000
        if host.running:
            return
        image = image_of(host)
        world.start_broker(host)
        yield partial(self._full, p.key), 6_000
        yield None, self._rng.randint(100, 1_000)
        others = [world.brokers[int(one)] for one in p.replicas if one != BrokerId(host.id)]
        for one in others:
            if one.running:
                one.kill()

        def alone() -> bool:
            now = self._now(p.key)
            return now is not None and now.isr == (BrokerId(host.id),)

        yield alone, 8_000
        world.note(f"story: {host.name} is alone: {alone()}")
        change_disk(world, host, image)
        world.start_broker(host)
        yield None, self._rng.randint(1_000, 3_000)
        for one in others:
            world.start_broker(one)

    # --- the complete one is slow -----------------------------------------------------------------

    def _slow_to_tell(self) -> str | None:
        """Of the last two one lost data, and tells of its log before the other one."""
        found = [p for p in self.world.ghost.image.partitions.values() if len(p.isr) > 1]
        if not found:
            return None
        p = self._rng.choice(found)
        one, other = (self.world.brokers[int(b)] for b in self._rng.sample(sorted(p.isr), 2))
        self._tell(self._told_slowly(p, one, other))
        return f"{TOPIC}-{p.index}: {one.name}, then {other.name}"

    def _told_slowly(self, p: Partition, loser: BrokerHost, slow: BrokerHost) -> Iterator[Moment]:
        world, network = self.world, self.world.network
        rest = [world.brokers[int(b)] for b in p.replicas]
        rest = [host for host in rest if host not in (loser, slow) and host.running]
        for host in rest:
            host.kill()

        def in_sync(*hosts: BrokerHost) -> bool:
            now = self._now(p.key)
            return now is not None and set(now.isr) == {BrokerId(host.id) for host in hosts}

        yield partial(in_sync, loser, slow), 4_000
        yield None, self._rng.randint(100, 1_000)
        cut_power(world, loser)
        slow.kill()
        yield partial(in_sync), 9_000
        world.start_broker(loser)
        yield (lambda: loser.serving), 6_000
        life = world.ghost.image.brokers[BrokerId(slow.id)].broker_epoch
        world.start_broker(slow)

        def registered() -> bool:
            return world.ghost.image.brokers[BrokerId(slow.id)].broker_epoch != life

        yield registered, 6_000
        hosts = {one.name for one in world.operators}
        letters = network.sides(lambda source, to: source == slow.name and to in hosts)
        for end in letters:
            network.stall(end)
        yield None, 5_500
        for end in letters:
            network.unstall(end)
        for host in rest:
            world.start_broker(host)

"""More faults of several steps: what a broker remembers, holds or said in another life or term.

As in `stories`, of which this is the second half.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from plimsoll_core.election_messages import ElectLeaders, PartitionName
from plimsoll_core.ids import BrokerId
from plimsoll_core.model import Partition, PartitionKey
from plimsoll_sim.brokers import BrokerHost
from plimsoll_sim.damage import change_disk, cut_power, image_of
from plimsoll_sim.stories import Moment, Stories
from plimsoll_sim.world import TOPIC


class Plots(Stories):
    """The part of `faults.Chaos` that takes even longer."""

    def _now(self, key: PartitionKey) -> Partition | None:
        return self.world.ghost.image.partitions.get(key)

    def _leads(self, key: PartitionKey, host: BrokerHost) -> bool:
        p = self._now(key)
        return p is not None and p.leader == BrokerId(host.id)

    def _full(self, key: PartitionKey) -> bool:
        p = self._now(key)
        return p is not None and p.leader is not None and len(p.isr) == len(p.replicas)

    def _end(self, key: PartitionKey, host: BrokerHost) -> int:
        manager = host.manager
        hosted = None if manager is None else manager.by_key(*key)
        return -1 if hosted is None else hosted.log.log_end_offset

    def _knows(self, key: PartitionKey, host: BrokerHost, epoch: int) -> bool:
        manager = host.manager
        hosted = None if manager is None else manager.by_key(*key)
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
        found = [
            (leader, self.world.brokers[int(replica)])
            for p, leader in self._led()
            for replica in p.replicas
            if replica != p.leader and self.world.brokers[int(replica)].running
        ]
        if not found:
            return None
        leader, follower = self._rng.choice(found)
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

        def known() -> bool:
            image = None if leader.manager is None else leader.manager.image
            epoch = follower.epoch
            if image is None or epoch is None:
                return False
            return image.brokers[BrokerId(follower.id)].broker_epoch == epoch

        yield known, 6_000
        world.note(f"story: {leader.name} knows of {follower.name}'s next life: {known()}")
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

    # --- records of two terms ---------------------------------------------------------------------

    def _two_terms(self) -> str | None:
        """Two lead in turn, each writes without the other, and the second must follow the first."""
        p = self._any(2)
        if p is None or len(p.isr) != 2 or p.leader is None:
            return None
        first = self.world.brokers[int(p.leader)]
        second = self.world.brokers[next(int(one) for one in p.isr if one != p.leader)]
        self._tell(self._wrote_in_turn(p.key, first, second))
        return f"{first.name}, {second.name}"

    def _wrote_in_turn(
        self, key: PartitionKey, first: BrokerHost, second: BrokerHost
    ) -> Iterator[Moment]:
        world = self.world
        links = self._cut_all([(first, second)])
        yield (lambda: self._end(key, first) > self._end(key, second) >= 0), 2_000
        first.stop()
        yield (lambda: self._leads(key, second) and not first.running), 4_000
        end = self._end(key, second)
        yield (lambda: self._end(key, second) > end), 2_000
        world.start_broker(first)

        def back() -> bool:
            broker = world.ghost.image.brokers.get(BrokerId(first.id))
            return first.serving and broker is not None and broker.active

        yield back, 6_000
        second.stop()
        yield (lambda: self._leads(key, first) and not second.running), 4_000
        world.note(f"story: {first.name} leads again: {self._leads(key, first)}")
        yield None, self._rng.randint(0, 500)
        world.start_broker(second)
        self._heal_all(links)

    # --- an answer from two terms ago -------------------------------------------------------------

    def _late_reply(self) -> str | None:
        """A follower hears from a leader where to cut when it has long cut, and filled, its log."""
        p = self._any(3)
        if p is None or p.leader is None or len(p.isr) < 3:
            return None
        old, new, follower = self._rng.sample(sorted(p.isr), 3)
        if old != p.leader:
            old, new, follower = (p.leader, *[one for one in p.isr if one != p.leader][:2])
        brokers = self.world.brokers
        three = brokers[int(old)], brokers[int(new)], brokers[int(follower)]
        self._tell(self._replied_late(p, *three))
        return f"{TOPIC}-{p.index}: " + ", ".join(one.name for one in three)

    def _replied_late(
        self, p: Partition, old: BrokerHost, new: BrokerHost, follower: BrokerHost
    ) -> Iterator[Moment]:
        key, network = p.key, self.world.network
        links = self._cut_all([(old, new)])
        yield (lambda: self._end(key, follower) > self._end(key, new) >= 0), 2_000
        asks = network.sides(lambda source, to: (source, to) == (follower.name, new.name))
        for end in asks:
            network.stall(end)
        yield from self._hand_over(p, new, old, follower)
        yield None, 700
        replies = network.sides(lambda source, to: (source, to) == (new.name, follower.name))
        for end in replies:
            network.stall(end)
        for end in asks:
            network.unstall(end)
        yield None, 300
        self._heal_all(links)
        yield (lambda: self._end(key, old) == self._end(key, new)), 2_000
        yield from self._hand_over(p, old, new, follower)
        cut_at = self._end(key, follower)
        ghost = self.world.ghost.partitions.get(key)
        yield (lambda: ghost is not None and ghost.true_high_watermark > cut_at + 3), 2_000
        yield from self._hand_over(p, new, old, follower)
        for end in replies:
            network.unstall(end)

    def _hand_over(
        self, p: Partition, to: BrokerHost, other: BrokerHost, follower: BrokerHost
    ) -> Iterator[Moment]:
        """Leadership goes to `to`, and the follower knows."""
        first = [BrokerId(one.id) for one in (to, other, follower)]
        rest = [one for one in p.replicas if one not in first]
        self._order_move(p.index, (*first, *rest))
        name = PartitionName(topic=TOPIC, index=p.index)
        self.world.wishes.orders.append(ElectLeaders(kind="Preferred", partitions=(name,)))
        yield partial(self._leads, p.key, to), 3_000
        now = self._now(p.key)
        epoch = 0 if now is None else int(now.leader_epoch)
        yield partial(self._knows, p.key, follower, epoch), 2_000
        self.world.note(f"story: {to.name} leads {TOPIC}-{p.index}: {self._leads(p.key, to)}")

"""Faults of several steps: proposals, replies and records that others overtake.

As in `stories`, which tells how they are told.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.elections import ElectLeaders, PartitionName
from plimsoll_sim.brokers import BrokerHost
from plimsoll_sim.damage import cut_power
from plimsoll_sim.lives import Lives
from plimsoll_sim.stories import Moment
from plimsoll_sim.world import TOPIC


class Plots(Lives):
    """The part of `faults.Chaos` that is about what comes too late."""

    # --- a cancel that comes at the wrong time ----------------------------------------------------

    def _hasty_cancel(self) -> str | None:
        """Half of a move's target has joined, and half of its source is gone, when it is
        cancelled: whoever joined holds what was acknowledged, and is away."""
        found = [
            p
            for p in self.world.ghost.image.partitions.values()
            if len(p.replicas) == len(p.isr) == 2 and p.leader is not None and not p.moving
        ]
        if not found:
            return None
        p = self._rng.choice(found)
        running = [host for host in self.world.brokers.values() if host.running]
        others = [host for host in running if BrokerId(host.id) not in p.replicas]
        if len(others) < 2:
            return None
        joins, late = self._rng.sample(others, 2)
        self._tell(self._cancelled(p, joins, late))
        return f"{TOPIC}-{p.index} to {joins.name}, {late.name}"

    def _cancelled(self, p: Partition, joins: BrokerHost, late: BrokerHost) -> Iterator[Moment]:
        world = self.world
        old = [world.brokers[int(one)] for one in p.replicas]
        other = next(host for host in old if BrokerId(host.id) != p.leader)
        links = self._cut_all([(late, host) for host in old])
        self._order_move(p.index, (BrokerId(joins.id), BrokerId(late.id)))

        def in_sync(host: BrokerHost) -> bool:
            now = self._now(p.key)
            return now is not None and BrokerId(host.id) in now.isr

        yield partial(in_sync, joins), 4_000
        for host in (other, joins):
            host.kill()
            yield (lambda host=host: not in_sync(host)), 3_000  # type: ignore[misc]
        world.note(f"story: {joins.name} had joined {TOPIC}-{p.index}")
        self._order_move(p.index, None)
        yield None, self._rng.randint(500, 1_500)
        self._heal_all(links)
        for host in (other, joins):
            world.start_broker(host)

    # --- a proposal that comes too late -----------------------------------------------------------

    def _overtaken(self) -> str | None:
        """A follower is about to join; its leader's word for it, or the answer, is on its way for
        so long that something else comes first."""
        found = self._followers()
        if not found:
            return None
        p, leader, joiner = self._rng.choice(found)
        by = self._rng.choice(("its stop", "its death", "its next life", "min ISR", "metadata"))
        self._tell(self._came_too_late(p.key, leader, joiner, by))
        return f"{joiner.name} joins {leader.name}, overtaken by {by}"

    def _came_too_late(
        self, key: PartitionKey, leader: BrokerHost, joiner: BrokerHost, by: str
    ) -> Iterator[Moment]:
        world, network, rng = self.world, self.world.network, self._rng
        me = BrokerId(joiner.id)

        def in_sync() -> bool:
            p = self._now(key)
            return p is not None and me in p.isr

        if in_sync():
            links = self._cut_all([(leader, joiner)])
            yield (lambda: not in_sync()), 4_000
            self._heal_all(links)
        hosts = {one.name for one in world.operators}
        names = (hosts, {leader.name}) if by == "metadata" else ({leader.name}, hosts)
        letters = network.sides(lambda source, to: source in names[0] and to in names[1])
        for end in letters:
            network.stall(end)
        proposed = partial(self._proposes, key, leader, joiner)
        yield proposed, 3_000
        world.note(f"story: {leader.name} proposes: {proposed()}, then {by}")
        if by == "metadata":
            yield in_sync, 2_000
            if letters:
                network.reset(letters.pop(rng.randrange(len(letters))))
            yield None, rng.randint(200, 1_500)
        else:
            yield from self._overtake(key, leader, joiner, by)
        for end in letters:
            network.unstall(end)
        if by == "its next life":
            yield None, 500
            self._heal_all([(leader.name, joiner.name), (joiner.name, leader.name)])

    def _overtake(
        self, key: PartitionKey, leader: BrokerHost, joiner: BrokerHost, by: str
    ) -> Iterator[Moment]:
        world, rng = self.world, self._rng
        before, life = self._now(key), joiner.lives

        def gone() -> bool:
            broker = world.ghost.image.brokers.get(BrokerId(joiner.id))
            return broker is not None and not broker.active

        if by == "min ISR":
            self._change_min_isr()
            yield (lambda: self._now(key) != before), 2_000
            yield None, rng.randint(100, 600)
        elif by == "its next life":
            self._cut_all([(leader, joiner)])
            cut_power(world, joiner)
            yield None, rng.randint(0, 200)
            world.start_broker(joiner)
            yield (lambda: joiner.lives > life and joiner.serving), 5_000
        else:
            if by == "its stop":
                joiner.stop()
            else:
                joiner.kill()
            yield gone, 2_000
            self._back(joiner)

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
        """A follower hears from a leader where to cut when it has long cut, and filled, its log.

        It follows that leader in another partition, too: they never cease to talk.
        """
        partitions = self.world.ghost.image.partitions.values()
        busy = {q.leader for q in partitions if len(q.replicas) > 2}
        found = [
            (p, new)
            for p in partitions
            for new in p.isr
            if len(p.isr) > 2 and p.leader is not None and new != p.leader and new in busy
        ]
        if not found:
            return None
        p, new = self._rng.choice(found)
        assert p.leader is not None
        follower = self._rng.choice([one for one in p.isr if one not in (p.leader, new)])
        three = [self.world.brokers[int(one)] for one in (p.leader, new, follower)]
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

    def _waits_through(self) -> str | None:
        """Who waits for a record at a leader still waits when it leads again; the record is gone,
        and others are committed in its place."""
        found = [p for p, _ in self._led() if len(p.isr) > 2]
        if not found:
            return None
        p = self._rng.choice(found)
        others = self._rng.sample(sorted(one for one in p.isr if one != p.leader), 2)
        assert p.leader is not None
        three = [self.world.brokers[int(one)] for one in (p.leader, *others)]
        self._tell(self._waited(p, *three))
        return f"{TOPIC}-{p.index}: " + ", ".join(one.name for one in three)

    def _waited(
        self, p: Partition, old: BrokerHost, new: BrokerHost, third: BrokerHost
    ) -> Iterator[Moment]:
        key, rest = p.key, (new, third)
        links = self._cut_all([(old, one) for one in rest])
        yield (lambda: self._end(key, old) > max(self._end(key, one) for one in rest)), 2_000
        mark = self._end(key, old)
        yield from self._hand_over(p, new, old, third)
        self._heal_all(links)
        ghost = self.world.ghost.partitions.get(key)
        yield (lambda: ghost is not None and ghost.true_high_watermark > mark), 3_000
        yield from self._hand_over(p, old, new, third)

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

"""Faults of several steps, each of which waits for what the one before led to.

What takes three rare faults in the right order, and within a session, never comes by chance.  A
story only picks its brokers and its moments by chance; whatever else goes on may spoil it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from plimsoll_core.cluster.model import Partition, PartitionKey
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.elections import ElectLeaders, PartitionName
from plimsoll_core.messages.reassignments import AlterReassignments, PartitionTarget
from plimsoll_core.replica.isr import PendingExpand
from plimsoll_sim.brokers import BrokerHost
from plimsoll_sim.damage import cut_power
from plimsoll_sim.links import Links
from plimsoll_sim.world import TOPIC

LOOK_US = 20_000
Moment = tuple[Callable[[], bool] | None, int]
"""What is waited for (None: nothing but time), and for how many milliseconds at most."""


class Stories(Links):
    """The part of `faults.Chaos` that takes its time."""

    def _tell(self, story: Iterator[Moment]) -> None:
        self._lasting += 1
        self._turn_page(story)

    def _turn_page(self, story: Iterator[Moment]) -> None:
        moment = next(story, None) if self._on else None
        if moment is None:
            self._lasting -= 1
            return
        condition, ms_max = moment
        deadline_us = self.world.loop.now_us + ms_max * 1_000

        def look() -> None:
            over = self.world.loop.now_us >= deadline_us or not self._on
            if over or (condition is not None and condition()):
                self._turn_page(story)
            else:
                self.world.later(LOOK_US, look)

        look()

    def _running(self) -> BrokerHost | None:
        hosts = [host for host in self.world.brokers.values() if host.running]
        return self._rng.choice(hosts) if hosts else None

    def _back(self, host: BrokerHost) -> None:
        self._after(lambda: self.world.start_broker(host))

    def _led(self) -> list[tuple[Partition, BrokerHost]]:
        """Partitions whose leaders run."""
        brokers = self.world.brokers
        found = [
            (p, brokers[int(p.leader)])
            for p in self.world.ghost.image.partitions.values()
            if p.leader is not None
        ]
        return [(p, leader) for p, leader in found if leader.running]

    def _followers(self) -> list[tuple[Partition, BrokerHost, BrokerHost]]:
        """Partitions, their leaders, and whoever else holds them: those that run."""
        brokers = self.world.brokers
        return [
            (p, leader, brokers[int(replica)])
            for p, leader in self._led()
            for replica in p.replicas
            if replica != p.leader and brokers[int(replica)].running
        ]

    def _proposes(self, key: PartitionKey, leader: BrokerHost, joiner: BrokerHost) -> bool:
        hosted = leader.hosted(key)
        leads = None if hosted is None else hosted.replica.leader
        isr = None if leads is None else leads.isr
        return isinstance(isr, PendingExpand) and isr.joining == joiner.id

    # --- another life -----------------------------------------------------------------------------

    def _rebirth(self) -> str | None:
        """A broker is about to join when its leader loses the controllers; it loses power and is
        back before the leader is, whose proposal means the earlier life; so do late fetches."""
        found = [one for one in self._followers() if BrokerId(one[2].id) not in one[0].isr]
        if not found:
            return None
        p, leader, joiner = self._rng.choice(found)
        self._tell(self._reborn(p, leader, joiner))
        return f"{joiner.name} joins {leader.name}"

    def _reborn(self, p: Partition, leader: BrokerHost, joiner: BrokerHost) -> Iterator[Moment]:
        world, network, rng = self.world, self.world.network, self._rng
        hosts = [one.name for one in world.operators]
        away = [(leader.name, host) for host in hosts] + [(host, leader.name) for host in hosts]
        apart = [(leader.name, joiner.name), (joiner.name, leader.name)]
        for link in away:
            network.cut(*link)

        proposed = partial(self._proposes, p.key, leader, joiner)
        yield proposed, 2_500
        if proposed():
            world.note(f"story: {leader.name} has proposed {joiner.name}")
            names = {one.name for one in world.brokers.values()}
            letters = network.sides(lambda source, to: source == joiner.name and to in names)
            for end in letters:
                network.stall(end)
            for link in apart:
                network.cut(*link)
            life = joiner.lives
            yield None, rng.choice((0, 100))
            cut_power(world, joiner)
            yield None, rng.randint(0, 200)
            world.start_broker(joiner)
            yield (lambda: joiner.lives > life and joiner.serving), 5_000
            world.note(f"story: {joiner.name} serves in its next life: {joiner.serving}")
            for end in letters:
                self._after(partial(network.unstall, end))
        for link in away:
            network.heal(*link)
        yield None, rng.randint(0, 1_000)
        for link in apart:
            network.heal(*link)

    # --- back and forth ---------------------------------------------------------------------------

    def _back_and_forth(self) -> str | None:
        """A leader gives way to another that lags, and leads again when that one dies; it hears of
        both at once."""
        found = [p for p in self.world.ghost.image.partitions.values() if len(p.replicas) > 2]
        if not found:
            return None
        p = self._rng.choice(found)
        self._tell(self._went_and_came(p.key))
        return f"{TOPIC}-{p.index}"

    def _went_and_came(self, key: PartitionKey) -> Iterator[Moment]:
        world, network, rng = self.world, self.world.network, self._rng

        def now() -> Partition | None:
            return world.ghost.image.partitions.get(key)

        def led_by() -> BrokerId | None:
            p = now()
            return None if p is None else p.leader

        def in_sync() -> bool:
            p = now()
            return p is not None and p.leader is not None and len(p.isr) > 2

        yield in_sync, 3_000
        p = now()
        if p is None or p.leader is None or len(p.isr) <= 2:
            return
        old, new = p.leader, rng.choice([one for one in p.isr if one != p.leader])
        others = [one for one in p.replicas if one not in (old, new)]
        self._order_move(p.index, (new, old, *others))
        name = PartitionName(topic=TOPIC, index=p.index)
        preferred = ElectLeaders(kind="Preferred", partitions=(name,))
        leader, next_leader = world.brokers[int(old)], world.brokers[int(new)]
        lagging = (leader.name, next_leader.name)
        hosts = {one.name for one in world.operators}
        network.cut(*lagging)
        yield None, rng.randint(50, 500)
        letters = network.sides(lambda source, to: source in hosts and to == leader.name)
        for end in letters:
            network.stall(end)
        world.wishes.orders.append(preferred)
        yield (lambda: led_by() == new), 1_500
        network.heal(*lagging)
        yield None, rng.randint(0, 300)
        if led_by() == new:
            next_leader.kill()
            self._back(next_leader)
            yield (lambda: led_by() not in (None, new)), 2_000
            world.note(f"story: {leader.name} leads again: {led_by() == old}")
        for end in letters:
            network.reset(end)

    # --- an heir that knows too little ------------------------------------------------------------

    def _unlucky_heir(self) -> str | None:
        """A leader drops a follower that it cannot reach, commits without it and dies: its heir
        does not know yet how far that was, and hears from the follower before the others."""
        found = [p for p in self.world.ghost.image.partitions.values() if len(p.replicas) > 2]
        if not found:
            return None
        p = self._rng.choice(found)
        self._tell(self._dropped_and_died(p.key))
        return f"{TOPIC}-{p.index}"

    def _dropped_and_died(self, key: PartitionKey) -> Iterator[Moment]:
        world, network = self.world, self.world.network

        def in_sync() -> bool:
            p = world.ghost.image.partitions.get(key)
            return p is not None and p.leader is not None and len(p.isr) > 2

        yield in_sync, 3_000
        p = world.ghost.image.partitions.get(key)
        if p is None or p.leader is None or len(p.isr) <= 2:
            return
        leader = world.brokers[int(p.leader)]
        others = [one for one in p.isr if one != p.leader]
        dropped = world.brokers[int(self._rng.choice(others))]
        apart = [(leader.name, dropped.name), (dropped.name, leader.name)]
        for link in apart:
            network.cut(*link)

        def committed_without() -> bool:
            mine, theirs = leader.hosted(key), dropped.hosted(key)
            if mine is None or theirs is None or mine.replica.leader is None:
                return False
            return mine.replica.high_watermark > theirs.log.log_end_offset

        yield committed_without, 4_000
        if committed_without():
            world.note(f"story: {leader.name} committed without {dropped.name}")
            yield from self._disinherit(leader, dropped)
        for link in apart:
            self._after(partial(network.heal, *link))

    def _disinherit(self, leader: BrokerHost, dropped: BrokerHost) -> Iterator[Moment]:
        """Clients hear how far the log is committed, the heirs do not; nor do they get on."""
        network = self.world.network
        heirs = [one.name for one in self.world.brokers.values() if one not in (leader, dropped)]
        slow = [(one, to) for one in heirs for to in (*heirs, dropped.name) if one != to]
        for link in slow:
            network.slow[link] = 1_000_000
        news = network.sides(lambda source, to: source == leader.name and to in heirs)
        for end in news:
            network.stall(end)
        yield None, self._rng.choice((0, 400, 800))
        leader.kill()
        yield None, 1_500
        for link in slow:
            network.slow.pop(link, None)
        for end in news:
            network.unstall(end)
        self._back(leader)

    def _change_min_isr(self) -> str | None:
        wanted = self.world.wishes.topics.get(TOPIC)
        if wanted is None:
            return None
        value = self._rng.randint(1, wanted.replication_factor)
        self.world.declare(min_isr=value)
        return f"{wanted.min_isr} -> {value}"

    def _order_move(self, index: int, replicas: tuple[BrokerId, ...] | None) -> None:
        target = PartitionTarget(topic=TOPIC, index=index, replicas=replicas)
        self.world.wishes.orders.append(AlterReassignments(targets=(target,)))

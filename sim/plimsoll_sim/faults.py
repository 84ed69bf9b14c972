"""Everything that goes wrong, one small function a fault, and how it ends again.

`schedule` says when; `links` holds those of the network, `stories`, `lives`, `plots` and
`beginnings` those of several steps.  A fault that lasts schedules its own end; `World.heal` ends
them all.
"""

from __future__ import annotations

from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.elections import ElectLeaders
from plimsoll_sim import membership, moves, rebalances, rolls
from plimsoll_sim.beginnings import Beginnings
from plimsoll_sim.brokers import BrokerHost
from plimsoll_sim.damage import change_disk, cut_power, image_of
from plimsoll_sim.files import Folder
from plimsoll_sim.operators import OperatorHost
from plimsoll_sim.process import Process
from plimsoll_sim.world import TOPIC, World


class Chaos(Beginnings):
    """Faults for one world; each says what it did, None for nothing."""

    def __init__(self, world: World, only: frozenset[int] | None = None) -> None:
        super().__init__(world, only)
        self._old_disks: dict[int, Folder] = {}
        self._backup = world.etcd.backup()

    # --- brokers ----------------------------------------------------------------------------------

    def _kill_broker(self) -> str | None:
        host = self._running()
        if host is None:
            return None
        host.kill()
        self._back(host)
        return host.name

    def _stop_broker(self) -> str | None:
        host = self._running()
        if host is None or host.process is None:
            return None
        kept = self._rng.random() < 0.5

        def ended() -> None:
            if kept:
                self._old_disks[host.id] = image_of(host)
            self._back(host)

        host.process.at_death.append(ended)
        host.stop()
        return host.name

    def _cut_power_of_broker(self) -> str:
        return self._power(self._rng.choice(list(self.world.brokers.values())))

    def _power(self, host: BrokerHost) -> str:
        """Also where no broker runs at the moment: what it wrote may not be on the disk yet."""
        if host.running:
            self._back(host)
        return f"{host.name}, data of {cut_power(self.world, host)} is lost"

    def _cut_power_of_all(self) -> str:
        return "; ".join(self._power(host) for host in self.world.brokers.values())

    def _crash_at_io(self) -> str | None:
        host = self._running()
        if host is None or host.process is None:
            return None
        host.volume.crash_in = self._rng.randint(0, 30)
        process = host.process
        process.at_death.append(lambda: self._back(host))
        return f"{host.name} in {host.volume.crash_in} writes"

    def _pause_broker(self) -> str | None:
        host = self._running()
        return None if host is None or host.process is None else self._pause(host.process)

    def _pause(self, process: Process) -> str | None:
        if process.paused:
            return None
        process.pause()

        def go_on() -> None:
            if process.alive:
                process.resume()

        self._after(go_on)
        return process.name

    # --- disks ------------------------------------------------------------------------------------

    def _disk_full(self) -> str | None:
        host = self._running()
        if host is None:
            return None
        host.volume.full = True

        def freed() -> None:
            host.volume.full = False

        self._after(freed)
        return host.name

    def _disk_broken(self) -> str | None:
        host = self._running()
        if host is None:
            return None
        host.volume.broken = True
        host.needs_restart = True

        def mended() -> None:
            host.volume.broken = False

        self._after(mended)
        return host.name

    def _empty_disk(self) -> str | None:
        host = self._running()
        if host is None:
            return None
        change_disk(self.world, host, None)
        self.world.expect_liveness = False  # a person may have to say that the data is gone
        self._back(host)
        return host.name

    def _old_disk(self) -> str | None:
        """An image that was taken when a broker stopped, or some time ago, comes back."""
        host = self._rng.choice(list(self.world.brokers.values()))
        known = self._old_disks.get(host.id)
        if known is None:
            self._old_disks[host.id] = image_of(host)
            return None
        if host.running:
            self._back(host)
        change_disk(self.world, host, known)
        return host.name

    # --- operators and their API server -----------------------------------------------------------

    def _operator(self, *, active: bool = False) -> OperatorHost | None:
        hosts = [one for one in self.world.operators if one.running]
        leading = [one for one in hosts if one.active]
        if leading and (active or self._rng.random() < 0.7):
            hosts = leading
        return self._rng.choice(hosts) if hosts else None

    def _kill_operator(self) -> str | None:
        host = self._operator()
        if host is None:
            return None
        host.kill()
        self._after(lambda: self.world.start_operator(host))
        return host.name

    def _stop_operator(self) -> str | None:
        host = self._operator()
        if host is None:
            return None
        host.stop()
        self._after(lambda: self.world.start_operator(host))
        return host.name

    def _pause_operator(self) -> str | None:
        host = self._operator()
        return None if host is None or host.process is None else self._pause(host.process)

    def _operator_loses_api(self) -> str | None:
        host = self._operator()
        if host is None or host.process is None:
            return None
        process, away = host.process, self.world.weather.away_from
        away[process] = None

        def back() -> None:
            away.pop(process, None)

        self._after(back)
        return host.name

    def _api_down(self) -> str:
        self.world.weather.down = True

        def back() -> None:
            self.world.weather.down = False

        self._after(back)
        return "refuses"

    def _api_hung(self) -> str:
        self.world.weather.hung = True

        def back() -> None:
            self.world.weather.hung = False

        self._after(back)
        return "does not answer"

    def _api_flaky(self) -> str:
        weather = self.world.weather
        weather.lose_request, weather.lose_reply = 0.1, 0.1
        weather.late, weather.throttle = 0.1, 0.05

        def back() -> None:
            weather.lose_request = weather.lose_reply = weather.late = weather.throttle = 0.0

        self._after(back)
        return "loses, delays, throttles"

    def _restore_etcd(self) -> str | None:
        world = self.world
        if self._backup.revision == world.etcd.revision or world.ghost.restored:
            return None
        if self._rng.random() < 0.7:
            self._backup = world.etcd.backup()
            return None
        sequence = world.ghost.sequence
        world.etcd.restore(self._backup)
        world.ghost.went_back()
        world.expect_liveness = False  # nothing is committed again until a person decides
        return f"from batch {sequence} on"

    # --- the world's ways -------------------------------------------------------------------------

    def _recreate_topic(self) -> str | None:
        self.world.delete()
        self.world.ghost.topics_recreated = True

        def again() -> None:
            self.world.declare()

        self.world.later(self._rng.randint(1, 8_000_000), again)
        return TOPIC

    def _move_replicas(self) -> str | None:
        """By Kafka's request, to any brokers; replaces a move under way."""
        world = self.world
        wanted = world.wishes.topics.get(TOPIC)
        if wanted is None:
            return None
        index = self._rng.randrange(wanted.partitions)
        some = self._rng.sample(list(world.brokers), wanted.replication_factor)
        self._order_move(index, tuple(BrokerId(one) for one in some))
        return f"{TOPIC}-{index} to {some}"

    def _cancel_move(self) -> str | None:
        moving = [p for p in self.world.ghost.image.partitions.values() if p.adding or p.removing]
        if not moving:
            return None
        index = self._rng.choice(moving).index
        self._order_move(index, None)
        return f"{TOPIC}-{index}"

    def _prefer_leaders(self) -> str:
        self.world.wishes.orders.append(ElectLeaders(kind="Preferred", needed_only=True))
        return "of all partitions"

    def _add_partitions(self) -> str | None:
        wanted = self.world.wishes.topics.get(TOPIC)
        if wanted is None or wanted.partitions >= 6:
            return None
        self.world.declare(partitions=wanted.partitions + 1)
        return f"{wanted.partitions + 1}"

    # --- moves ------------------------------------------------------------------------------------

    def _start_reassignment(self) -> str | None:
        return moves.start(self.world, self._rng)

    def _end_reassignment(self) -> str | None:
        return moves.end(self.world, self._rng)

    def _change_replication_factor(self) -> str | None:
        return moves.change_factor(self.world, self._rng)

    def _start_rebalance(self) -> str | None:
        return rebalances.start(self.world, self._rng)

    def _end_rebalance(self) -> str | None:
        return rebalances.end(self.world, self._rng)

    def _pause_rebalance(self) -> str | None:
        return rebalances.pause(self.world, self._rng)

    # --- members ----------------------------------------------------------------------------------

    def _remove_broker(self) -> str | None:
        return membership.shrink(self.world, self._rng)

    def _add_broker(self) -> str | None:
        return membership.grow(self.world, self._rng)

    # --- restarts ---------------------------------------------------------------------------------

    def _roll_brokers(self) -> str:
        self._after(lambda: rolls.correct(self.world))
        return rolls.roll(self.world, self._rng)

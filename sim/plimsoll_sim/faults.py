"""Everything that goes wrong, one small function a fault, and how it ends again.

`schedule` says when.  A fault that lasts schedules its own end; `World.heal` ends them all.
"""

from __future__ import annotations

import copy
from pathlib import Path

from plimsoll_sim import moves, rebalances, rolls
from plimsoll_sim.brokers import DATA, BrokerHost
from plimsoll_sim.disk import Folder, PowerCut
from plimsoll_sim.operators import OperatorHost
from plimsoll_sim.process import Process
from plimsoll_sim.schedule import Schedule
from plimsoll_sim.world import TOPIC, World


class Chaos(Schedule):
    """Faults for one world; each says what it did, None for nothing."""

    def __init__(self, world: World, only: frozenset[int] | None = None) -> None:
        super().__init__(world, only)
        self._old_disks: dict[int, Folder] = {}
        self._backup = world.etcd.backup()

    # --- brokers ----------------------------------------------------------------------------------

    def _running(self) -> BrokerHost | None:
        hosts = [host for host in self.world.brokers.values() if host.running]
        return self._rng.choice(hosts) if hosts else None

    def _back(self, host: BrokerHost) -> None:
        self._after(lambda: self.world.start_broker(host))

    def _kill_broker(self) -> str | None:
        host = self._running()
        if host is None:
            return None
        host.kill()
        self._back(host)
        return host.name

    def _stop_broker(self) -> str | None:
        host = self._running()
        if host is None:
            return None
        host.stop()
        if host.process is not None:
            host.process.at_death.append(lambda: self._back(host))
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
        host.needs_restart = True

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
        """An image that was taken earlier, preferably after a clean stop, comes back."""
        host = self._rng.choice(list(self.world.brokers.values()))
        known = self._old_disks.get(host.id)
        if known is None or (not host.running and self._rng.random() < 0.5):
            self._old_disks[host.id] = image_of(host)
            return None
        if host.running:
            self._back(host)
        change_disk(self.world, host, known)
        return host.name

    # --- links ------------------------------------------------------------------------------------

    def _cut_links(self, pairs: list[tuple[str, str]]) -> str:
        one_way = self._rng.random() < 0.3
        both = pairs if one_way else [*pairs, *[(b, a) for a, b in pairs]]
        for pair in both:
            self.world.network.cut(*pair)

        def mend() -> None:
            for pair in both:
                self.world.network.heal(*pair)

        self._after(mend)
        return f"{pairs}{' one way' if one_way else ''}"

    def _cut_brokers(self) -> str | None:
        one, other = self._rng.sample(list(self.world.brokers.values()), 2)
        return self._cut_links([(one.name, other.name)])

    def _cut_broker_from_controllers(self) -> str | None:
        host = self._rng.choice(list(self.world.brokers.values()))
        return self._cut_links([(host.name, one.name) for one in self.world.operators])

    def _cut_client(self) -> str | None:
        if not self.world.clients:
            return None
        client = self._rng.choice(self.world.clients).habits.name
        host = self._rng.choice(list(self.world.brokers.values()))
        return self._cut_links([(client, host.name)])

    def _slow_link(self) -> str | None:
        network = self.world.network
        names = [host.name for host in self.world.brokers.values()]
        names += [host.name for host in self.world.operators]
        pair = tuple(self._rng.sample(names, 2))
        network.slow[pair[0], pair[1]] = self._rng.choice((20_000, 300_000, 2_000_000))

        def mend() -> None:
            network.slow.pop((pair[0], pair[1]), None)

        self._after(mend)
        return f"{pair}"

    def _stall_connection(self) -> str | None:
        """What one side of a connection sends arrives late, perhaps after its sender's end."""
        network = self.world.network
        ends = network.between({host.name for host in self.world.brokers.values()})
        if not ends:
            return None
        end = self._rng.choice(ends)
        network.stall(end)
        self._after(lambda: network.unstall(end))
        return f"{end.process} to {end.peer.process}"

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
        if self._backup[1] == world.etcd.revision or world.ghost.restored:
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

    def _step_wall_clock(self) -> str | None:
        host = self._running()
        if host is None or host.process is None:
            return None
        host.process.wall_offset_ms = self._rng.choice((-86_400_000, -5_000, 5_000, 86_400_000))
        return f"{host.name} by {host.process.wall_offset_ms} ms"

    def _recreate_topic(self) -> str | None:
        self.world.delete()
        self.world.ghost.topics_recreated = True

        def again() -> None:
            self.world.declare()

        self.world.later(self._rng.randint(1, 8_000_000), again)
        return TOPIC

    def _change_min_isr(self) -> str | None:
        wanted = self.world.wishes.topics.get(TOPIC)
        if wanted is None:
            return None
        value = self._rng.randint(1, wanted.replication_factor)
        self.world.declare(min_isr=value)
        return f"{wanted.min_isr} -> {value}"

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

    # --- restarts ---------------------------------------------------------------------------------

    def _roll_brokers(self) -> str:
        self._after(lambda: rolls.correct(self.world))
        return rolls.roll(self.world, self._rng)


def cut_power(world: World, host: BrokerHost, cut: PowerCut | None = None) -> list[tuple[str, int]]:
    """The machine stops at once; returns the partitions whose logs lost data."""
    before = _logs(host)
    host.lose_power(cut)
    after = _logs(host)
    lost = sorted(name for name, data in before.items() if after.get(name) != data)
    world.ghost.lossy(host.id, lost)
    return lost


def image_of(host: BrokerHost) -> Folder:
    """A copy of its disk, for later."""
    return copy.deepcopy(_without_undo(host.volume.root))


def change_disk(world: World, host: BrokerHost, image: Folder | None) -> None:
    """It is killed, and its next process finds an empty disk, or one as of the image."""
    names = list(_logs(host))
    host.kill()
    if image is None:
        host.volume.empty()
    else:
        host.volume.root = copy.deepcopy(image)
    world.ghost.lossy(host.id, names)


def _logs(host: BrokerHost) -> dict[tuple[str, int], bytes]:
    """Each partition's log on the disk."""
    logs: dict[tuple[str, int], bytes] = {}
    for path, node in host.volume.nodes(Path(DATA), ".log"):
        topic, _, index = Path(path).parent.name.rpartition("-")
        if index.isdecimal():
            logs[topic, int(index)] = logs.get((topic, int(index)), b"") + bytes(node.data)
    return logs


def _without_undo(folder: Folder) -> Folder:
    """An image of a disk: what was not yet durable is in it like the rest."""
    made = Folder()
    for name, entry in folder.entries.items():
        made.entries[name] = _without_undo(entry) if isinstance(entry, Folder) else entry
    return made

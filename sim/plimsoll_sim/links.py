"""What goes wrong between hosts: links that are cut or slow, and connections that stall."""

from __future__ import annotations

from plimsoll_sim.network import End
from plimsoll_sim.schedule import FaultSchedule


class Links(FaultSchedule):
    """The part of `faults.Chaos` that is about the network."""

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
        names = {host.name for host in self.world.brokers.values()}
        ends = self.world.network.sides(lambda source, to: source in names or to in names)
        return self._stall([self._rng.choice(ends)]) if ends else None

    def _stall_broker(self) -> str | None:
        """All that it says to other brokers, and perhaps to controllers too."""
        host = self._rng.choice(list(self.world.brokers.values()))
        told = {one.name for one in self.world.brokers.values()}
        if self._rng.random() < 0.5:
            told |= {one.name for one in self.world.operators}
        ends = self.world.network.sides(lambda source, to: source == host.name and to in told)
        return self._stall(ends) if ends else None

    def _stall_metadata(self) -> str | None:
        """A broker hears late what was committed; its commands get through."""
        names = {host.name for host in self.world.operators}
        host = self._rng.choice(list(self.world.brokers.values()))
        ends = self.world.network.sides(lambda source, to: source in names and to == host.name)
        return self._stall([self._rng.choice(ends)]) if ends else None

    def _stall(self, ends: list[End]) -> str:
        network = self.world.network
        for end in ends:
            network.stall(end)

        def go_on() -> None:
            for end in ends:
                network.unstall(end)

        self._after(go_on)
        return "; ".join(f"{end.process} to {end.peer.process}" for end in ends)

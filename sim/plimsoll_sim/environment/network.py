"""TCP between simulated hosts: ordered bytes, seeded delays, links that are cut, hosts that vanish.

A cut link holds the data that is sent, as TCP's retransmission does; when the link heals, the data
arrives or the connection is reset. A process that dies closes its connections. A host that loses
power does not: its peers notice by their timeouts, or when the host is up again and receives their
data. Bytes of one connection never overtake each other; those of different connections do.
"""

from __future__ import annotations

import contextvars
import random
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any

from plimsoll_sim.engine.draws import LatencyUs, numbers_between
from plimsoll_sim.engine.loop import SimLoop
from plimsoll_sim.engine.process import Process, current
from plimsoll_sim.environment.connection_end import FIN, RST, End

SYN_RETRY_US = 1_000_000
SYN_ATTEMPTS = 64
SPLIT = 0.05


class SimServer:
    """A listener, in place of asyncio's Server."""

    def __init__(self, network: Network, host: str, port: int) -> None:
        self._network = network
        self._address = (host, port)
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        self._network.unlisten(*self._address)

    async def wait_closed(self) -> None:
        pass


class Acceptor:
    """A listening process: its protocol factory, and the context in which accepted connections
    run."""

    def __init__(self, process: Process, factory: Callable[[], Any], context: Context) -> None:
        self.process = process
        self.factory = factory
        self.context = context


class Network:
    """The network of all simulated hosts. `latency_us`: least and greatest virtual microseconds
    that a packet takes; `names`: host names and their addresses (DNS)."""

    def __init__(self, loop: SimLoop, rng: random.Random, latency_us: LatencyUs) -> None:
        self.loop = loop
        self.latency_us = latency_us
        self.names: dict[str, list[str]] = {}
        self.dark: set[str] = set()
        self.slow: dict[tuple[str, str], int] = {}
        self.keeps: Callable[[End, Any], bool] = keeps_nothing
        """Function that is called with everything that is sent. If it returns True, the data, and
        what follows on that connection, is held back until `release`."""
        self.make_end: Callable[[Network, Process, Context], End] = End
        self._rng = rng
        self._between = numbers_between(rng)
        self._listeners: dict[tuple[str, int], Acceptor] = {}
        self._ends: dict[End, None] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._stalled: dict[End, None] = {}
        self._ports = 40_000

    def resolve(self, host: str) -> list[str]:
        return self.names.get(host, [host])

    # --- links ------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Drop everything from `source` to `target` until it is healed."""
        self._cut[source, target] = None

    def heal(self, source: str, target: str) -> None:
        if self._cut.pop((source, target), self) is self:
            return
        self._send_again(lambda *link: link == (source, target))

    def _send_again(self, over: Callable[[str, str], bool]) -> None:
        """Deliver data that waited for a cut link which now passes data. `over`: chooses links by
        (source, target)."""
        for end in list(self._ends):
            link = (end.process.host, end.peer.process.host)
            if over(*link) and end.held and end not in self._stalled and self.passes(*link):
                self.release(end)

    def heal_all(self) -> None:
        for source, target in list(self._cut):
            self.heal(source, target)
        for end in list(self._stalled):
            self.unstall(end)
        for end in self._ends:
            end.reads_late_us = 0
        self.slow.clear()

    def sides(self, chosen: Callable[[str, str], bool]) -> list[End]:
        """Return the sides of connections that `chosen` selects by the hosts from which and to
        which they send."""
        return [
            end
            for end in self._ends
            if end not in self._stalled and chosen(end.process.host, end.peer.process.host)
        ]

    def stall(self, end: End) -> None:
        """Hold back what this side sends until `unstall`. Its process may end meanwhile."""
        self._stalled[end] = None

    def reset(self, end: End) -> None:
        """Break the connection. Data that was held back is lost."""
        self._stalled.pop(end, None)
        end.held.clear()
        self._schedule(end, end.peer, RST)
        self._schedule(end.peer, end, RST)

    def unstall(self, end: End) -> None:
        if self._stalled.pop(end, self) is None:
            self.release(end)

    def light(self, host: str) -> None:
        """Handle the start of a host that had lost power: its peers' data is sent again and
        rejected, since its kernel no longer knows the connections."""
        if host in self.dark:
            self.dark.discard(host)
            self._send_again(lambda _, target: target == host)

    @property
    def ends(self) -> Iterable[End]:
        """Return the sides of all open connections."""
        return self._ends

    @property
    def cuts(self) -> list[tuple[str, str]]:
        return list(self._cut)

    def passes(self, source: str, target: str) -> bool:
        dark = source in self.dark or target in self.dark
        return not dark and (source, target) not in self._cut

    def release(self, end: End) -> None:
        """Deliver data that was held back or waited for a link, or reset the connection if the
        kernel has given up meanwhile."""
        held, end.held = end.held, deque()
        if self._rng.random() < 0.3:
            # Given up by a kernel meanwhile.
            self._schedule(end, end.peer, RST)
            self._schedule(end.peer, end, RST)
            return
        for what in held:
            self._schedule(end, end.peer, what)

    # --- listening and connecting -----------------------------------------------------------------

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> SimServer:
        process = current()
        assert process is not None
        if not port:
            self._ports += 1
            port = self._ports
        address = (process.host, port)
        known = self._listeners.get(address)
        if known is not None and known.process.alive:
            raise OSError(98, f"{address}: address in use")
        self._listeners[address] = Acceptor(process, factory, contextvars.copy_context())
        return SimServer(self, *address)

    def unlisten(self, host: str, port: int) -> None:
        self._listeners.pop((host, port), None)

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        """Connect as `loop.create_connection` does: return (transport, protocol), or raise an
        OSError."""
        process = current()
        assert process is not None
        target = self.resolve(host)[0]
        for _ in range(SYN_ATTEMPTS):
            await self._wait(self._delay())
            there = self.passes(process.host, target)
            await self._wait(self._delay())
            if there and self.passes(target, process.host):
                break
            await self._wait(SYN_RETRY_US)
        else:
            raise TimeoutError(110, f"{target}:{port}: timed out")
        listener = self._listeners.get((target, port))
        if listener is None or not listener.process.alive:
            raise ConnectionRefusedError(111, f"{target}:{port}: refused")
        return self._joined(process, factory, listener, target, port)

    def _joined(
        self, process: Process, factory: Callable[[], Any], listener: Acceptor, host: str, port: int
    ) -> tuple[End, Any]:
        mine = self.make_end(self, process, contextvars.copy_context())
        theirs = self.make_end(self, listener.process, listener.context.copy())
        mine.peer, theirs.peer = theirs, mine
        self._ports += 1
        mine.address, theirs.address = (process.host, self._ports), (host, port)
        for end in (mine, theirs):
            self._ends[end] = None
        self.loop.call_soon(self._accept, theirs, listener.factory, context=theirs.context)
        mine.protocol = factory()
        mine.protocol.connection_made(mine)
        return mine, mine.protocol

    def _accept(self, end: End, factory: Callable[[], Any]) -> None:
        end.protocol = factory()
        end.protocol.connection_made(end)

    async def _wait(self, us: int) -> None:
        future = self.loop.create_future()
        self.loop.at_us(self.loop.now_us + us, _wake, future)
        await future

    # --- carrying ---------------------------------------------------------------------------------

    def _delay(self) -> int:
        return self._between(*self.latency_us)

    def send(self, end: End, what: Any) -> None:
        peer = end.peer
        source, target = end.process.host, peer.process.host
        if source in self.dark:
            return
        kept = self.keeps(end, what) or end in self._stalled
        if kept or target in self.dark or (source, target) in self._cut or end.held:
            end.held.append(what)
            return
        if isinstance(what, bytes) and len(what) > 1 and self._rng.random() < SPLIT:
            at = self._rng.randrange(1, len(what))
            self._schedule(end, peer, what[:at])
            what = what[at:]
        self._schedule(end, peer, what)

    def _schedule(self, end: End, peer: End, what: Any) -> None:
        link = (end.process.host, peer.process.host)
        delay_us = self._delay() + self.slow.get(link, 0)
        end.arrives_us = max(end.arrives_us + 1, self.loop.now_us + delay_us)
        if isinstance(what, bytes):
            end.in_flight += len(what)
        self.loop.at_us(end.arrives_us, self._carry, end, peer, what, context=EMPTY)

    def _carry(self, end: End, peer: End, what: Any) -> None:
        """Deliver data at the receiver's host. The receiving process may have ended, or be stopped
        with its socket open."""
        if isinstance(what, bytes):
            end.in_flight -= len(what)
        if peer.process.host in self.dark:
            if end in self._ends:
                end.held.append(what)
            return
        if not peer.process.alive:
            # The kernel of a host that is up says so.
            if not end.closed and what is not RST:
                self._schedule(peer, end, RST)
            return
        self.loop.call_soon(peer.arrive, what, context=peer.context)

    def forget(self, end: End) -> None:
        self._ends.pop(end, None)

    def process_died(self, process: Process) -> None:
        """Close the process's connections and listeners, as a kernel does, unless the host lost
        power."""
        for address, listener in list(self._listeners.items()):
            if listener.process is process:
                del self._listeners[address]
        silent = process.host in self.dark
        for end in list(self._ends):
            if end.process is not process:
                continue
            self.forget(end)
            if not silent and not end.closed:
                unread = bool(end._unread)
                self.send(end, RST if unread or self._rng.random() < 0.3 else FIN)
            end.closed = True


EMPTY = contextvars.Context()


def keeps_nothing(end: End, what: Any) -> bool:
    """`Network.keeps` as long as nothing is to be held."""
    return False


def _wake(future: Any) -> None:
    if not future.done():
        future.set_result(None)

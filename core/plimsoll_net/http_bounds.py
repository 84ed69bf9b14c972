"""Limits what peers of an HTTP port can use, in the broker and the operator, since metrics and
health need no login.

`HttpConnections` bounds the number of connections, in all and for each address, and the bytes of
replies that peers do not take. A new connection is always accepted. If there are too many, the
longest-idle connection of the same address, or of the address with the most connections, is closed.
So a peer with one connection, such as the kubelet, always gets an answer. `Rendering` makes an
expensive page once for all requests that wait for it, and limits the share of the time spent on it.
`refused_page` refuses requests that a web page makes in the user's browser.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

from plimsoll_core.addresses import is_literal, is_loopback, network_of

CONNECTIONS_MAX = 256
OF_ADDRESS_MAX = 32
"""Bound on the connections of one address. A proxy of many readers has one address."""
UNSENT_BYTES_MAX = 32 * 1024 * 1024
"""Bound on the bytes of replies of one port that peers have not taken, beside one more reply."""
KERNEL_BYTES = 64 * 1024
"""Size of a connection's send buffer in the kernel, which else grows to some MiB for each."""
REST = 4
"""After a page was made, no other is made for this many times as long as it took."""
REST_S_MAX = 2.0


def refused_page(local: Any, host: str, *, from_page: bool) -> str:
    """Return why a request must not be answered, or "" if it may be.

    `local`: the socket's own address. `host`: the Host header. `from_page`: True if there is an
    Origin header; such a request is always refused.

    If the port is on loopback (a local cluster, `kubectl port-forward`), a web page that the user
    visits can reach it, by a name of the page's own that resolves to 127.0.0.1 (DNS rebinding).
    Such a page cannot send another Host header, nor one that is a literal address. Requests to a
    pod's own address come from a scraper, a kubelet or the API server's proxy, which keeps the Host
    header of its own client, so their Host header is not checked.
    """
    if from_page:
        return "this request is refused, because it is from a web page (it has the header Origin)"
    here = isinstance(local, tuple) and is_loopback(str(local[0]))
    if not here or not host:  # no browser leaves the Host out
        return ""
    name = host[: host.rindex("]") + 1] if "]" in host else host.partition(":")[0]
    if is_loopback(name) or is_literal(name):
        return ""
    return (
        "this request is refused, because its header Host does not name this machine: use "
        "localhost or an IP address in the URL"
    )


class HttpConnections:
    """Bounds the number of connections of one HTTP port, in all and for each address."""

    def __init__(self) -> None:
        # Connections by address (IPv6: by /64), the longest-idle one of each first.
        self._held: dict[str, dict[_Bounded, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def bounded(self, made: Callable[[], Any]) -> Callable[[], asyncio.Protocol]:
        """Return a protocol factory for the server, which counts connections and closes the
        longest-idle ones above the bounds. `made`: builds the asyncio.Protocol that serves a
        connection."""
        return lambda: _Bounded(self, made)

    def came(self, connection: _Bounded) -> None:
        own = self._held.setdefault(connection.address, {})
        if len(own) >= OF_ADDRESS_MAX:
            self._close_oldest(own)
        elif self._count >= CONNECTIONS_MAX:
            self._close_oldest(max(self._held.values(), key=len))
        self._held.setdefault(connection.address, {})[connection] = None
        self._count += 1

    def makes_room(self, size: int) -> None:
        """Close connections that have not taken their replies until all of these and a new one of
        `size` bytes are within `UNSENT_BYTES_MAX`: first the longest-idle one of the address with
        the most unsent bytes. Call it before a reply is sent."""
        unsent = {
            address: {one: one.unsent for one in held if one.unsent}
            for address, held in self._held.items()
        }
        total = sum(sum(of_one.values()) for of_one in unsent.values())
        while total and total + size > UNSENT_BYTES_MAX:
            most = max(unsent.values(), key=lambda of_one: sum(of_one.values()))
            oldest = next(iter(most))
            total -= most.pop(oldest)
            self.left(oldest)
            oldest.abort()

    def heard(self, connection: _Bounded) -> None:
        own = self._held.get(connection.address, {})
        if connection in own:
            del own[connection]
            own[connection] = None

    def left(self, connection: _Bounded) -> None:
        own = self._held.get(connection.address, {})
        if connection in own:
            del own[connection]
            self._count -= 1
            if not own:
                del self._held[connection.address]

    def _close_oldest(self, of_address: dict[_Bounded, None]) -> None:
        oldest = next(iter(of_address))
        self.left(oldest)
        oldest.abort()


class _Bounded(asyncio.Protocol):
    """The protocol of one counted connection. It passes all calls on to the protocol that serves
    the connection."""

    def __init__(self, connections: HttpConnections, made: Callable[[], Any]) -> None:
        self._connections = connections
        self._served = made()
        self._transport: asyncio.Transport | None = None
        self.address = ""

    @property
    def unsent(self) -> int:
        """Return the bytes of replies that the kernel has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio.Transport by inheritance, only by what they do.
        self._transport = cast("asyncio.Transport", transport)
        if (own := transport.get_extra_info("socket")) is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        peer = transport.get_extra_info("peername")
        self.address = network_of(str(peer[0])) if peer else ""
        self._connections.came(self)
        self._served.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._connections.heard(self)
        self._served.data_received(data)

    def eof_received(self) -> bool | None:
        keep: bool | None = self._served.eof_received()
        return keep

    def pause_writing(self) -> None:
        self._served.pause_writing()

    def resume_writing(self) -> None:
        self._served.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.left(self)
        self._served.connection_lost(exc)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Rendering:
    """A page that `render` makes once for all requests that wait for it. Each request gets a page
    that was begun after the request came."""

    def __init__(self, render: Callable[[], Awaitable[bytes]]) -> None:
        self._render = render
        self._turn = asyncio.Lock()
        # The page that is not started yet, for requests that arrive now.
        self._next: asyncio.Task[bytes] | None = None
        # By the event loop's clock.
        self._not_before_s = 0.0

    async def page(self) -> bytes:
        """Return a page that was begun after this call. Calls that wait for the next page share it.
        Raises what `render` raises. The caller sets a time limit, since making a page may take
        long."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._made())
        return await asyncio.shield(self._next)

    async def _made(self) -> bytes:
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(max(0.0, self._not_before_s - loop.time()))
            self._next = None
            began_s = loop.time()
            try:
                return await self._render()
            finally:
                rest_s = min(REST_S_MAX, REST * (loop.time() - began_s))
                self._not_before_s = loop.time() + rest_s

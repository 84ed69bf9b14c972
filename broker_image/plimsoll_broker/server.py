"""The broker's listener: accepts connections, keeps their number and their idleness in bounds.

Made by the broker's lifecycle with a `Dispatch`.  It never looks into a request.
"""

from __future__ import annotations

import asyncio

from plimsoll_broker.dispatch import Dispatch
from plimsoll_broker.limits import ListenerLimits
from plimsoll_broker.session import ServerStats, Session, SessionOwner

_BACKLOG = 512


class Server:
    """One listener.  `port` is known once it is started."""

    def __init__(
        self,
        dispatch: Dispatch,
        limits: ListenerLimits | None = None,
    ) -> None:
        self.stats = ServerStats()
        self.port = 0
        self.limits = limits or ListenerLimits()
        self._idle_s_max = self.limits.idle_ms_max / 1000
        self._sessions: dict[Session, None] = {}  # by age: whoever closes all does so in that order
        self._server: asyncio.Server | None = None
        self._reaper: asyncio.TimerHandle | None = None
        self._failure: asyncio.Future[None] | None = None
        self._owner = SessionOwner(
            dispatch=dispatch,
            limits=self.limits,
            stats=self.stats,
            opened=self._opened,
            closed=self._closed,
            failed=self._failed,
        )

    @property
    def connections(self) -> int:
        return len(self._sessions)

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 lets the kernel choose.  Returns the port."""
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        self._server = await loop.create_server(
            self._session, host, port, backlog=_BACKLOG, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._schedule_reaper()
        return self.port

    async def failure(self) -> None:
        """Returns never, or raises the bug that a request met on the commit path: the process ends
        with it.  What other bugs cost is one connection each (`stats.handler_failures`)."""
        assert self._failure is not None, "not started"
        await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Stop listening and close every connection; waiting requests are cancelled."""
        if self._server is None:
            return
        self._server.close()
        if self._reaper is not None:
            self._reaper.cancel()
        for session in list(self._sessions):
            session.close("shutdown")
        await self._server.wait_closed()
        self._server = None

    def _session(self) -> Session:
        return Session(self._owner)

    def _opened(self, session: Session) -> bool:
        if len(self._sessions) >= self.limits.connections_max:
            self.stats.turned_away += 1
            return False
        self.stats.accepted += 1
        self._sessions[session] = None
        return True

    def _closed(self, session: Session) -> None:
        self._sessions.pop(session, None)

    def _failed(self, error: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _schedule_reaper(self) -> None:
        loop = asyncio.get_running_loop()
        self._reaper = loop.call_later(self._idle_s_max / 4, self._reap)

    def _reap(self) -> None:
        """Close who said nothing for long and waits for nothing (half a request counts)."""
        oldest = asyncio.get_running_loop().time() - self._idle_s_max
        for session in list(self._sessions):
            if session.last_heard < oldest and not session.waiting:
                session.close("idle")
        self._schedule_reaper()

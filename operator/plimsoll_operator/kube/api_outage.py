"""An outage of the API server, as one operator process sees it while a drill lasts.

Every transport of the process is wrapped; during the outage requests fail as without a connection,
and watches end. The end is set at the start, and no later call is needed for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse, Transport

OUTAGE_MS_MAX = 60_000
"""The longest outage in milliseconds."""


class ApiOutage:
    """The outage of one process; none at first. `monotonic_ms`: its clock, in milliseconds."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._until_ms: int | None = None

    def begin(self, span_ms: int) -> None:
        """Fail all requests from now on, for `span_ms` milliseconds, at most `OUTAGE_MS_MAX`."""
        self._until_ms = self._monotonic_ms() + min(span_ms, OUTAGE_MS_MAX)

    @property
    def lasts(self) -> bool:
        return self._until_ms is not None and self._monotonic_ms() < self._until_ms

    def check(self, request: HttpRequest) -> None:
        """Raise Unavailable if the outage lasts."""
        if self.lasts:
            text = (
                f"{request.method} {request.path} was not sent, because a Verification cuts "
                "this operator off from the API server on purpose for a while"
            )
            raise Unavailable(0, text)

    def around(self, transport: Transport) -> Transport:
        """Return a transport that sends over `transport`, except during the outage."""
        return _CutTransport(transport, self)


class _CutTransport:
    def __init__(self, transport: Transport, outage: ApiOutage) -> None:
        self._transport = transport
        self._outage = outage

    async def send(self, request: HttpRequest) -> HttpResponse:
        self._outage.check(request)
        response = await self._transport.send(request)
        self._outage.check(request)  # it was carried out, and its answer is lost
        return response

    async def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        self._outage.check(request)
        async with aclosing(self._transport.watch(request)) as lines:
            async for line in lines:
                self._outage.check(request)
                yield line

    async def close(self) -> None:
        await self._transport.close()

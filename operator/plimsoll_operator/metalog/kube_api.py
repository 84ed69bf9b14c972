"""The few requests of the Kubernetes shell, over connections of its own.

Decides one thing: what an answer proves. A request without an answer (timeout, reset, 5xx) is
`Unanswered`: it may have happened, and may still happen later. Called by `ring` and
`kube_snapshots` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from plimsoll_operator.kube.errors import Unavailable, status_message
from plimsoll_operator.kube.kube_api import HttpRequest, Transport

READ_FACTOR = 5
LARGE_BYTES = 256 * 1024
UNKNOWN_OUTCOMES = frozenset({408, *range(500, 600)})


class Unanswered(Exception):
    """The request may have happened, may still happen, or may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    body: bytes

    @property
    def sentence(self) -> str:
        """Return the API server's explanation of a request that it did not carry out."""
        return f"{self.status}: {status_message(self.body)}"


class Api(Protocol):
    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Make one attempt. Raises `Unanswered` if its outcome is unknown."""

    async def close(self) -> None: ...


class TransportApi:
    """`Api` over a transport; `timeout_ms` is the time for one small write."""

    def __init__(self, transport: Transport, timeout_ms: int) -> None:
        self._transport = transport
        self._timeout_s = timeout_ms / 1000

    async def request(
        self, method: str, path: str, *, params: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        request = HttpRequest(
            method=method,
            path=path,
            params=params or {},
            body=body,
            timeout_s=self._patience_s(method, len(body)),
        )
        try:
            response = await self._transport.send(request)
        except Unavailable as error:
            raise Unanswered(error.message) from error
        answer = Answer(status=response.status, body=response.body)
        if answer.status in UNKNOWN_OUTCOMES:
            raise Unanswered(f"{method} {path}: {answer.sentence}")
        return answer

    async def close(self) -> None:
        await self._transport.close()

    def _patience_s(self, method: str, size: int) -> float:
        """Return the timeout in seconds; large requests get more, so that a slow server can finish
        them."""
        return self._timeout_s * (READ_FACTOR if method == "GET" else 1 + size / LARGE_BYTES)

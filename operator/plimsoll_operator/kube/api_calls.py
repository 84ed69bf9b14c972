"""Counts and times requests to the API server, as metrics.

`ApiCalls.around` wraps each transport of a process; requests and answers pass unchanged.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from prometheus_client import CollectorRegistry, Counter, Histogram

from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse, Transport

BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NO_ANSWER = "none"
ANSWERS = ("2xx", "3xx", "4xx", "5xx", NO_ANSWER)


class ApiCalls:
    """The metrics of one process about its requests to the API server, over all its transports."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "plimsoll_operator_api_requests",
            "Requests to the API server, by class of the answer (none: no answer)",
            ("method", "answer"),
            registry=registry,
        )
        self._seconds = Histogram(
            "plimsoll_operator_api_request_seconds",
            "Duration of a request to the API server, without watches",
            ("method",),
            buckets=BUCKETS_S,
            registry=registry,
        )
        for method in METHODS:
            for answer in ANSWERS:
                self._requests.labels(method, answer)

    def answered(self, method: str, status: int, seconds: float) -> None:
        """Count one finished request. `status`: the HTTP status, 0 if no answer came; `seconds`:
        its duration."""
        answer = f"{status // 100}xx" if 200 <= status < 600 else NO_ANSWER
        self._requests.labels(method, answer).inc()
        self._seconds.labels(method).observe(seconds)

    def around(self, transport: Transport) -> Transport:
        return _Counted(transport, self)


class _Counted:
    """A transport that passes each request to another transport and counts it. Watches are not
    counted."""

    def __init__(self, transport: Transport, calls: ApiCalls) -> None:
        self._transport = transport
        self._calls = calls

    async def send(self, request: HttpRequest) -> HttpResponse:
        began_s, status = time.monotonic(), 0
        try:
            response = await self._transport.send(request)
            status = response.status
        except ApiError as error:
            status = error.status
            raise
        finally:
            self._calls.answered(request.method, status, time.monotonic() - began_s)
        return response

    def watch(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        return self._transport.watch(request)

    async def close(self) -> None:
        await self._transport.close()

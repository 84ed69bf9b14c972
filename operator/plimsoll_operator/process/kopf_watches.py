"""Watches the users' objects with kopf: raw events only.

kopf's change handlers, timers and daemons write annotations and finalizers into the objects that
they serve. User objects must stay as their owner wrote them, and the operator must not delay their
deletion. So only `on.event` is used; it feeds the clusters' own queues.

kopf runs in a thread and a loop of its own: it installs signal handlers, ends the process when it
stops slowly, and must never delay a commit.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import kopf

from plimsoll_operator.api import GROUP, VERSION
from plimsoll_operator.kube.official_transport import Access
from plimsoll_operator.kube.resources import WATCHED_KINDS
from plimsoll_operator.options import OperatorOptions
from plimsoll_operator.process.object_watches import Event, WatchReceiver

KOPF_STARTS = "kopf._core.reactor.running"
"""The logger to which kopf writes when it starts and stops."""
WITHOUT_SIGNALS = "OS signals are ignored"
"""First words of a warning of kopf that is not logged: kopf does not run in the main thread, which
is intended here."""
WATCH_SECONDS = 10
INACTIVITY_SECONDS = 15


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(WITHOUT_SIGNALS)


class _ForEver:
    """Delays between kopf's attempts, in seconds: short ones first, then 5 s without end. Can be
    iterated repeatedly."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.5, 1, 2), itertools.repeat(5))


def settings() -> kopf.OperatorSettings:
    """Return kopf's settings: it notices a dead connection in seconds, and writes nothing to the
    API server."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.peering.standalone = True
    found.scanning.disabled = True
    found.watching.server_timeout = WATCH_SECONDS
    found.watching.client_timeout = WATCH_SECONDS + 2
    found.watching.inactivity_timeout = INACTIVITY_SECONDS
    found.watching.connect_timeout = 2
    found.networking.request_timeout = 10
    found.networking.connect_timeout = 2
    found.networking.error_backoffs = _ForEver()
    found.process.ultimate_exiting_timeout = None
    return found


async def connection(access: Access) -> kopf.ConnectionInfo:
    """Return the address and credentials of `access` in kopf's form."""
    configuration = access.configuration
    scheme, _, token = (await access.authorization() or "").partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )


class KopfWatches:
    """The operator's `process.operator.UserWatches` on Kubernetes, implemented with kopf."""

    def __init__(self, options: OperatorOptions, access: Access, receiver: WatchReceiver) -> None:
        self._options = options
        self._access = access
        self._receiver = receiver
        self._stop = threading.Event()
        self._ready = threading.Event()
        logging.getLogger(KOPF_STARTS).addFilter(_is_news)

    @property
    def ready(self) -> bool:
        return self._ready.is_set()

    async def run(self) -> None:
        """Watch until cancelled. Raises any exception of kopf. On cancellation kopf's thread gets a
        stop flag but is not awaited, since Leases must be released at once."""
        registry = self._registry(asyncio.get_running_loop())
        try:
            await asyncio.to_thread(asyncio.run, self._operate(registry))
        finally:
            self._stop.set()

    async def _operate(self, registry: kopf.OperatorRegistry) -> None:
        await kopf.operator(
            registry=registry,
            settings=settings(),
            standalone=True,
            clusterwide=not self._options.namespaces,
            namespaces=self._options.namespaces,
            stop_flag=self._stop,
            ready_flag=self._ready,
        )

    def _registry(self, main: asyncio.AbstractEventLoop) -> kopf.OperatorRegistry:
        found = kopf.OperatorRegistry()

        async def login(**_: Any) -> kopf.ConnectionInfo:
            return await connection(self._access)

        kopf.on.login(registry=found)(login)
        for kind in WATCHED_KINDS:
            handler = _forward(main, partial(self._receiver.take, kind))
            kopf.on.event(GROUP, VERSION, kind.plural, registry=found, id=kind.plural)(handler)
        return found


def _forward(
    main: asyncio.AbstractEventLoop, receive: Callable[[Event], None]
) -> Callable[..., Awaitable[None]]:
    async def handler(event: Event, **_: Any) -> None:
        main.call_soon_threadsafe(receive, dict(event))

    return handler

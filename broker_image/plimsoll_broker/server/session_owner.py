"""SessionOwner: what a server provides to each of its sessions. Made by `listener`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plimsoll_broker.handler_failures import CommitPathFailed
from plimsoll_broker.server.address_admission import AddressAdmission
from plimsoll_broker.server.client_memory_waits import ClientMemory
from plimsoll_broker.server.client_quotas import MUTATING, Charges, Quotas
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import ConnectionState, Dispatch, RequestContext
from plimsoll_broker.server.server_stats import ServerStats
from plimsoll_broker.server.turn_budget import TurnBudget
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.security.client_certificates import CertificateProof
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.headers import RequestHeader

_API_KEYS = {int(key): key for key in ApiKey}
_PRODUCE = int(ApiKey.PRODUCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOwner:
    """`listener` returns the current configuration. `proved` takes a connection and the proof of
    its certificate. `opened`, `heard` and `closed` take a session. `quotas` None: no limits here.
    `admission` None: addresses are not limited, or were checked before the session was made."""

    dispatch: Dispatch
    listener: Callable[[], Listener]
    limits: ListenerLimits
    memory: ClientMemory | None
    stats: ServerStats
    turns: TurnBudget
    quotas: Quotas | None
    admission: AddressAdmission | None
    opened: Callable[[Any], bool]
    heard: Callable[[Any], None]
    closed: Callable[[Any], None]
    failed: Callable[[BaseException], None]
    proved: Callable[[ConnectionState, CertificateProof], None]

    def admits(self, transport: asyncio.Transport) -> bool:
        return self.admission is None or self.admission.arrived(transport)

    def left(self, host: str) -> None:
        if self.admission is not None:
            self.admission.left(host)

    def broke(self, api_key: int, error: BaseException) -> None:
        """Handle a bug: it costs its connection. On the commit path it ends the process: the
        listener's task fails with it."""
        if isinstance(error, CommitPathFailed):
            self.failed(error)
        else:
            self.stats.handler_failures.met(api_key, error)

    def context(
        self, header: RequestHeader, frame: bytearray, connection: ConnectionState, began_ns: int
    ) -> RequestContext:
        """Return the context of a served request that was read at `began_ns`."""
        key, version, correlation_id, client_id, body_at = header
        assert body_at is not None, "a version that is served has a body"
        body = memoryview(frame)[body_at:]
        context = RequestContext(
            _API_KEYS[key], version, correlation_id, body, connection, client_id
        )
        quotas = self.quotas
        if quotas is not None and quotas.limits_clients:
            held = connection.limits
            if (
                key == _PRODUCE
                and held is not None
                and held.covers(quotas.committed, client_id, len(body), began_ns)
            ):
                context.time_ahead = held.time_ahead
            else:
                context.charges = quotas.charges(connection, key, client_id, began_ns)
        if quotas is not None and key in MUTATING:
            context.charges = quotas.mutating(context.charges, connection, client_id, began_ns)
        return context

    def charges_of_steps(self, connection: ConnectionState) -> Charges | None:
        """Return the charges of a request that was allowed ahead."""
        return None if self.quotas is None else self.quotas.steps(connection)

    def serves(self, connection: ConnectionState, api_key: int, version: int) -> bool:
        """Return True if the API is served. A client without login may send nothing large."""
        return connection.let_in and self.dispatch.find(api_key, version) is not None

"""A listener as it is committed: a port for clients, with its TLS and authentication settings.

The controller commits the listeners that a LogCluster states
(`controller.brokers.declared_listeners`). Each broker opens and closes its listeners accordingly,
and every connection has a reference to the listener that accepted it. `listener_peers` assigns a
broker's endpoints to kinds of peers.
"""

from __future__ import annotations

import msgspec

from plimsoll_core.ids import BrokerId


class Advertised(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """The host and port at which clients outside the pods' network reach one broker."""

    broker_id: BrokerId
    host: str
    port: int


class Listener(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A port for clients on every broker, as committed from the LogCluster.

    `tls_version_min` is the oldest TLS version that it accepts, "1.2" or "1.3", or None for
    plaintext. `authentication` lists the mechanisms by which a client may log in; a client must use
    one, and no login is required if the tuple is empty. `connections_max` None means the broker's
    own limit. `connections_max_reauth_ms` is the time after which a client must log in again, None
    if only the end of its credential (token, certificate) limits it. `advertised` holds the
    addresses of the brokers for clients outside the pods' network, sorted by broker, as far as they
    are known; None means that clients are inside and each broker advertises its own address.
    `bootstrap_servers` is the value of Kafka's `bootstrap.servers` for clients outside, None if not
    known yet or if clients are inside.
    """

    name: str
    port: int
    tls_version_min: str | None = None
    authentication: tuple[str, ...] = ()
    connections_max: int | None = None
    connections_max_reauth_ms: int | None = None
    advertised: tuple[Advertised, ...] | None = None
    bootstrap_servers: str | None = None

    @property
    def tls(self) -> bool:
        """Return True if connections to this listener are encrypted."""
        return self.tls_version_min is not None

    @property
    def external(self) -> bool:
        """Return True if the listener is for clients outside the pods' network."""
        return self.advertised is not None

    def advertised_of(self, broker_id: int) -> Advertised | None:
        """Return the address of a broker for clients outside the pods' network. Return None if it
        is not known, or if the listener is for clients inside."""
        return next((one for one in self.advertised or () if one.broker_id == broker_id), None)

"""A listener as it is committed: a port that clients connect to, and how they do.

The controller commits what a LogCluster states (`controller.brokers.declared_listeners`); each
broker keeps to it at run time, and every connection carries the value of the listener that accepted
it.  Which endpoints a broker has for which peers, `listener_peers` says.
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
    """The address at which a listener's clients outside the pods' network reach a broker."""

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
    """A port that clients connect to, on every broker, as committed.

    `tls_version_min`: the oldest version of TLS that it speaks, "1.2" or "1.3"; None: it is
    plaintext.  `authentication`: the ways in which clients prove their user name, of which
    each client has to use one; none: no name is required.  `connections_max` None: the
    brokers' own limit.  `connections_max_reauth_ms`: after so long clients have to log in again;
    None: when what they logged in with ends.  `advertised`: the brokers' addresses for clients
    outside, as far as they are known, in the order of the brokers; None: clients are inside, and
    each broker names itself.  `bootstrap_servers`: where clients outside begin, as Kafka's clients
    take it; None: nowhere yet, or they are inside.
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
        """True if what is sent here is encrypted."""
        return self.tls_version_min is not None

    @property
    def external(self) -> bool:
        """True if its clients are outside the pods' network."""
        return self.advertised is not None

    def advertised_of(self, broker_id: int) -> Advertised | None:
        """Return None if no address of the broker is known, or its clients are inside."""
        return next((one for one in self.advertised or () if one.broker_id == broker_id), None)

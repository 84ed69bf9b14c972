"""Commits the listeners that a LogCluster states, or refuses them. Called for DeclareListeners.

They are committed as records because each broker opens and closes its listeners by the committed
records, without a restart, and tells the clients of a listener the endpoints of that listener.
Their names must differ from the names in `listener_peers`: of the implicit listener, and of the
followers' endpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.records import ListenersConfigured
from plimsoll_core.controller.kernel.decision import DecisionContext, too_old
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.brokers import DeclareListeners
from plimsoll_core.messages.requests import Answer, Done
from plimsoll_core.security.client_certificates import TLS_LOGIN
from plimsoll_core.security.tokens import TOKEN_LOGINS

SINCE = 3
"""The metadata version that introduced declared listeners."""
LISTENERS_MAX = 8
PORT_MIN, PORT_MAX = 1024, 65_535
HOST_MAX = 253
"""The greatest length of a host name in characters, as for DNS names."""
RESERVED_PORTS = frozenset({9091, 9093, 9100, 9101})
"""Ports that listeners must not use: those for replication, controllers, metrics and health."""


def declare_listeners(turn: DecisionContext, request: DeclareListeners) -> Answer | Refusal:
    if request.listeners == turn.image.listeners:
        return Done()
    for check in CHECKS:
        refusal = check(turn, request.listeners)
        if refusal:
            return refusal
    turn.add(ListenersConfigured(cause="declared", listeners=request.listeners))
    return Done()


# --- checks ------------------------------------------------------------------------------------


def version_allows_them(turn: DecisionContext, listeners: tuple[Listener, ...]) -> Refusal | None:
    return too_old(turn, SINCE, "spec.listeners needs")


def names_and_ports_are_used_once(
    turn: DecisionContext, listeners: tuple[Listener, ...]
) -> Refusal | None:
    names = Counter(listener.name for listener in listeners)
    ports = Counter(str(listener.port) for listener in listeners)
    for what, counted in (("name", names), ("port", ports)):
        for value, times in sorted(counted.items()):
            if times > 1:
                return _invalid(
                    f"spec.listeners has {times} listeners with the {what} {value}; give each "
                    "its own."
                )
    return None


def ports_are_free(turn: DecisionContext, listeners: tuple[Listener, ...]) -> Refusal | None:
    for listener in listeners:
        if listener.port in RESERVED_PORTS or not PORT_MIN <= listener.port <= PORT_MAX:
            text = (
                f"Listener {listener.name} cannot use port {listener.port}. Choose a port from "
                f"{PORT_MIN} to {PORT_MAX}"
            )
            return _invalid(f"{text} other than 9091, 9093, 9100 and 9101, which brokers use.")
    return None


def names_are_legal(turn: DecisionContext, listeners: tuple[Listener, ...]) -> Refusal | None:
    """Refuse more than `LISTENERS_MAX` listeners, and a name that is not a lower-case letter and up
    to ten lower-case letters or digits: names in capitals are the brokers' own endpoints."""
    if len(listeners) > LISTENERS_MAX:
        return _invalid(
            f"A cluster may have at most {LISTENERS_MAX} listeners, not {len(listeners)}."
        )
    for listener in listeners:
        name = listener.name
        legal = name.isascii() and name.isalnum() and name.islower() and name[0].isalpha()
        if not legal or len(name) > 11:
            text = (
                "its name must be a lower-case letter and up to ten lower-case letters or digits."
            )
            return _invalid(f"Listener {name!r}: {text}")
    return None


def tokens_are_encrypted(turn: DecisionContext, listeners: tuple[Listener, ...]) -> Refusal | None:
    """Refuse token logins without TLS, because a token that is read on the network can be used
    again."""
    for listener in listeners:
        if set(TOKEN_LOGINS) & set(listener.authentication) and not listener.tls:
            return _invalid(
                f"Listener {listener.name} accepts logins by tokens and therefore needs TLS; set "
                "its field tls."
            )
    return None


def certificates_are_shown(
    turn: DecisionContext, listeners: tuple[Listener, ...]
) -> Refusal | None:
    """Refuse certificate logins without TLS, because clients present certificates in the TLS
    handshake."""
    for listener in listeners:
        if TLS_LOGIN in listener.authentication and not listener.tls:
            return _invalid(
                f"Listener {listener.name} accepts logins by certificates and therefore needs "
                "TLS; set its field tls."
            )
    return None


def addresses_are_possible(
    turn: DecisionContext, listeners: tuple[Listener, ...]
) -> Refusal | None:
    """Refuse advertised addresses that repeat a broker, are not in the order of broker ids, or have
    a host or port out of range: brokers register these addresses and send them to clients
    unchanged."""
    for listener in listeners:
        stated = listener.advertised or ()
        brokers = [one.broker_id for one in stated]
        if brokers != sorted(set(brokers)):
            return _invalid(
                f"The field advertised of listener {listener.name} must have exactly one address "
                "for each broker, in the order of broker ids."
            )
        for one in stated:
            if not 0 < len(one.host) <= HOST_MAX or not 0 < one.port <= PORT_MAX:
                text = (
                    f"the host {one.host[:HOST_MAX]!r} and the port {one.port} are not a valid "
                    "address."
                )
                return _invalid(f"Listener {listener.name}, broker {one.broker_id}: {text}")
    return None


def _invalid(message: str) -> Refusal:
    return Refusal(reason=Reason.InvalidRequest, message=message)


Check = Callable[[DecisionContext, tuple[Listener, ...]], Refusal | None]
# Order matters: what is wrong for good comes before what time may cure.
CHECKS: tuple[Check, ...] = (
    names_are_legal,
    names_and_ports_are_used_once,
    ports_are_free,
    tokens_are_encrypted,
    certificates_are_shown,
    addresses_are_possible,
    version_allows_them,
)

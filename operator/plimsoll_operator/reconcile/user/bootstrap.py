"""Where a user's clients connect first: the listeners that ask for a login the user has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plimsoll_core.addresses import host_and_port
from plimsoll_core.cluster.listener_peers import endpoint
from plimsoll_operator.reconcile.reconcile_term import Term

BROKERS_MAX = 3


class Bootstrap(NamedTuple):
    """`servers`: some brokers' endpoints, none while there are none.  `tls`: whether they speak
    it; `authority`: what signs their certificates, as PEM; empty: not the cluster's own.
    `listener`: whose they are."""

    servers: tuple[str, ...] = ()
    tls: bool = False
    authority: str = ""
    listener: str = ""


def bootstrap_of(term: Term, logins: Sequence[str]) -> Bootstrap:
    """Of the first listener that asks for such a login; `logins`: as listeners write them."""
    image = term.image
    # Users' Secrets are for pods: whoever is outside is the last to be meant.
    for listener in sorted(image.listeners, key=lambda one: one.external):
        if not set(logins).intersection(listener.authentication):
            continue
        found = (endpoint(broker, listener.name) for _, broker in sorted(image.brokers.items()))
        addresses = [host_and_port(one.host, one.port) for one in found if one is not None]
        return Bootstrap(tuple(addresses[:BROKERS_MAX]), tls=listener.tls, listener=listener.name)
    return Bootstrap()


def shows_own(term: Term, listener: str) -> bool:
    """Whether the cluster's own authority signs what the listener shows."""
    declared = term.cluster.listeners if term.cluster is not None else ()
    tls = next((one.tls for one in declared if one.name == listener), None)
    return tls is None or (tls.certificate_secret is None and tls.issuer_ref is None)

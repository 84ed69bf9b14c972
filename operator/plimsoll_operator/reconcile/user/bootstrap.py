"""Where a user's clients connect first: the listeners that ask for a login the user has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plimsoll_core.cluster.listener_peers import endpoint
from plimsoll_operator.reconcile.reconcile_term import Term

BROKERS_MAX = 3


class Bootstrap(NamedTuple):
    """`servers`: some brokers' endpoints, none while there are none.  `tls`: whether they speak
    it; `authority`: what signs their certificates, as PEM; empty: not the cluster's own."""

    servers: tuple[str, ...] = ()
    tls: bool = False
    authority: str = ""


def bootstrap_of(term: Term, logins: Sequence[str]) -> Bootstrap:
    """Of the first listener that asks for such a login; `logins`: as listeners write them."""
    image = term.image
    for listener in image.listeners:
        if not set(logins).intersection(listener.authentication):
            continue
        found = (endpoint(broker, listener.name) for _, broker in sorted(image.brokers.items()))
        addresses = [f"{one.host}:{one.port}" for one in found if one is not None]
        return Bootstrap(tuple(addresses[:BROKERS_MAX]), listener.tls)
    return Bootstrap()

"""Finds the listener and the addresses at which a user's clients connect first, and the ways in
which a user can log in.

A listener fits if it asks for a login that the user has. Called by the reconcilers of Users and of
Verifications: a Verification's driver logs in as a User.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

from plimsoll_core.addresses import host_and_port
from plimsoll_core.cluster.listener_peers import endpoint
from plimsoll_core.security.scram import MECHANISMS, SPEC_NAMES, ScramMechanism
from plimsoll_operator.api.selectors import allows
from plimsoll_operator.api.user import User
from plimsoll_operator.reconcile.reconcile_term import Term

BROKERS_MAX = 3


class Bootstrap(NamedTuple):
    """A listener to which a client can connect first. `servers`: endpoints of some brokers as
    host:port, empty if none is open. `tls`: True if they speak TLS. `authority`: the CA of their
    certificates as PEM, "" if it is not the cluster's own. `listener`: its name, "" if no listener
    fits."""

    servers: tuple[str, ...] = ()
    tls: bool = False
    authority: str = ""
    listener: str = ""


def closed_to(term: Term, namespace: str, namespace_labels: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the internal listeners that pods of the namespace do not reach, by the
    listeners' `allowedNamespaces`."""
    declared = term.cluster.listeners if term.cluster is not None else ()
    limited = (one for one in declared if one.allowed_namespaces is not None and not one.external)
    return frozenset(
        one.name
        for one in limited
        if namespace != term.key[0] and not allows(one.allowed_namespaces, namespace_labels)
    )


def bootstrap_of(term: Term, logins: Sequence[str], unreached: Container[str] = ()) -> Bootstrap:
    """Return the first listener that asks for one of `logins` (names as in a listener's
    `authentication`), internal listeners first, and last those with names in `unreached`. Return an
    empty Bootstrap if there is none."""
    image = term.image
    # Users' Secrets are for pods: external listeners come last.
    ordered = sorted(image.listeners, key=lambda one: (one.name in unreached, one.external))
    for listener in ordered:
        if not set(logins).intersection(listener.authentication):
            continue
        found = (endpoint(broker, listener.name) for _, broker in sorted(image.brokers.items()))
        addresses = [host_and_port(one.host, one.port) for one in found if one is not None]
        return Bootstrap(tuple(addresses[:BROKERS_MAX]), tls=listener.tls, listener=listener.name)
    return Bootstrap()


def shows_own(term: Term, listener: str) -> bool:
    """Return True if the cluster's own CA signs the certificate of the listener with this name."""
    declared = term.cluster.listeners if term.cluster is not None else ()
    tls = next((one.tls for one in declared if one.name == listener), None)
    return tls is None or (tls.certificate_secret is None and tls.issuer_ref is None)


def mechanisms_of(user: User) -> tuple[ScramMechanism, ...]:
    """Return the SCRAM mechanisms by which the user may log in, () if it has no password."""
    if user.scram is None:
        return ()
    wanted = user.scram.mechanisms
    return tuple(one for one in MECHANISMS if wanted is None or SPEC_NAMES[one] in wanted)

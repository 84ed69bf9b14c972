"""Users that log in by certificate: their declarations, and every key pair that they have had.

Some certificates are issued by the operator, into Secrets. The others are signed by a partner's
authority, which the LogCluster names by a ConfigMap.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from plimsoll_operator.api import labels
from plimsoll_operator.api.meta import ClusterRef
from plimsoll_operator.api.user import (
    Authentication,
    ExternalCertificate,
    UserCertificate,
    UserSpec,
)
from plimsoll_operator.api_server.store import ObjectChange
from plimsoll_operator.kube.resources import LOG_CLUSTERS, SECRETS, USERS
from plimsoll_operator.manifests.listener_secrets import authorities_of, data_of
from plimsoll_operator.pki.authority import KeyPair
from plimsoll_operator.pki.rotation import Authorities
from plimsoll_operator.reconcile.cluster.authorities import CLIENT_CA
from plimsoll_sim.desired.objects import AppliedObjects
from plimsoll_sim.desired.users import WHOLE, EditedUsers
from plimsoll_sim.environment import certificates

CERTIFIED = ("dave", "erin")
"""Names of the users with certificates from the operator."""
EXTERNAL = "frank"
"""Name of the user with certificates from a partner's authority."""
SUBJECT = "CN=frank"
"""The subject of frank's certificates."""
PARTNERS = "partners"
"""Name of the partner's authority, and of its ConfigMap."""
SUFFIX = "-kafka"
"""Suffix of the names of Users' Secrets."""


def user_name(user: str) -> str:
    """Return the login name of the User with this object name."""
    return SUBJECT if user == EXTERNAL else user


class CertifiedUsers(EditedUsers):
    """An administrator's edits of users that log in by certificate. `now_ms`: returns the wall
    clock."""

    def __init__(self, objects: AppliedObjects, now_ms: Callable[[], int]) -> None:
        super().__init__(objects)
        self._now_ms = now_ms
        # Every pair that a user could once log in by, the newest last.
        self.pairs: dict[str, list[KeyPair]] = {}
        # The stored authorities that sign them.
        self.authorities: Authorities | None = None
        # The signing key, by the fingerprint of each certificate that the operator made.
        self.issuers: dict[str, str] = {}
        # The partner's present authority; None: there is none yet.
        self._partner: KeyPair | None = None

    # --- what is declared -------------------------------------------------------------------------

    def declare(self, user: str, *, days: int | None = None) -> None:
        """Declare a user with all rules of a tenant. `days`: validity of the certificates that the
        operator issues."""
        if user == EXTERNAL:
            login = Authentication(tls_external=ExternalCertificate(subject=SUBJECT))
        else:
            login = Authentication(tls=UserCertificate(validity_days=days))
        spec = UserSpec(
            cluster_ref=ClusterRef(name=self._objects.name), authentication=login, acls=WHOLE
        )
        self._objects.create(USERS, user, spec)
        if user == EXTERNAL:
            self.sign_external()

    def is_declared(self, user: str) -> bool:
        return user in self._objects.names(USERS)

    def remove(self, user: str) -> None:
        """Delete the User object."""
        self._objects.delete(USERS, user)

    def set_days(self, user: str, days: int | None) -> None:
        """Set the validity of the user's next certificate in days; None: the default."""
        self.change(user, authentication=Authentication(tls=UserCertificate(validity_days=days)))

    def lose_key(self, user: str) -> None:
        """Delete the user's Secret: the certificates in it must no longer be accepted."""
        if f"{user}{SUFFIX}" in self._objects.names(SECRETS):
            self._objects.delete(SECRETS, f"{user}{SUFFIX}")
        self.touch(user)

    # --- the partner ------------------------------------------------------------------------------

    def replace_partner(self, *, keep: bool = False) -> None:
        """Replace the partner's authority. `keep`: True if the previous one stays trusted."""
        before, self._partner = self._partner, certificates.new_authority(PARTNERS, self._now_ms())
        kept = before.certificate if keep and before is not None else b""
        bundle = self._partner.certificate + kept
        self._objects.put_config_map(PARTNERS, {"ca.crt": bundle.decode()})
        if self._objects.name in self._objects.names(LOG_CLUSTERS):
            self._touch(LOG_CLUSTERS, self._objects.name)

    def sign_external(self, *, days: int = 90) -> None:
        """Sign another certificate by the partner's authority."""
        assert self._partner is not None, "a run begins with one"
        pair = certificates.client_of(self._partner, SUBJECT, self._now_ms(), days)
        self.pairs.setdefault(EXTERNAL, []).append(pair)

    # --- what comes of it -------------------------------------------------------------------------

    def stored(self, change: ObjectChange) -> None:
        """Store the key pair if the change writes a User's Secret. Called for each change of the
        API server's store."""
        meta = change.after.body["metadata"]
        name = str(meta["name"])
        if (meta.get("labels") or {}).get(labels.COMPONENT) == CLIENT_CA:
            self.authorities = authorities_of(change.after.body)
        user = name.removesuffix(SUFFIX)
        if change.resource.kind != SECRETS or user not in CERTIFIED or change.type == "DELETED":
            return
        data, known = data_of(change.after.body), self.pairs.setdefault(user, [])
        if "tls.crt" in data and "tls.key" in data:
            pair = KeyPair(certificate=data["tls.crt"], key=data["tls.key"])
            if not known or known[-1] != pair:
                known.append(pair)
                sha256 = certificates.describe(pair.certificate).sha256
                self.issuers[sha256] = certificates.all_of(pair.certificate)[0].issuer

    def pairs_of(self, user: str) -> list[KeyPair]:
        return self.pairs.get(user, [])

    def forged(self, user: str) -> KeyPair:
        """Return a key pair like the user's newest one, but signed by an intruder's authority."""
        known = self.pairs.get(user)
        names = certificates.all_of(known[-1].certificate)[0].names if known else ()
        authority = certificates.new_authority("intruder", self._now_ms())
        subject = f"CN={user}"
        return certificates.client_of(authority, subject, self._now_ms(), names=names)


def change_certified(users: CertifiedUsers, rng: random.Random) -> str:
    """Make one random change to a user, as an administrator does. Return its description."""
    user = rng.choice((*CERTIFIED, EXTERNAL))
    if not users.is_declared(user):
        users.declare(user, days=rng.choice((None, 1)))
        return f"{user} is declared again"
    number = rng.randrange(12)
    if number < 4:
        return users.change_rules(user, rng)
    if number < 6:
        return users.toggle(user)
    if number == 6:
        users.remove(user)
        return f"{user} is removed"
    return _external(users, rng) if user == EXTERNAL else _own(users, user, rng)


def _own(users: CertifiedUsers, user: str, rng: random.Random) -> str:
    number = rng.randrange(3)
    if number == 0:
        users.touch(user)
        return f"{user}'s certificate is renewed if it is due"
    days = rng.choice((None, 1, 1, 2))
    users.set_days(user, days)
    if number == 1:
        return f"{user}'s next certificate is good for {days or 90} days"
    users.lose_key(user)
    return f"{user}'s key is lost; the next one is good for {days or 90} days"


def _external(users: CertifiedUsers, rng: random.Random) -> str:
    number = rng.randrange(3)
    if number == 0:
        users.replace_partner()
        users.sign_external()
        return "another authority of the partner's signs, and the one before is not believed"
    if number == 1:
        users.replace_partner(keep=True)
        users.sign_external()
        return "another authority of the partner's signs, and the one before is believed"
    days = rng.choice((1, 90))
    users.sign_external(days=days)
    return f"the partner's authority signs for {days} days"
